"""What other goals and other settings would give, and why a plan is not taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from wizard.answers import Answers, Goal
from wizard.problem import Problem, ProblemError
from wizard.steps import again
from wizard.widgets.memory import margin
from wizard.widgets.plans import Change

if TYPE_CHECKING:
    from wizard.plan import Plan

GOALS: tuple[Goal, ...] = get_args(Goal)


def best_by_goal(
    make_plans: Callable[[Answers], tuple[Plan, ...]],
    answers: Answers,
    made: tuple[Plan, ...],
) -> dict[Goal, str]:
    """Goal → title of its best plan; `made` are the plans of the goal in the answers.

    Empty where none can be named: there is no fastest one where speeds are unknown.
    """
    from wizard.plan import speeds_unknown  # loaded by then

    found: dict[Goal, str] = {}
    for goal in GOALS:
        plans = made if goal == answers.goal else make_plans(replace(answers, goal=goal))
        named = plans and not (goal == "fastest" and speeds_unknown(plans))
        found[goal] = plans[0].title if named else ""
    return found


def changes(
    plan: Plan, make_plans: Callable[[Answers], tuple[Plan, ...]], answers: Answers
) -> Sequence[Change]:
    """The same plan with one thing changed, for the things that move its memory most."""
    training, length = plan.spec.training, plan.spec.data.max_length
    micro = training.per_device_train_batch_size
    batch = training.effective_batch_size
    splits = batch % (2 * micro * plan.spec.parallel.num_devices) == 0
    doubled: dict[str, object] = {
        "per_device_train_batch_size": 2 * micro,
        "effective_batch_size": batch if splits else 2 * batch,
    }
    wanted: tuple[tuple[str, dict[str, object]], ...] = (
        (f"max_length {length:,} → {2 * length:,}", {"max_length": 2 * length}),
        (f"max_length {length:,} → {max(length // 2, 8):,}", {"max_length": max(length // 2, 8)}),
        (f"rows at once {micro} → {2 * micro}", doubled),
        (
            f"checkpointing {'off' if training.gradient_checkpointing else 'on'}",
            {"gradient_checkpointing": not training.gradient_checkpointing},
        ),
    )
    fixed = {
        "per_device_train_batch_size": micro,
        "gradient_checkpointing": training.gradient_checkpointing,
    }
    found = []
    for what, settings in wanted:
        kept = {**fixed, **answers.settings, **settings}
        found.append(_changed(plan, what, make_plans, replace(answers, settings=kept)))
    return found


def _changed(
    plan: Plan,
    what: str,
    make_plans: Callable[[Answers], tuple[Plan, ...]],
    answers: Answers,
) -> Change:
    try:
        made = again(plan, make_plans(answers))
    except ProblemError as error:
        return Change(what=what, plan=None, why_not=str(error.problem))
    return Change(what=what, plan=made, why_not="" if made else "no such plan")


def taken_before(before: Plan, now: Plan | None) -> Problem:
    """Why the plan that was taken is not the marked one."""
    if now is None:
        why = "is no longer possible"
    elif not now.fits:
        why = "no longer fits"
    else:
        why = "was for another machine, model or data"
    fix = "the marked one is the best now"
    return Problem(
        what=f"{before.title}, which you took before, {why}", fix=fix, severity="warning"
    )


def elsewhere(machine: str) -> Problem:
    """Why a plan of another machine is not taken here."""
    return Problem(
        what=f"these are the plans of {machine}, not of this machine",
        fix=f"+ comes back; tunewright --machine '{machine}' walks the wizard for it",
    )


def refusal(plan: Plan) -> Problem:
    """Why a plan that does not fit, or cannot be made, is not taken."""
    errors = [problem for problem in plan.problems if problem.severity == "error"]
    if errors and plan.memory.fits:
        return errors[0]
    return Problem(
        what=f"{plan.title} does not fit: {margin(plan)} of what a rank may use",
        fix="take one that fits, or go back for a smaller model",
    )
