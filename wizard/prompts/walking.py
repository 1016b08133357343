"""The questions one after the other, by the same walk that the pages take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from wizard.answers import Answers
from wizard.problem import ProblemError
from wizard.prompts import basis, planning, starting
from wizard.prompts.starting import Ending
from wizard.prompts.talk import Back, Leave, Talk
from wizard.screens.verbs import Verbs
from wizard.steps import ORDER, Step, Walk, answered, back, begin

if TYPE_CHECKING:
    from wizard.plan import Plan

TITLES = {
    Step.HARDWARE: "Hardware: what this machine can train with.",
    Step.MODEL: "Model: which one is to learn.",
    Step.DATA: "Data: which rows are learnt.",
    Step.PLAN: "Plan: which way to train.",
    Step.TUNE: "Tune: settings to fix, or none.",
    Step.REVIEW: "Review: what will run.",
}


def ask_all(
    verbs: Verbs, talk: Talk, detail: Callable[[Plan], Sequence[str]], given: Answers | None = None
) -> Ending | None:
    """Every question that leads to a run; None when the user left before there was one.

    `detail` gives the lines that explain a plan; with answers `given` a new walk begins at once.
    Answers are kept as they are given.
    Raises ProblemError where the machine cannot be looked at.
    """
    talk.say("? explains a question, b goes back, q leaves and keeps your answers.")
    try:
        begun = begin(None, given) if given not in (None, Answers()) else _begin(verbs, talk)
        return begun if isinstance(begun, Ending) else _walk(begun, verbs, talk, detail)
    except (Back, Leave):
        return None


def _begin(verbs: Verbs, talk: Talk) -> Walk | Ending:
    """A new walk, one that goes on with kept answers, or a run to see."""
    from wizard.screens.start import in_short

    runs, kept = verbs.list_runs(), verbs.kept_answers()
    if not runs and kept is None:
        return begin(None, Answers())
    options = ["a new run"]
    if kept is not None:
        options.append(f"go on with {in_short(kept)}")
    chosen = int(talk.choose([*options, *(f"see {run.line()}" for run in runs)]))
    if chosen == 1:
        return begin(None, Answers())
    if kept is not None and chosen == 2:
        return begin(None, kept)
    return Ending(run=runs[chosen - len(options) - 1].folder, then="watch")


def _walk(
    walk: Walk, verbs: Verbs, talk: Talk, detail: Callable[[Plan], Sequence[str]]
) -> Ending | None:
    while True:
        step = walk.pending[0]
        talk.say(f"Step {step.number} of {len(ORDER)}. {TITLES[step]}")
        try:
            answer = _ask(step, walk, verbs, talk, detail)
        except Back:
            walk = back(walk, step)
            continue
        except ProblemError as error:
            if step is Step.HARDWARE:
                raise
            talk.refuse(error.problem)
            walk = back(walk, step)
            continue
        if isinstance(answer, Ending):
            verbs.keep_answers(None)
            return answer
        walk = answered(walk, step, answer)
        verbs.keep_answers(walk.answers)


def _ask(
    step: Step,
    walk: Walk,
    verbs: Verbs,
    talk: Talk,
    detail: Callable[[Plan], Sequence[str]],
) -> object:
    match step:
        case Step.HARDWARE:
            return basis.hardware(walk, verbs, talk)
        case Step.MODEL:
            return basis.model(walk, verbs, talk)
        case Step.DATA:
            return basis.data(walk, verbs, talk)
        case Step.PLAN:
            return planning.plan(walk, verbs, talk, detail)
        case Step.TUNE:
            return planning.tune(walk, verbs, talk)
    return starting.review(walk, verbs, talk)
