"""What is looked at before a run starts: one line each, with a remedy where one is needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import tomlkit
from textual.content import Content

from wizard import wording
from wizard.facts import Device, Facts
from wizard.language import joined, said, said_problem, said_value
from wizard.problem import Problem
from wizard.widgets.memory import budget_line
from wizard.widgets.message import COLOURS
from wizard.widgets.plans import speed_line

if TYPE_CHECKING:
    from wizard.plan import Plan

OK, NOT_KNOWN, ACCEPTED = "ok", "?", "ok!"
GOOD = "$text-success"
WORDS = {"error": "no", "warning": "!!", "info": "note"}
BUSY_BYTES = wording.GIB
"""Others may hold this much of a device before it is worth a word."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """What could not be looked at: neither good nor bad."""

    what: str


Found: TypeAlias = "str | Unknown | Problem"
"""How it is, why that is not known, or what is wrong with it."""
Warned: TypeAlias = tuple[str, Problem]


def warnings(plan: Plan, facts: Facts) -> tuple[Warned, ...]:
    """(subject, what is wrong) of each check that warns."""
    found = _found(plan, facts)
    return tuple(
        (subject, one)
        for subject, one in found
        if isinstance(one, Problem) and one.severity == "warning"
    )


def record(accepted: Sequence[Warned]) -> str:
    """The file that says which warnings a run was started in spite of."""
    document = tomlkit.document()
    document.add("schema", tomlkit.item(1))
    table = tomlkit.aot()
    for subject, problem in accepted:
        values = {"subject": subject, "what": problem.what, "fix": problem.fix}
        table.append(tomlkit.item(values))
    document.add("warning", table)
    return tomlkit.dumps(document)


def checks(
    plan: Plan, facts: Facts, *, short: bool = False, accepted: Sequence[Warned] = ()
) -> Content:
    """Every check of a run on a line of its own; where there is little room, the good ones on one.

    Memory and time are always told.
    """
    lines: list[Content] = []
    good: list[str] = []
    for subject, found in _found(plan, facts):
        if isinstance(found, Problem) and (subject, found) in accepted:
            lines.append(_line(ACCEPTED, "$foreground-muted", subject, found))
        elif isinstance(found, Problem):
            lines.append(_line(WORDS[found.severity], COLOURS[found.severity], subject, found))
        elif isinstance(found, Unknown):
            lines.append(_line(NOT_KNOWN, COLOURS["warning"], subject, found.what))
        elif short and subject not in ("memory", "time"):
            good.append(subject)
        else:
            lines.append(_line(OK, GOOD, subject, found))
    if good:
        lines.append(_line(OK, GOOD, joined(map(said, good)), ""))
    return Content("\n").join(lines)


def _line(word: str, style: str, subject: str, told: str | Problem) -> Content:
    line = said_problem(told) if isinstance(told, Problem) else said(told)
    text = f" {wording.padded(said(subject), 8)} {wording.one_line(line)}".rstrip()
    mark = said_value(word)
    free = max(4 - wording.cells(mark), 0)
    return Content.assemble((f"[{' ' * (free // 2)}{mark}{' ' * (free - free // 2)}]", style), text)


def _found(plan: Plan, facts: Facts) -> Iterator[tuple[str, Found]]:
    """(subject, what was found)."""
    if facts.machine:
        what, fix = f"planned for {facts.machine}", "Enter writes it; nothing is started here"
        yield "machine", Problem(what=what, fix=fix, severity="info")
    yield "plan", plan.title
    memory, time = budget_line(plan), f"{speed_line(plan)}, {wording.count(plan.steps)} steps"
    yield "memory", memory if plan.memory.device_budget_bytes is not None else Unknown(memory)
    yield "time", time if None not in (plan.tokens_per_second, plan.steps) else Unknown(time)
    yield "disk", _disk(plan, facts)
    yield "model", _model(facts)
    yield from _data(facts)
    yield from (("devices", found) for found in _others(plan, facts))
    if facts.host.surroundings.ends_detached_runs and not facts.machine:
        around = facts.host.surroundings
        what = f"{around.ends_detached_runs} ends a run when you leave"
        yield "leaving", Problem(what=what, fix=around.ends_detached_fix, severity="warning")
    yield from (("plan", problem) for problem in plan.problems)


def _disk(plan: Plan, facts: Facts) -> Found:
    needed, model = plan.memory.disk_bytes, facts.model
    fetched = model is not None and model.path is None
    if fetched and model is not None and model.disk_bytes is None:
        return Unknown(f"{wording.gib(needed)} needed, and the model, whose size is not known")
    if fetched and model is not None:
        needed += model.disk_bytes or 0
    free, where = facts.host.disk_free_bytes, facts.host.disk_path
    if free is None:
        return Unknown(f"{wording.gib(needed)} needed, what is free is not known")
    said = f"{wording.gib(needed)} needed at most, {wording.gib(free)} free at {where}"
    if needed <= free:
        return said
    fix = "save_total_limit=1 keeps fewer checkpoints; TUNEWRIGHT_HOME names another disk"
    return Problem(what=said, fix=fix, severity="warning")


def _model(facts: Facts) -> Found:
    model = facts.model
    if model is None:
        return Unknown("not known")
    if model.path:
        return f"on this machine: {model.path}"
    size = f", {wording.gib(model.disk_bytes)}" if model.disk_bytes else ""
    return Problem(
        what=f"{model.name} is fetched when the run starts{size}",
        fix="a gated one needs HF_TOKEN in the environment",
        severity="info",
    )


def _data(facts: Facts) -> Iterator[tuple[str, Found]]:
    data = facts.dataset
    if data is None:
        return
    said = f"{wording.counted(data.rows, 'row')} in {data.path}"
    if not data.dropped_rows:
        yield "data", said
        return
    what = f"{said}, {data.dropped_rows:,} dropped"
    yield "data", Problem(what=what, fix="the Data page names them", severity="warning")


def _others(plan: Plan, facts: Facts) -> list[Found]:
    """Devices of the run that others hold memory of, or that do not tell."""
    names = set(plan.spec.parallel.devices)
    used = [d for d in facts.accelerators if not names or {d.uuid, str(d.index)} & names]
    silent = [str(d.index) for d in used if _others_bytes(d) is None]
    found: list[Found] = [_held(d) for d in used if (_others_bytes(d) or 0) > BUSY_BYTES]
    if silent and not facts.machine:
        found.append(Unknown(f"what others hold is not reported by: {', '.join(silent)}"))
    return found


def _others_bytes(device: Device) -> int | None:
    """Bytes that others hold of a device; None where that is not reported."""
    held: Sequence[int] = [p.memory_bytes or 0 for p in device.readings.processes or ()]
    if device.readings.processes is None and device.memory_used_bytes is None:
        return None
    return sum(held) or device.memory_used_bytes or 0


def _held(device: Device) -> Problem:
    by = ", ".join(f"pid {p.pid}" for p in device.readings.processes or ()) or "somebody"
    return Problem(
        what=f"device {device.index}: {by} holds {wording.gib(_others_bytes(device))}",
        fix="wait, or skip it on the Hardware page",
        severity="warning",
    )
