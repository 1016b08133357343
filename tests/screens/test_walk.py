"""Ways through the pages by keys: back, into runs, out; `test_every_machine` goes all the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot

from tests.screens import values
from tests.screens.pages import RUNS
from tests.screens.stage import RUN, FollowedRun, World, rest, shown, until
from wizard import cli
from wizard.answers import Answers
from wizard.app import TunewrightApp
from wizard.commands import wizard as command
from wizard.dashboard.screen import Dashboard
from wizard.facts import Dataset
from wizard.steps import Step


def step_of(app: TunewrightApp) -> Step | None:
    return getattr(app.screen, "STEP", None)


async def reach(pilot: Pilot[Any], step: Step) -> None:
    app = pilot.app
    assert isinstance(app, TunewrightApp)
    await until(pilot, lambda: step_of(app) is step)


@pytest.mark.wide
async def test_escape_goes_back_and_later_answers_are_offered_again() -> None:
    app = TunewrightApp(World().verbs(), facts=values.FACTS, answers=values.ANSWERS)
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        await pilot.press("escape")
        await until(pilot, lambda: "Leave tunewright?" in shown(app))
        await pilot.press("escape")
        await reach(pilot, Step.HARDWARE)
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.PLAN)
        await pilot.press("escape")
        await reach(pilot, Step.DATA)
        assert "/data/train.jsonl" in shown(app)
        await pilot.press("escape")
        await reach(pilot, Step.MODEL)
        await pilot.press("enter")
        await reach(pilot, Step.DATA)
        await pilot.press("enter")
        await reach(pilot, Step.PLAN)


async def test_runs_are_offered_first_and_the_marked_one_is_opened() -> None:
    world = World(runs=RUNS, run=FollowedRun(values.state_after(values.events())))
    app = TunewrightApp(world.verbs())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: RUN.name in shown(app))
        await pilot.press("enter")
        await reach(pilot, Step.RUN)
        assert "q leaves; the run goes on." in shown(app)
        await pilot.press("q")
    assert app.return_value == RUN
    assert world.stopped == []


@pytest.mark.wide
async def test_n_on_the_start_page_begins_a_new_run_and_escape_leads_back_and_out() -> None:
    app = TunewrightApp(World(runs=RUNS).verbs())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: RUN.name in shown(app))
        await pilot.press("n")
        await reach(pilot, Step.HARDWARE)
        await pilot.press("escape")
        await until(pilot, lambda: "Your runs" in shown(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Leave tunewright?" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
    assert app.return_value is None


@pytest.mark.wide
async def test_a_new_run_begins_with_model_data_and_columns_of_the_last_one() -> None:
    columns = {"columns": "instruction=q,output=a"}
    last = Answers(model=values.MODEL.name, data="/data/train.jsonl", settings=columns)
    world = World(runs=RUNS, last_run=last)
    app = TunewrightApp(world.verbs())
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: RUN.name in shown(app))
        await pilot.press("n")
        for step in (Step.HARDWARE, Step.MODEL, Step.DATA):
            await reach(pilot, step)
            await rest(pilot)
            assert ("From your last run." in shown(app)) == (step is not Step.HARDWARE)
            await pilot.press("enter")
        await reach(pilot, Step.PLAN)
    assert world.kept is not None
    assert (world.kept.data, world.kept.settings) == (last.data, columns)


@pytest.mark.wide
async def test_a_model_and_data_of_the_command_line_stand_on_their_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(runs=RUNS, known=values.KNOWN)
    opened: list[TunewrightApp] = []

    def keep(app: TunewrightApp) -> int:
        opened.append(app)
        return 0

    monkeypatch.setattr(command, "_run", keep)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(command, "is_interactive", lambda: True)
    monkeypatch.setattr("wizard.commands.verbs.verbs", lambda machine: world.verbs())
    assert cli.main(["--model", "qwen3-8b", "--data", "/data/train.jsonl"]) == 0
    [app] = opened
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)  # not the start page
        await pilot.press("enter")
        await reach(pilot, Step.MODEL)
        await until(pilot, lambda: "> fits  Qwen/Qwen3-8B" in shown(app))
        await pilot.press("enter")
        await reach(pilot, Step.DATA)
        await until(pilot, lambda: "Enter goes on to the plans" in shown(app))
        assert "/data/train.jsonl" in shown(app)


@pytest.mark.wide
async def test_a_watched_run_leaves_by_itself_when_asked_to() -> None:
    world = World(run=FollowedRun(values.state_after(values.events())))
    app = TunewrightApp(world.verbs(), attach=RUN, leave_when_done=True)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, Dashboard) and "step 90" in shown(app))
        world.run.state = values.finished(world.run.state)
        await until(pilot, lambda: not app.is_running or app.return_value is not None)
    assert app.return_value == RUN


async def test_enter_comes_after_the_keys_that_arrived_with_it() -> None:
    """A slow line delivers a pasted path and its Enter as one burst."""
    world = World()
    read: list[str] = []

    def read_dataset(path: str, settings: object) -> Dataset:
        read.append(path)
        return values.DATASET

    app = TunewrightApp(world.verbs(read_dataset=read_dataset))
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        await pilot.press("enter")
        await reach(pilot, Step.MODEL)
        await pilot.press("m", "enter")
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.DATA)
        for character in "rows_of_mine":
            app.post_message(Key(character if character != "_" else "underscore", character))
        app.post_message(Key("enter", "\r"))
        await until(pilot, lambda: bool(read))
    assert read == ["rows_of_mine"]
