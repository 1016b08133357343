"""What a change of settings does: memory, speed, time and disk, before and now."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from textual.content import Content

from wizard import wording
from wizard.language import joined, mark, said, said_problem
from wizard.problem import Problem
from wizard.widgets.memory import fits, made_of
from wizard.widgets.message import problem_line
from wizard.widgets.plans import eta_seconds, values_of
from wizard.widgets.table import Column, counted, lines

if TYPE_CHECKING:
    from wizard.facts import Facts
    from wizard.plan import Plan

ROOMY = 80
"""Cells from which on the bar is long."""


def effect(
    before: Plan, now: Plan, facts: Facts, width: int, accepted: Collection[str] = ()
) -> Content:
    """The plan as it was taken beside the plan of the settings as they are.

    `accepted` are warnings, as they are told, that the user goes on in spite of.
    """
    bar = 16 if width >= ROOMY else 8
    rows = [
        (
            "memory",
            *_both(before, now, lambda p: wording.gib(p.memory.device_bytes)),
            _room(now, bar),
        ),
        ("speed", *_both(before, now, lambda p: wording.speed(p.tokens_per_second)), _batch(now)),
        ("steps", *_both(before, now, lambda p: wording.count(p.steps)), ""),
        (
            "time",
            *_both(before, now, lambda p: wording.duration(eta_seconds(p))),
            said("predicted"),
        ),
        ("disk", *_both(before, now, lambda p: wording.gib(p.memory.disk_bytes)), _free(facts)),
    ]
    columns = (
        Column(title=""),
        Column(title="before", right=True),
        Column(title="now", right=True),
        Column(title="", flexible=True),
    )
    named = [(said(name), *rest) for name, *rest in rows]
    head, *body = lines(columns, named, max(width, 40))
    changes = joined(_changed(before, now)) or said("nothing")
    changed = Content(wording.one_line(f"{said('changed')}  {changes}"))
    problems = [_told(problem, accepted) for problem in now.problems]
    table = [Content.styled(head, "$foreground-muted"), *map(Content, body)]
    return Content("\n").join([*table, changed, *problems])


def _told(problem: Problem, accepted: Collection[str]) -> Content:
    if problem.severity != "warning" or str(problem) not in accepted:
        return problem_line(problem)
    text = said("accepted") + mark(": ") + said_problem(problem)
    return Content.styled(wording.one_line(text), "$foreground-muted")


def _both(before: Plan, now: Plan, number: Callable[[Plan], str]) -> tuple[str, str]:
    return number(before), number(now)


def _room(plan: Plan, bar: int) -> str:
    memory = plan.memory
    budget = said(f"of {wording.gib(memory.device_budget_bytes)}")
    return " ".join(filter(None, (budget, made_of(memory, bar), fits(plan))))


def _batch(plan: Plan) -> str:
    training = plan.spec.training
    return (
        f"{training.per_device_train_batch_size} per device × "
        f"{training.gradient_accumulation_steps} accumulation × "
        f"{counted(plan.spec.parallel.num_devices, 'device')} = {training.effective_batch_size}"
    )


def _free(facts: Facts) -> str:
    free = facts.host.disk_free_bytes
    return "" if free is None else f"of {wording.gib(free)} free at {facts.host.disk_path}"


def _changed(before: Plan, now: Plan) -> list[str]:
    was, is_ = values_of(before), values_of(now)
    return [
        f"{name} {wording.setting(was[name])} → {wording.setting(is_[name])}"
        for name in is_
        if is_[name] != was[name]
    ]
