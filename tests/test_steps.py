"""Which pages are asked, without a screen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.screens.values import ANSWERS, DATASET, FACTS, MACHINE, MODEL, PLANS
from wizard.answers import Answers
from wizard.steps import ORDER, Chosen, Machine, Step, again, answered, back, begin, steps

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

    for answer in (Machine(facts=MACHINE), MODEL, DATASET, chosen, chosen, run, object(), "quit"):
        asked.append(walk.pending[0])
        walk = answered(walk, walk.pending[0], answer)

    assert tuple(asked) == ORDER
    assert walk.pending == ()
    assert (walk.answers.model, walk.answers.data, walk.run) == (MODEL.name, DATASET.path, run)


def test_going_back_keeps_later_answers_and_asks_the_pages_after_it() -> None:
    walk = begin(None, Answers())
    for step, answer in zip(ORDER, (Machine(facts=MACHINE), MODEL, DATASET), strict=False):
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
