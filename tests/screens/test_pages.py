"""What each page is left with, and what it says when something is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from textual.pilot import Pilot
from textual.widgets import Input

from tests.screens import values
from tests.screens.pages import PAGES, data, model, plan_page, review
from tests.screens.stage import RUN, FollowedRun, OnePage, World, rest, shown, until
from wizard.answers import Answers, Goal
from wizard.facts import Facts, Model
from wizard.plan import Decision, Plan
from wizard.problem import Problem, ProblemError
from wizard.screens.finish import FinishPage
from wizard.screens.hardware import HardwarePage
from wizard.screens.tune import TunePage
from wizard.steps import Chosen, Machine
from wizard.widgets.help import Help
from wizard.widgets.message import MessageLine

START = Chosen(answers=values.ANSWERS, plan=values.PLANS[0])


def problem_on(app: OnePage) -> Problem | None:
    return app.screen.query_one(MessageLine).problem


async def refusal(pilot: Pilot[Any]) -> Problem:
    """The problem a page tells; waiting for the worker itself would raise its error here."""
    for _ in range(250):
        problem = pilot.app.screen.query_one(MessageLine).problem
        if problem is not None:
            return problem
        await pilot.pause(0.02)
    raise AssertionError("no problem was told")


async def test_the_hardware_page_leaves_with_the_facts_it_probed() -> None:
    app = OnePage(lambda: HardwarePage(lambda say: values.MACHINE, None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "RTX 4090" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
    assert app.left == [Machine(facts=values.MACHINE)]


async def test_a_probe_that_fails_is_told_in_words_and_can_be_repeated() -> None:
    answers = [ProblemError(Problem(what="the driver does not answer", fix="wait"))]

    def probe(say: object) -> Facts:
        if answers:
            raise answers.pop()
        return values.MACHINE

    app = OnePage(lambda: HardwarePage(probe, None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "error: the driver does not answer (wait)" in shown(app))
        await pilot.press("enter")
        assert app.left == []
        await pilot.press("r")
        await until(pilot, lambda: "RTX 4090" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
    assert app.left == [Machine(facts=values.MACHINE)]


async def test_a_machine_without_accelerators_says_that_the_cpu_trains() -> None:
    cpu = replace(values.MACHINE, devices=(replace(values.device(0, "EPYC"), kind="cpu"),))
    app = OnePage(lambda: HardwarePage(lambda say: cpu, cpu))
    async with app.run_test(size=(80, 24)):
        assert "No accelerator found: ranks will run on the CPU." in shown(app)


@pytest.mark.wide
async def test_the_model_page_reads_a_name_and_refuses_one_it_cannot_read() -> None:
    app = OnePage(lambda: model(World(), model=None, suggested="demo"))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+u", *"nowhere", "enter")
        await refusal(pilot)
        assert problem_on(app) == Problem(
            what="no such model", where="nowhere", fix="name a folder"
        )
        await pilot.press("enter")
        await rest(pilot)
        assert app.left == []
        await pilot.press("ctrl+t", "enter")
        await rest(pilot)
        await pilot.press("enter")
        await pilot.pause()
    assert app.left == [replace(values.MODEL, name="demo")]


async def test_the_data_page_does_not_go_on_without_a_usable_row() -> None:
    empty = World(dataset=replace(values.DATASET, rows=0))
    app = OnePage(lambda: data(empty, path="empty.jsonl", dataset=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "2 dropped" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
        problem = problem_on(app)
    assert app.left == []
    assert problem is not None
    assert problem.what == "no row can be used"


async def test_a_plan_that_does_not_fit_is_shown_and_cannot_be_taken() -> None:
    app = OnePage(PAGES["plan"])
    async with app.run_test(size=(140, 40)) as pilot:
        await rest(pilot)
        picture = shown(app)
        await pilot.press("up", "enter")
        await pilot.pause()
        problem = problem_on(app)
        assert app.left == []
        await pilot.press("down", "down", "enter")
        await pilot.pause()
    assert [word in picture for word in ("yes", "tight", "no", "+56.7 GiB over")] == [True] * 4
    assert problem is not None
    assert "does not fit: +56.7 GiB over" in problem.what
    assert app.left == [Chosen(answers=values.ANSWERS, plan=values.PLANS[1], others=values.PLANS)]


async def test_the_goal_is_planned_for_and_kept_in_the_answers() -> None:
    goals: list[str] = []

    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        goals.append(answers.goal)
        return values.PLANS

    app = OnePage(lambda: plan_page(make_plans=plan))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("g")
        await rest(pilot)
        await pilot.press("enter")
        await pilot.pause()
    assert set(goals) == set(get_args(Goal))
    assert app.left[0].answers.goal == "fastest"


async def test_a_bad_value_is_refused_in_full_until_it_is_gone_and_nothing_goes_on() -> None:
    app = OnePage(PAGES["tune"])
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("0")
        await pilot.pause()
        assert "error: learning_rate = '0': input should be greater than 0" in shown(app)
        await pilot.press("enter")
        await pilot.pause()
        assert problem_on(app) is not None
        assert app.left == []
        await pilot.press("backspace")
        await rest(pilot)
        assert problem_on(app) is None


async def test_a_changed_setting_is_planned_anew_and_only_that_one_is_fixed() -> None:
    planned: list[Answers] = []

    def plan(answers: Answers) -> tuple[Plan, ...]:
        planned.append(answers)
        return (replace(values.PLANS[0], steps=150),)

    app = OnePage(lambda: TunePage(plan, START, RUN.name, values.FACTS))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "2")
        await until(pilot, lambda: re.search(r"steps +225 +150", shown(app)) is not None)
        await pilot.press("enter")
        await pilot.pause()
    assert [answers.settings for answers in planned] == [{"num_train_epochs": 2.0}]
    [chosen] = app.left
    assert chosen.plan.steps == 150
    assert chosen.answers.run_name is None, "a suggested name follows the model"


def planned_with(answers: Answers) -> tuple[Plan, ...]:
    """Plans whose batch follows from the epochs, as the real planner's may."""
    epochs = answers.fixed.get("num_train_epochs", 3.0)
    batch = answers.fixed.get("effective_batch_size", 16 if epochs == 3.0 else 8)
    spec, first = values.PLANS[0].spec, values.PLANS[0]
    training = spec.training.model_copy(
        update={"effective_batch_size": batch, "num_train_epochs": epochs}
    )
    decision = Decision(setting="effective_batch_size", value=batch, reason=f"{batch} for {epochs}")
    spec = spec.model_copy(update={"training": training})
    return (replace(first, spec=spec, decisions=(*first.decisions, decision)),)


@pytest.mark.wide
async def test_fields_show_what_was_planned_anew_until_they_are_typed_in() -> None:
    app = OnePage(lambda: TunePage(planned_with, START, RUN.name, values.FACTS))
    async with app.run_test(size=(140, 40)) as pilot:
        epochs, batch = (
            app.screen.query_one(f"#field-{name} Input", Input)
            for name in ("num-train-epochs", "effective-batch-size")
        )
        assert (batch.value, batch.placeholder) == ("", "16")
        await pilot.press("tab", "1")
        await until(pilot, lambda: batch.placeholder == "8")
        assert (epochs.value, epochs.placeholder) == ("1", "1")
        assert "8 for 1.0" in shown(app)
        await pilot.press("tab", "8")
        await pilot.press("shift+tab", "ctrl+u")
        await until(pilot, lambda: epochs.placeholder == "3")
        assert (epochs.value, batch.value, batch.placeholder) == ("", "8", "8")
        assert "changed  effective_batch_size 16 → 8" in shown(app)
        await pilot.press("enter")
        await pilot.pause()
    assert app.left[0].answers.settings == {"effective_batch_size": 8}


async def test_typing_the_planned_value_fixes_it() -> None:
    app = OnePage(lambda: TunePage(planned_with, START, RUN.name, values.FACTS))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "tab", *"16", "enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].answers.settings == {"effective_batch_size": 16}


async def test_typing_replaces_a_name_that_was_filled_in_and_end_goes_on_where_it_ends() -> None:
    read: list[str] = []

    def read_model(name: str) -> Model:
        read.append(name)
        return values.MODEL

    app = OnePage(
        lambda: model(verbs=World().model_verbs(read=read_model), name="org/model", model=None)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("end", "-", "2", "enter")
        await rest(pilot)
        assert read[-1] == "org/model-2"
    page = model(verbs=World().model_verbs(read=read_model), name="org/model", model=None)
    app = OnePage(lambda: page)
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"a/b", "enter")
        await rest(pilot)
    assert read[-1] == "a/b"


@pytest.mark.parametrize(("page", "key"), [("model", "f1"), ("data", "?"), ("plan", "?")])
async def test_the_footer_names_the_help_key_that_works_there(page: str, key: str) -> None:
    app = OnePage(PAGES[page])
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        footer = shown(app).split("\n")[-1].lower()
        await pilot.press("f1")
        await until(pilot, lambda: isinstance(app.screen, Help))
    assert f" {key} help" in footer


async def test_enter_right_after_a_change_waits_for_the_new_plan() -> None:
    app = OnePage(lambda: TunePage(lambda answers: values.PLANS, START, RUN.name, values.FACTS))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "4", "enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].answers.settings == {"num_train_epochs": 4.0}


async def test_settings_that_contradict_each_other_are_told_and_stop_the_page() -> None:
    def plan(answers: Answers) -> tuple[Plan, ...]:
        raise ProblemError(Problem(what="16 rows cannot be split over 3 devices"))

    app = OnePage(lambda: TunePage(plan, START, RUN.name, values.FACTS))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab", "4", "enter")
        await refusal(pilot)
        assert "16 rows cannot be split over 3 devices" in shown(app)
    assert app.left == []


async def test_review_launches_the_files_it_showed_once() -> None:
    world = World()
    app = OnePage(lambda: review(world))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("f")
        assert 'model = "Qwen/Qwen3-8B"' in shown(app)
        await pilot.press("enter", "enter")
        await until(pilot, lambda: bool(app.left))
    assert world.written == [(values.FILES, RUN.name)]
    assert world.launched == [(RUN, False)]
    assert app.left == [RUN]


async def test_a_launch_that_fails_is_told_and_the_page_stays() -> None:
    def write(files: object, name: str) -> Path:
        raise ProblemError(Problem(what=f"{name} exists", fix="choose another name"))

    app = OnePage(lambda: review(verbs=World().review_verbs(write=write)))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("enter")
        await refusal(pilot)
    assert app.left == []


async def test_help_names_every_key_of_the_page() -> None:
    app = OnePage(PAGES["model"])
    async with app.run_test(size=(80, 40)) as pilot:
        assert isinstance(app.focused, Input)
        await pilot.press("f1")
        await pilot.pause()
        help_text = shown(app)
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.focused, Input)
    assert "Accept and go on" in help_text
    assert "Quit; a run goes on" in help_text
    assert help_text.count("What this page is about") == 1


async def test_c_on_the_finish_page_talks_to_the_model_of_a_run_that_finished() -> None:
    app = OnePage(PAGES["finish"])
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "(c does it here)" in shown(app))
        await pilot.press("c")
        problem = await refusal(pilot)
    assert problem.fix == f"type: tunewright chat {RUN.name}", "no test lends its terminal"
    world = World(run=FollowedRun(values.state_after(values.events())))
    verbs = world.verbs()
    app = OnePage(
        lambda: FinishPage(RUN, verbs.follow, verbs.run_details, verbs.chat, verbs.resume)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        assert " c Chat" not in shown(app), "it has no model yet"
