"""The tune page: undo, any setting by any name, and what each change does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.screens import values
from tests.screens.stage import RUN, OnePage, shown, until
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner import plans as real_plans
from wizard.screens.tune import TunePage
from wizard.settings import NAMES, every_setting
from wizard.steps import Chosen

FACTS = replace(
    values.FACTS,
    dataset=replace(values.DATASET, longest_row_tokens=900, most_turns=2),
    machine="two cards",
)


def tune(facts: Facts = FACTS, answers: Answers = values.ANSWERS) -> TunePage:
    def make_plans(wanted: Answers) -> tuple[Plan, ...]:
        return real_plans(facts, wanted)

    chosen = Chosen(answers=answers, plan=real_plans(facts, answers)[0])
    return TunePage(make_plans, chosen, RUN.name, facts)


START = Chosen(answers=values.ANSWERS, plan=values.PLANS[0])


def with_settings(answers: Answers) -> tuple[Plan, ...]:
    """The first plan, with what is fixed in it."""
    first = START.plan
    training = first.spec.training.model_copy(update=dict(answers.settings))
    return (replace(first, spec=first.spec.model_copy(update={"training": training})),)


@pytest.mark.wide
async def test_z_takes_back_a_change_and_y_does_it_again() -> None:
    app = OnePage(lambda: TunePage(with_settings, START, RUN.name, FACTS))
    async with app.run_test(size=(140, 40)) as pilot:
        await pilot.press(*"5e-5")
        await pilot.press("tab", "2")
        await until(pilot, lambda: "num_train_epochs 3 → 2" in shown(app))
        assert "learning_rate 0.0001 → 5e-05" in shown(app)
        await pilot.press("z")
        await until(pilot, lambda: "num_train_epochs" not in shown(app).split("changed")[-1])
        await pilot.press("z")
        await until(pilot, lambda: "changed  nothing" in shown(app))
        await pilot.press("y")
        await until(pilot, lambda: "changed  learning_rate" in shown(app))
        await pilot.press("y", "d")
        await until(pilot, lambda: "changed  nothing" in shown(app))
        await pilot.press("z", "enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].answers.settings == {"learning_rate": 5e-5, "num_train_epochs": 2.0}


@pytest.mark.wide
async def test_any_setting_is_found_by_its_name_elsewhere_and_fixed() -> None:
    app = OnePage(tune)
    async with app.run_test(size=(140, 40)) as pilot:
        await pilot.press("/", *"micro_batch")
        await until(pilot, lambda: "micro_batch_size (axolotl)" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.screen.query("#field-per-device-train-batch-size")))
        await pilot.press("2")
        await until(pilot, lambda: "2 per device ×" in shown(app))
        await pilot.press("/", *"cutoff_len", "enter")
        await pilot.press(*"512")
        await until(pilot, lambda: "→ 512" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    chosen = app.left[0]
    assert chosen.answers.settings == {"per_device_train_batch_size": 2, "max_length": 512}
    assert chosen.plan.spec.data.max_length == 512


@pytest.mark.wide
async def test_a_typed_value_replaces_the_one_that_is_fixed_and_arrows_edit_it() -> None:
    given = replace(values.ANSWERS, settings={"learning_rate": 1e-3, "num_train_epochs": 2.0})
    start = Chosen(answers=given, plan=with_settings(given)[0])
    app = OnePage(lambda: TunePage(with_settings, start, RUN.name, FACTS))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("5", "tab")
        await pilot.press("end", "backspace", "backspace", "backspace", "4")
        await until(pilot, lambda: "num_train_epochs 2 → 4, learning_rate 0.001 → 5" in shown(app))
        await pilot.press("z", "z", "9")  # what came back is replaced as well
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].answers.settings == {"learning_rate": 1e-3, "num_train_epochs": 9.0}


@pytest.mark.wide
async def test_a_warning_stays_until_it_is_accepted_and_comes_back_with_another_value() -> None:
    app = OnePage(tune)
    async with app.run_test(size=(80, 24)) as pilot:
        assert "! Accept" not in shown(app)
        await pilot.press("1")
        await until(pilot, lambda: "warning: learning_rate" in shown(app))
        warned = shown(app).split("\n")[-1]
        await pilot.press("!")
        await until(pilot, lambda: "accepted: learning_rate: 1 is" in shown(app))
        accepted = shown(app)
        await pilot.press("0")
        await until(pilot, lambda: "warning: learning_rate: 10 is" in shown(app))
        await pilot.press("backspace")
        await until(pilot, lambda: "accepted: learning_rate: 1 is" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert "! Accept" in warned
    assert "! Accept" not in accepted.split("\n")[-1]
    assert "warning: learning_rate" not in accepted
    answers = app.left[0].answers
    assert answers.settings == {"learning_rate": 1.0}
    assert [text.split()[0] for text in answers.accepted] == ["learning_rate:"]


@pytest.mark.slow
async def test_where_text_is_typed_letters_are_text() -> None:
    app = OnePage(tune)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("shift+tab", *"dizzy", "enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].answers.run_name == "dizzy"


def test_every_setting_says_what_it_is_and_what_it_takes() -> None:
    settings = every_setting()
    assert {one.name for one in settings} >= set(NAMES)
    for one in settings:
        assert one.about.endswith("."), one.name
        assert one.accepts, one.name
    accepts = {one.name: one.accepts for one in settings}
    assert accepts["warmup_ratio"] == "a number from 0 below 1"
    assert accepts["revision"] == "text, or none"
    assert accepts["dtype"].startswith("bfloat16, ")
