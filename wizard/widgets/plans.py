"""Plans as tables: all of them, one number by number with its formula, two side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.content import Content

from wizard import wording
from wizard.language import foreign, joined, said, said_value
from wizard.widgets.memory import fit_word, made_of, margin
from wizard.widgets.table import Column, lines
from wizard.wording import cells as cell_len

if TYPE_CHECKING:
    from wizard.facts import Facts
    from wizard.plan import Memory, Plan

NARROW, ROOMY, WIDE = 76, 96, 110
"""From the first width on speed is shown, from the second a bar, from the third more."""
MEANINGS = {
    "fits": "whether predicted memory keeps to the budget; `+` by how many GiB it does not",
    "GiB, budget": "predicted memory of a rank, and what a rank may use",
    "by": "how much is free, or over",
    "tok/s": "tokens per second of all ranks together, predicted, if every row were as long as "
    "max_length; blank where a rate of the device is not known",
    "ETA": "predicted time of all steps, rows of average length, without loading and saving",
    "batch": "rows a rank holds at once × how often it gathers before a step",
    "steps": "optimizer steps of the run",
}


def eta_seconds(plan: Plan) -> float | None:
    """Predicted seconds of all optimizer steps; None where steps or speed are unknown."""
    if plan.run_seconds is not None or plan.steps is None or plan.step_seconds is None:
        return plan.run_seconds
    return plan.steps * plan.step_seconds


def speed_line(plan: Plan) -> str:
    """Speed and time in words, or why there are none."""
    if plan.tokens_per_second is None:
        return f"speed unknown: {wording.NO_SPEED}"
    limit = f", limited by {plan.limited_by}" if plan.limited_by else ""
    energy = f", {plan.energy_kwh:,.1f} kWh" if plan.energy_kwh and plan.energy_kwh >= 0.05 else ""
    cost = f", {plan.cost:,.2f} at your price" if plan.cost is not None else ""
    return (
        f"{wording.speed(plan.tokens_per_second)}, about {wording.duration(eta_seconds(plan))} "
        f"predicted{energy}{cost}{limit}"
    )


def plan_table(
    plans: Sequence[Plan], width: int
) -> tuple[tuple[Column, ...], list[tuple[str, ...]]]:
    """Columns and rows for a screen of this width."""
    wide = width >= WIDE
    shown: list[tuple[Column, Callable[[Plan], str]]] = [
        _title_column(plans, width),
        (Column(title="fits"), fit_word if wide else _fit_and_margin),
        (Column(title="GiB, budget", right=True), _used_of_budget),
    ]
    if width >= ROOMY:
        shown.append((Column(title=""), lambda plan: made_of(plan.memory, 20 if wide else 10)))
    if wide:
        shown.append((Column(title="by", right=True), margin))
        shown.append((Column(title="batch", right=True), _batch))
    if width >= NARROW:
        shown.append((Column(title="tok/s", right=True), _tokens))
    shown.append((Column(title="ETA", right=True), _eta))
    if wide:
        shown.append((Column(title="steps", right=True), lambda plan: wording.cell(plan.steps)))
    rows = [tuple(cell(plan) for _, cell in shown) for plan in plans]
    return tuple(column for column, _ in shown), rows


def _title_column(plans: Sequence[Plan], width: int) -> tuple[Column, Callable[[Plan], str]]:
    """What tells plans apart: where there is little room, without the devices that all share."""
    ends = {plan.title.rpartition(" on ")[2] for plan in plans}
    if width < NARROW and len(ends) == 1:
        return Column(title="plan", flexible=True), lambda plan: plan.title.rpartition(" on ")[0]
    return Column(title="plan", flexible=True, keep_end=True), lambda plan: plan.title


def _used_of_budget(plan: Plan) -> str:
    memory = plan.memory
    return f"{_gib(memory.device_bytes)} / {_gib(memory.device_budget_bytes)}"


def _gib(memory_bytes: int | None) -> str:
    return wording.gib(memory_bytes).removesuffix(" GiB")


def _batch(plan: Plan) -> str:
    training = plan.spec.training
    return f"{training.per_device_train_batch_size}×{training.gradient_accumulation_steps}"


def _fit_and_margin(plan: Plan) -> str:
    over = plan.memory.over_bytes
    return f"{said(fit_word(plan))} +{_gib(over)}" if over > 0 else fit_word(plan)


def _tokens(plan: Plan) -> str:
    return wording.cell(plan.tokens_per_second)


def _eta(plan: Plan) -> str:
    seconds = eta_seconds(plan)
    return "" if seconds is None else wording.duration(seconds)


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One thing done differently, and the plan that comes of it."""

    what: str
    plan: Plan | None
    """None where no such plan can be made."""
    why_not: str = ""


def explanation(plan: Plan, facts: Facts, width: int, changes: Sequence[Change] | None) -> Content:
    """Every number of a plan with its formula and inputs; `changes` is None until they are made."""
    return Content("\n").join(
        [
            Content.styled(wording.one_line(said(plan.title)), "bold"),
            *_memory_explained(plan.memory, width),
            *_time_explained(plan, facts, width),
            *_moved_by(plan, changes, width),
        ]
    )


def _memory_explained(memory: Memory, width: int) -> list[Content]:
    rows = [(part.name, wording.gib(part.bytes), part.formula) for part in memory.parts]
    moment = f", at the peak, which is in {memory.moment}" if memory.moment else ""
    total = ("total", wording.gib(memory.device_bytes), f"the sum{moment}")
    budget = (
        "budget",
        wording.gib(memory.device_budget_bytes),
        "what a rank may use of its device; what others hold and a reserve are left out",
    )
    host = (
        "host",
        wording.gib(memory.host_bytes),
        f"all ranks together, of {wording.gib(memory.host_budget_bytes)} that they may use",
    )
    peaks = joined(f"{said_value(name)} {wording.gib(size)}" for name, size in memory.moments)
    moments = [("moments", "", f"tensors at the peak of each: {foreign(peaks)}")] if peaks else []
    left_out = [Content(wording.one_line(said(f"not in it: {part}"))) for part in memory.left_out]
    return [*_section("Memory of a rank", [*rows, total, *moments, budget, host], width), *left_out]


def _time_explained(plan: Plan, facts: Facts, width: int) -> list[Content]:
    spec, rows = plan.spec, facts.dataset.rows if facts.dataset else None
    training = spec.training
    epochs = wording.setting(training.num_train_epochs)
    steps = (
        f"max_steps = {training.max_steps}"
        if training.max_steps > 0
        else f"{wording.count(rows)} rows / {training.effective_batch_size} a step, "
        f"rounded up, × {epochs} epochs"
    )
    batch = (
        f"{training.per_device_train_batch_size} × {training.gradient_accumulation_steps} × "
        f"{spec.parallel.num_devices}"
    )
    found = [
        (
            "batch",
            wording.count(training.effective_batch_size),
            f"per_device_train_batch_size × gradient_accumulation_steps × num_devices = {batch}",
        ),
        ("steps", wording.count(plan.steps), steps),
        *_speed_explained(plan),
    ]
    return _section("Time", found, width)


def _speed_explained(plan: Plan) -> list[tuple[str, str, str]]:
    if plan.step_seconds is None:
        return [("step", wording.UNKNOWN, wording.NO_SPEED)]
    step, training = wording.duration(plan.step_seconds), plan.spec.training
    limit = f"; {plan.limited_by} takes most of it" if plan.limited_by else ""
    terms = [
        (f"  {name}", wording.percent(seconds, plan.step_seconds), f"{1000 * seconds:,.1f} ms")
        for name, seconds in plan.step_terms
    ]
    tokens = f"{training.effective_batch_size} rows × max_length {plan.spec.data.max_length:,}"
    mean = "" if plan.run_seconds is None else ", with rows of average length"
    eta = f"{wording.count(plan.steps)} steps{mean}; without loading, evaluating and saving"
    energy = [("energy", f"{plan.energy_kwh or 0:,.2f} kWh", "the devices at their power limit")]
    cost = [("cost", f"{plan.cost or 0:,.2f}", "the price of a device's hour × devices × time")]
    return [
        ("step", step, f"of the longest rows: the device's rates against the work{limit}"),
        *terms,
        ("tok/s", wording.cell(plan.tokens_per_second), f"{tokens} / {step}"),
        ("ETA", wording.duration(eta_seconds(plan)), eta),
        *(energy if plan.energy_kwh is not None else []),
        *(cost if plan.cost is not None else []),
    ]


def _moved_by(plan: Plan, changes: Sequence[Change] | None, width: int) -> list[Content]:
    if changes is None:
        return _section("What moves it", [("", "", "planning ...")], width)
    rows = [(change.what, *_moved(plan, change)) for change in changes]
    return _section("What moves it", rows, width)


def _moved(before: Plan, change: Change) -> tuple[str, str]:
    if change.plan is None:
        return "", change.why_not
    now = change.plan
    more = (now.memory.device_bytes - before.memory.device_bytes) / wording.GIB
    fits = "fits" if now.fits else "does not fit"
    speed = f", {wording.speed(now.tokens_per_second)}" if now.tokens_per_second else ""
    return f"{more:+.1f} GiB", f"{fits}{speed}"


def _section(title: str, rows: Sequence[tuple[str, str, str]], width: int) -> list[Content]:
    """Name, number and formula; a long formula goes on below itself."""
    rows = [(_indented(name), said_value(number), said(formula)) for name, number, formula in rows]
    names = max(cell_len(name) for name, _, _ in rows)
    numbers = max(cell_len(number) for _, number, _ in rows)
    room = max(width - names - numbers - 4, 20)
    found = [Content(""), Content.styled(said(title), "$primary")]
    for name, number, formula in rows:
        first, *others = wording.wrapped(wording.one_line(formula), room) or [""]
        head = f"{wording.padded(name, names)}  {wording.padded(number, numbers, right=True)}"
        found.append(Content(f"{head}  {first}"))
        found += [Content(" " * (names + numbers + 4) + other) for other in others]
    return found


def _indented(name: str) -> str:
    """A name said, as far in as it was."""
    return " " * (len(name) - len(name.lstrip())) + said(name.strip())


def comparison(first: Plan, second: Plan, width: int) -> Content:
    """Two plans, number by number, then the settings in which they differ, with their reasons."""
    compared: tuple[tuple[str, Callable[[Plan], str]], ...] = (
        ("fits", lambda plan: f"{fit_word(plan)}, {margin(plan)}"),
        ("memory", lambda plan: wording.gib(plan.memory.device_bytes)),
        *((f"  {name}", partial(_part, name)) for name in _part_names(first, second)),
        ("speed", lambda plan: wording.speed(plan.tokens_per_second)),
        ("ETA", lambda plan: wording.duration(eta_seconds(plan))),
        ("batch", _batch),
    )
    rows = [(name, number(first), number(second)) for name, number in compared]
    settings = _differing(first, second)
    return Content("\n").join(
        [
            *_section_of_two("", (first.title, second.title), rows, width),
            *_section_of_two("Settings that differ", ("", ""), settings, width),
            Content(""),
            *_reasons(first, second, [name for name, *_ in settings]),
        ]
    )


def _part_names(first: Plan, second: Plan) -> list[str]:
    return list(dict.fromkeys(part.name for plan in (first, second) for part in plan.memory.parts))


def _part(name: str, plan: Plan) -> str:
    sizes = [part.bytes for part in plan.memory.parts if part.name == name]
    return wording.gib(sum(sizes)) if sizes else "-"


def _differing(first: Plan, second: Plan) -> list[tuple[str, str, str]]:
    one, other = (values_of(plan) for plan in (first, second))
    return [
        (name, wording.setting(one[name]), wording.setting(other[name]))
        for name in one
        if one[name] != other[name]
    ]


def _reasons(first: Plan, second: Plan, settings: Sequence[str]) -> list[Content]:
    found = []
    for plan in (first, second):
        found.append(Content.styled(wording.one_line(said(plan.title)), "bold"))
        found += [Content(f"  {wording.one_line(said(reason))}") for reason in plan.why]
        found += [
            Content(f"  {name}: {wording.one_line(said(plan.reasons[name]))}")
            for name in settings
            if name in plan.reasons
        ]
    return found


def _section_of_two(
    title: str, heads: tuple[str, str], rows: Sequence[tuple[str, str, str]], width: int
) -> list[Content]:
    wide = Column(title="", flexible=True, keep_end=True)
    told = [(_indented(name), *numbers) for name, *numbers in rows]
    named = [("", *heads), *told] if any(heads) else told
    aligned = lines((Column(title=""), wide, wide), named, max(width, 40))[1:]
    titled = [Content(""), Content.styled(said(title), "$primary")] if title else []
    return [*titled, *map(Content, aligned)]


def values_of(plan: Plan) -> dict[str, Any]:
    """Setting → value over all tables of the spec."""
    tables: list[dict[str, Any]] = [
        table for table in plan.spec.model_dump().values() if isinstance(table, dict)
    ]
    return {name: value for table in tables for name, value in table.items()}
