"""States that any page can be in, each reached by a test: here, or where the page is tested."""

from __future__ import annotations

import ast
import threading
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.screens import values
from tests.screens.pages import model, plan_page, review
from tests.screens.stage import OnePage, World, rest, shown, until
from tests.screens.test_leaving import folder
from tests.screens.test_walk import reach
from wizard import cli
from wizard.answers import Answers
from wizard.app import TunewrightApp
from wizard.commands import wizard as command
from wizard.facts import Facts, Model
from wizard.plan import Plan
from wizard.problem import Problem, ProblemError
from wizard.screens.review import ACCEPTED_FILE
from wizard.steps import Chosen, Step
from wizard.widgets import message
from wizard.widgets.message import MessageLine
from wizard.widgets.sheet import Sheet

__all__ = ["folder"]

HERE = Path(__file__).parent
REACHED: Mapping[str, tuple[str, str]] = {
    "loading: told late, and then long enough to be read": (
        "test_states",
        "test_what_is_waited_for_is_told_late_and_then_long_enough_to_be_read",
    ),
    "loading: a probe or a planner that hangs": (
        "test_plan_page",
        "test_a_planner_or_a_probe_that_hangs_freezes_nothing",
    ),
    "loading: a hub that hangs": ("test_states", "test_a_hub_that_hangs_freezes_nothing"),
    "loading: data that hang": (
        "test_data_page",
        "test_a_preview_that_hangs_or_fails_holds_nothing_up",
    ),
    "empty: no model matches": (
        "test_states",
        "test_a_search_that_matches_nothing_says_what_enter_does",
    ),
    "empty: no accelerator": (
        "test_pages",
        "test_a_machine_without_accelerators_says_that_the_cpu_trains",
    ),
    "partial: what is not reported": (
        "test_review_page",
        "test_what_could_not_be_looked_at_is_neither_good_nor_bad",
    ),
    "warning: accepted and recorded": (
        "test_states",
        "test_accepted_warnings_are_marked_and_written_down_with_the_run",
    ),
    "error: a probe that fails": (
        "test_pages",
        "test_a_probe_that_fails_is_told_in_words_and_can_be_repeated",
    ),
    "error: a planner that fails, its traceback a key away": (
        "test_states",
        "test_a_bug_is_told_in_a_line_and_its_traceback_is_a_key_away",
    ),
    "error: a launch that fails": (
        "test_pages",
        "test_a_launch_that_fails_is_told_and_the_page_stays",
    ),
    "offline": ("test_states", "test_offline_is_said_on_top_and_by_what_needs_the_hub"),
    "stale": ("test_dashboard", "test_a_silent_and_a_failed_rank_say_so_in_words"),
    "crash of the UI": (
        "test_states",
        "test_a_screen_that_breaks_is_told_in_a_line_and_the_run_goes_on",
    ),
}
"""State → file and test that reach it."""


def test_every_state_is_reached_by_a_test_that_there_is() -> None:
    for state, (file, name) in REACHED.items():
        tree = ast.parse((HERE / f"{file}.py").read_text(encoding="utf-8"))
        defined = {
            n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        assert name in defined, state


@pytest.mark.wide
async def test_a_bug_is_told_in_a_line_and_its_traceback_is_a_key_away() -> None:
    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        raise ZeroDivisionError("by [bold]a\x1b[2Jbug")

    app = OnePage(lambda: plan_page(make_plans=plan))
    async with app.run_test(size=(100, 30)) as pilot:
        for _ in range(200):
            await pilot.pause(0.02)
            if app.screen.query_one(MessageLine).problem:
                break
        told = shown(app)
        assert "internal error: ZeroDivisionError: “by [bold]a" in told
        assert "Traceback" not in told.rsplit("\n", 2)[0]
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert isinstance(app.screen, Sheet)
        raw = shown(app)
        await pilot.press("escape")
        await pilot.pause()
        assert shown(app) == told
        await pilot.press("escape")
    assert 'test_states.py", line' in raw.replace("\n", "")
    assert "raise ZeroDivisionError" in raw
    assert "\x1b" not in raw
    assert app.left == [None]


async def test_what_a_user_can_mend_has_no_traceback() -> None:
    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        raise ProblemError(Problem(what="no plan", fix="another model"))

    app = OnePage(lambda: plan_page(make_plans=plan))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "error: no plan" in shown(app))
        assert "Traceback" not in shown(app)
        await pilot.press("ctrl+r")
        await pilot.pause()
        assert not isinstance(app.screen, Sheet)


@pytest.mark.wide
async def test_a_hub_that_hangs_freezes_nothing() -> None:
    hangs = threading.Event()

    def hub(name: str) -> Model:
        hangs.wait(30)
        return values.MODEL

    world = World(known=values.KNOWN)
    app = OnePage(lambda: model(world, model=None, verbs=world.model_verbs(read_hub=hub)))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press(*"org/m", "ctrl+o")
        await pilot.pause(0.3)
        assert "org/m" in shown(app).split("\n")[-2]
        assert "..." in shown(app).split("\n")[-2]
        await pilot.press("x", "enter")
        assert "org/mx" in shown(app)
        assert app.left == []
        await pilot.press("escape")
        await pilot.pause()
    hangs.set()
    assert app.left == [None]


async def test_what_is_waited_for_is_told_late_and_then_long_enough_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(message, "time", SimpleNamespace(monotonic=lambda: now))
    app = OnePage(plan_page)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        line = app.screen.query_one(MessageLine)

        def said() -> str:
            return str(line.visual)

        line.working("reading")
        assert "reading" not in said(), "not at once"
        await pilot.pause(message.NOTICED_SECONDS + 0.1)
        assert "reading ..." in said()
        now += 0.3
        line.rest()
        assert "reading ..." in said(), "answered, and still there"
        line.refuse(Problem(what="no"))
        assert "error: no" in said(), "an error waits for nothing"
        line.working("reading")
        await pilot.pause(message.NOTICED_SECONDS + 0.1)
        now += message.KEPT_SECONDS
        line.rest()
        assert "Enter takes the marked plan" in said()


async def test_accepted_warnings_are_marked_and_written_down_with_the_run() -> None:
    unsafe = Problem(what='a "\x1b[2J disk', fix="make room", severity="warning")
    plan = replace(values.PLANS[0], problems=(unsafe,))
    world = World()
    chosen = Chosen(answers=values.ANSWERS, plan=plan, others=(plan,))
    app = OnePage(lambda: review(world, chosen=chosen))
    async with app.run_test(size=(140, 40)) as pilot:
        await rest(pilot)
        before = shown(app)
        assert "! Accept" in before.split("\n")[-1]
        await pilot.press("exclamation_mark")
        await pilot.pause()
        after = shown(app)
        await pilot.press("exclamation_mark", "enter")
        await until(pilot, lambda: bool(app.left))
    assert before.count("[ !! ]") > 0
    assert after.count("[ !! ]") == 0
    assert after.count("[ok! ]") == before.count("[ !! ]")
    assert "! Accept" not in after.split("\n")[-1]
    [(files, _)] = world.written
    assert {name: files[name] for name in values.FILES} == values.FILES
    recorded = tomllib.loads(files[ACCEPTED_FILE])["warning"]
    assert {"subject": "plan", "what": unsafe.what, "fix": unsafe.fix} in recorded
    assert len(recorded) == before.count("[ !! ]")


@pytest.mark.wide
async def test_a_warning_that_was_accepted_while_tuning_is_so_on_the_review_as_well() -> None:
    told = Problem(what="a small disk", fix="make room", severity="warning")
    plan = replace(values.PLANS[0], problems=(told,))
    world, answers = World(), replace(values.ANSWERS, accepted=(str(told),))
    chosen = Chosen(answers=answers, plan=plan, others=(plan,))
    app = OnePage(lambda: review(world, chosen=chosen))
    async with app.run_test(size=(140, 40)) as pilot:
        await rest(pilot)
        assert shown(app).count("[ok! ]") == 1
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    [(files, _)] = world.written
    assert tomllib.loads(files[ACCEPTED_FILE])["warning"] == [
        {"subject": "plan", "what": told.what, "fix": told.fix}
    ]


@pytest.mark.parametrize("size", [(60, 16), pytest.param((100, 30), marks=pytest.mark.slow)])
async def test_offline_is_said_on_top_and_by_what_needs_the_hub(size: tuple[int, int]) -> None:
    asked: list[str] = []
    world = World(known=values.KNOWN)
    verbs = world.verbs(offline="HF_HUB_OFFLINE is set", read_hub_model=asked.append)
    app = TunewrightApp(verbs)
    async with app.run_test(size=size) as pilot:
        await reach(pilot, Step.HARDWARE)
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.MODEL)
        await rest(pilot)
        head = shown(app).split("\n")[0]
        await pilot.press(*"org/m", "ctrl+o")
        await rest(pilot)
        told = " ".join(shown(app).split())
    assert "offline" in head
    assert "8" in head
    assert "the hub is not asked: HF_HUB_OFFLINE is set" in told
    assert asked == []


@pytest.mark.wide
async def test_a_search_that_matches_nothing_says_what_enter_does() -> None:
    app = OnePage(lambda: model(World(known=values.KNOWN)))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("ctrl+u", *"zzz")
        await until(pilot, lambda: "No listed model matches." in shown(app))
        await pilot.press("ctrl+u", *"llama")
        await until(pilot, lambda: "No listed model matches." not in shown(app))


def test_a_screen_that_breaks_is_told_in_a_line_and_the_run_goes_on(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken(TunewrightApp):
        def on_mount(self) -> None:
            raise ZeroDivisionError("by a bug")

        def run(self, *args: object, **kwargs: object) -> Path | None:
            return super().run(headless=True, size=(80, 24))

    monkeypatch.setattr(
        command, "_app", lambda machine, **options: Broken(World().verbs(), **options)
    )
    with pytest.raises(ZeroDivisionError) as caught:
        command.attach(folder, leave_when_done=False)
    assert cli._internal(caught.value) == 70
    said = capsys.readouterr().err
    assert "left; the run goes on: tunewright watch 'my run'" in said
    assert "internal error: ZeroDivisionError: “by a bug" in said
    assert "Traceback" not in said
