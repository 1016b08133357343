"""The wizard as a whole: few keys, answers that outlive it, the palette, moved keys."""

from __future__ import annotations

from typing import Any

import pytest
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from tests.screens import machines, values
from tests.screens.stage import RUN, FollowedRun, World, rest, shown, until
from tests.screens.test_walk import reach, step_of
from wizard.answers import Answers
from wizard.app import TunewrightApp
from wizard.facts import Facts
from wizard.planner import plans as real_plans
from wizard.steps import ORDER, Step

MOST_KEYS = 12


def world(**changes: Any) -> World:
    given: dict[str, Any] = {
        "run": FollowedRun(values.state_after(values.events())),
        "known": values.KNOWN,
        "nearby": ("train.jsonl",),
    }
    return World(**{**given, **changes})


async def to_model(pilot: Pilot[Any]) -> None:
    await reach(pilot, Step.HARDWARE)
    await pilot.press("enter")
    await reach(pilot, Step.MODEL)


async def test_defaults_lead_to_a_run_in_few_keys() -> None:
    """Enter alone: the machine, the first model, the data file of this folder, the first plan."""
    facts, lived = machines.facts("switched"), world()
    app = TunewrightApp(lived.verbs(probe=lambda say: facts, plans=real_plans))
    keys = 0
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        while step_of(app) is not Step.RUN and keys < MOST_KEYS:
            await rest(pilot)
            await until(pilot, lambda: not getattr(app.screen, "busy", False))
            await pilot.press("enter")
            keys += 1
            await pilot.pause(0.05)
        await reach(pilot, Step.RUN)
    assert keys <= MOST_KEYS
    assert lived.launched == [(RUN, False)]


@pytest.mark.slow
async def test_answers_outlive_the_wizard_until_a_run_is_started_from_them() -> None:
    lived = world()
    app = TunewrightApp(lived.verbs(plans=real_plans))
    async with app.run_test(size=(80, 24)) as pilot:
        await to_model(pilot)
        await pilot.press(*"qwen3-8b")
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.DATA)
        await pilot.press("ctrl+q")
    assert lived.kept == Answers(model="Qwen/Qwen3-8B")

    app = TunewrightApp(lived.verbs(plans=real_plans))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "> continue: Qwen/Qwen3-8B on no data yet" in shown(app))
        await pilot.press("enter")
        await to_model(pilot)
        await until(pilot, lambda: "layers" in shown(app))
        await pilot.press("enter")
        await reach(pilot, Step.DATA)


@pytest.mark.wide
async def test_a_name_that_was_typed_and_not_read_outlives_going_back_and_quitting() -> None:
    lived = world()
    app = TunewrightApp(lived.verbs(plans=real_plans))
    async with app.run_test(size=(80, 24)) as pilot:
        await to_model(pilot)
        await pilot.press(*"my qw", "escape")
        await to_model(pilot)
        await rest(pilot)
        assert app.screen.query_one(Input).value == "my qw"
        await pilot.press("end", "e", "ctrl+q")
    assert lived.kept == Answers(typed={"Model": "my qwe"})

    app = TunewrightApp(lived.verbs(plans=real_plans))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "> continue: no model yet" in shown(app))
        await pilot.press("enter")
        await to_model(pilot)
        assert app.screen.query_one(Input).value == "my qwe"


@pytest.mark.wide
async def test_what_was_changed_while_tuning_outlives_going_back_and_quitting() -> None:
    lived = world()
    app = TunewrightApp(lived.verbs(), facts=values.FACTS, answers=values.ANSWERS)
    async with app.run_test(size=(80, 24)) as pilot:
        for step in (Step.HARDWARE, Step.PLAN):
            await reach(pilot, step)
            await rest(pilot)
            await pilot.press("enter")
        await reach(pilot, Step.TUNE)
        await pilot.press("tab", "2", "escape")
        await reach(pilot, Step.PLAN)
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.TUNE)
        await pilot.press("7", "ctrl+q")
    assert lived.kept is not None
    assert lived.kept.settings == {"num_train_epochs": 2.0, "learning_rate": 7.0}


@pytest.mark.slow
async def test_the_palette_does_what_keys_do_and_leads_back() -> None:
    app = TunewrightApp(world().verbs(plans=real_plans), facts=values.FACTS, answers=values.ANSWERS)
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        await pilot.press("enter")
        await reach(pilot, Step.PLAN)
        await rest(pilot)
        names = {command.title for command in app.get_system_commands(app.screen)}
        assert {"Goal", "Why", "Compare", "What if", "Go to 2 Model"} <= names
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette))
        await pilot.press(*"go to 2")
        await until(pilot, lambda: "Go to 2 Model" in shown(app))
        await pilot.pause(0.3)
        await pilot.press("down", "enter")
        await reach(pilot, Step.MODEL)
        header = shown(app).split("\n")[0]
        assert ">2" in header


@pytest.mark.slow
async def test_keys_can_be_moved_by_their_ids() -> None:
    asked: list[str] = []

    def plan(facts: Facts, answers: Answers) -> Any:
        asked.append(answers.goal)
        return values.PLANS

    app = TunewrightApp(
        world().verbs(plans=plan),
        facts=values.FACTS,
        answers=values.ANSWERS,
        keymap={"plan.goal": "x"},
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        await pilot.press("enter")
        await reach(pilot, Step.PLAN)
        await rest(pilot)
        await pilot.press("g")
        await rest(pilot)
        assert "goal: [quality]" in shown(app)
        await pilot.press("x")
        await until(pilot, lambda: "goal: [fastest]" in shown(app))


@pytest.mark.slow
async def test_an_answer_whose_ground_changed_is_marked_until_it_is_given_again() -> None:
    app = TunewrightApp(world().verbs(plans=real_plans), facts=values.FACTS, answers=values.ANSWERS)
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        await pilot.press("enter")
        await reach(pilot, Step.PLAN)
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.TUNE)
        for step in (Step.PLAN, Step.DATA, Step.MODEL, Step.HARDWARE):
            await pilot.press("escape")
            await reach(pilot, step)
        assert "✓4" in shown(app).split("\n")[0]
        await pilot.press("space", "enter")
        await reach(pilot, Step.MODEL)
        assert "!4" in shown(app).split("\n")[0]
    assert ORDER[3] is Step.PLAN
