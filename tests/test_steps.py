"""Which pages are asked, without a screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.screens.values import ANSWERS, DATASET, FACTS, MACHINE, MODEL, PLANS
from wizard.answers import Answers
from wizard.steps import (
    DONE,
    ORDER,
    Chosen,
    Data,
    Loaded,
    Machine,
    Step,
    Walk,
    again,
    answered,
    back,
    back_to,
    begin,
    keeping,
    loaded,
    steps,
)

DATA = Data(dataset=DATASET)
BEFORE_RUN = tuple(step for step in ORDER if step not in (Step.RUN, Step.FINISH))


def test_a_fresh_walk_asks_all_eight_pages_in_order() -> None:
    assert steps(None, Answers()) == ORDER
    assert [step.number for step in ORDER] == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_was_given_before_is_not_asked_again() -> None:
    walk = begin(FACTS, ANSWERS)

    assert walk.pending[:2] == (Step.HARDWARE, Step.PLAN)


def test_a_page_that_is_done_is_asked_again_when_its_ground_is_missing() -> None:
    pending = steps(MACHINE, Answers(), frozenset(BEFORE_RUN))

    assert pending == (Step.MODEL, Step.DATA, Step.PLAN, Step.TUNE, Step.REVIEW, *ORDER[6:])


def test_every_answer_moves_the_walk_one_page_on() -> None:
    walk = begin(None, Answers())
    chosen = Chosen(answers=ANSWERS, plan=PLANS[0])
    run = Path("/runs/one")
    asked = []

    for answer in (Machine(facts=MACHINE), MODEL, DATA, chosen, chosen, run, object(), "quit"):
        asked.append(walk.pending[0])
        walk = answered(walk, walk.pending[0], answer)

    assert tuple(asked) == ORDER
    assert walk.pending == ()
    assert (walk.answers.model, walk.answers.data, walk.run) == (MODEL.name, DATASET.path, run)


def test_going_back_keeps_later_answers_and_asks_the_pages_after_it() -> None:
    walk = begin(None, Answers())
    for step, answer in zip(ORDER, (Machine(facts=MACHINE), MODEL, DATA), strict=False):
        walk = answered(walk, step, answer)

    earlier = back(walk, Step.PLAN)

    assert earlier.pending[0] is Step.DATA
    assert earlier.answers == walk.answers
    assert back(earlier, Step.DATA).pending[0] is Step.MODEL


def test_nothing_is_before_the_first_page() -> None:
    assert back(begin(None, Answers()), Step.HARDWARE).pending == ORDER


def test_once_there_is_a_run_only_pages_about_it_are_left() -> None:
    assert steps(None, Answers(), run=Path("/runs/one")) == (Step.RUN, Step.FINISH)


def test_probing_again_keeps_model_and_data() -> None:
    walk = answered(begin(FACTS, ANSWERS), Step.HARDWARE, Machine(facts=MACHINE))

    assert walk.facts == FACTS


def test_another_model_than_the_one_read_is_asked_for() -> None:
    assert steps(FACTS, replace(ANSWERS, model="other"), frozenset(BEFORE_RUN))[0] is Step.MODEL


def test_the_picked_plan_is_found_again_after_planning_anew() -> None:
    changed = tuple(replace(plan, steps=7) for plan in reversed(PLANS))

    found = again(PLANS[2], changed)

    assert found is not None
    assert (found.title, found.steps) == (PLANS[2].title, 7)
    assert again(PLANS[2], PLANS[:2]) is None


def walked() -> Walk:
    walk = begin(None, Answers())
    chosen = Chosen(answers=ANSWERS, plan=PLANS[0], others=PLANS)
    for step, answer in zip(
        ORDER, (Machine(facts=MACHINE), MODEL, DATA, chosen, chosen), strict=False
    ):
        walk = answered(walk, step, answer)
    return walk


def test_going_back_marks_what_was_answered_and_nothing_else() -> None:
    earlier = back_to(walked(), Step.MODEL)

    assert set(earlier.marks.values()) == {DONE}
    same = answered(earlier, Step.MODEL, MODEL)
    assert set(same.marks.values()) == {DONE}


def test_another_model_shakes_what_was_chosen_for_the_first() -> None:
    earlier = back_to(walked(), Step.MODEL)

    walk = answered(earlier, Step.MODEL, replace(MODEL, name="other", num_layers=7))

    shaken = {step for step, mark in walk.marks.items() if mark == "!"}
    assert shaken == {Step.PLAN, Step.TUNE}
    assert walk.plan == PLANS[0], "later answers are kept"
    walk = answered(walk, Step.DATA, DATA)
    again_the_same = Chosen(answers=walk.answers, plan=PLANS[0])
    assert "!" not in answered(walk, Step.PLAN, again_the_same).marks.values()
    another = answered(walk, Step.PLAN, Chosen(answers=walk.answers, plan=PLANS[2]))
    assert another.marks[Step.TUNE] == "!"
    assert "!" not in answered(another, Step.TUNE, again_the_same).marks.values()


def test_skipping_a_device_shakes_the_plan_and_keeps_model_and_data() -> None:
    walk = answered(
        back_to(walked(), Step.HARDWARE), Step.HARDWARE, Machine(facts=MACHINE, devices=(0,))
    )

    assert walk.answers.devices == (0,)
    assert walk.marks[Step.PLAN] == "!"
    assert walk.facts == FACTS


def test_settings_chosen_with_the_data_are_the_users() -> None:
    walk = answered(walked(), Step.DATA, Data(dataset=DATASET, settings={"max_length": 512}))

    assert walk.answers.settings == {"max_length": 512}


def test_settings_chosen_for_other_data_are_forgotten_with_it() -> None:
    answers = replace(ANSWERS, settings={"columns": "text=body", "learning_rate": 1e-4})
    walk = Walk(facts=FACTS, answers=answers)
    other = Data(dataset=replace(DATASET, path="/b"), forgotten=frozenset({"columns"}))
    assert answered(walk, Step.DATA, other).answers.settings == {"learning_rate": 1e-4}


def test_going_back_keeps_the_columns_that_were_mapped() -> None:
    walk = begin(replace(FACTS, dataset=None), Answers(model=MODEL.name))
    mapped = Data(dataset=DATASET, settings={"columns": "instruction=question"})

    walk = back(keeping(walk, mapped), Step.DATA)

    assert walk.answers.settings == {"columns": "instruction=question"}
    assert walk.facts is not None
    assert walk.facts.dataset == DATASET
    assert keeping(walk, None) == walk


def test_a_preset_keeps_what_the_page_had_found_out() -> None:
    walk = begin(MACHINE, Answers())
    answers = Answers(model=MODEL.name, preset="short")

    walk = loaded(walk, Step.MODEL, Loaded(answers=answers, so_far=MODEL))

    assert walk.answers == answers
    assert walk.facts is not None
    assert walk.facts.model == MODEL
    assert Step.MODEL in walk.pending, "the page is shown again"
