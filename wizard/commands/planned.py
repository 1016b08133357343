"""Plans in words, for the commands: in a few lines, all of them, one in full."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wizard.facts import Dataset, Facts
from wizard.glossary import kind_of_rows
from wizard.language import foreign, joined, mark, said, said_problem, said_value
from wizard.wording import (
    NO_SPEED,
    counted,
    duration,
    gib,
    gib_of,
    how_to_know_speeds,
    one_line,
    percent,
    setting,
    wrapped,
)

if TYPE_CHECKING:
    from engine.spec import Spec
    from wizard.plan import Decision, Plan
    from wizard.planner.traced import Traced

WIDTH = 80
"""Columns the text keeps to."""


def in_short(plans: Sequence[Plan], facts: Facts, further: Sequence[str] = ()) -> list[str]:
    """The first plan and why; a line for each other one; what is wrong."""
    first, *others = plans
    why = [line for reason in first.why for line in within(said(reason), "    ", "      ")]
    table = [within(_brief(plan), f"{n:2}. ", "    ") for n, plan in enumerate(others, start=2)]
    unknown = f"speed unknown: {NO_SPEED}; {how_to_know_speeds(facts.machine)}"
    speed = within(said(unknown), "", "  ") if first.step_seconds is None else []
    wrong = [line for text in warnings(first) for line in within(text, "", "  ")]
    more = said(
        "--all adds memory part by part, each setting with its reason, and the pick of other goals"
    )
    return [
        *subject(facts),
        *row(1, first),
        *why,
        *(line for lines in table for line in lines),
        *speed,
        *further,
        *wrong,
        *within(more, "", "  "),
    ]


def _brief(plan: Plan) -> str:
    """A plan in a line: whether it fits, what it needs, how long it takes."""
    memory = plan.memory
    if not plan.fits:
        over = f"{gib(memory.over_bytes)} over {memory.over_where}"
        text = f"no, {over}" if memory.over_bytes > 0 else "no"
    elif plan.host_unknown:
        text = f"{gib(memory.device_bytes)} per rank, if host memory is large enough"
    else:
        text = f"fits, {gib(memory.device_bytes)} per rank"
    if plan.fits and plan.run_seconds is not None:
        text += f", about {duration(plan.run_seconds)}"
    return f"{said(plan.title)}: {said(text)}"


def lines(plans: Sequence[Plan], facts: Facts, further: Sequence[str] = ()) -> list[str]:
    """The plans as text of 80 columns: a table, what goes with it, then the first one in full."""
    table = [line for number, plan in enumerate(plans, start=1) for line in row(number, plan)]
    return [*subject(facts), *table, *further, *detail(plans[0], "Why 1")]


def row(number: int, plan: Plan) -> list[str]:
    """A plan in two lines: what it is, and what it needs or lacks; its time where it is known."""
    found = [foreign(f"{number:2}. {said(plan.title)}"), *within(said(fit(plan)), "    ")]
    takes = spent(plan)
    return [*found, *within(said(takes), "    ")] if plan.fits and takes else found


def spent(plan: Plan) -> str:
    """Time, energy and cost of a run, as far as they are known."""
    if plan.step_seconds is None:
        return ""
    step = duration(plan.step_seconds)
    parts = [f"{step} a step, as measured here"]
    if plan.limited_by:
        parts = [f"{step} a step of the longest rows, most of it {plan.limited_by}"]
    if plan.run_seconds is not None:
        parts.append(f"about {duration(plan.run_seconds)} in all")
    if plan.energy_kwh is not None:
        parts.append(f"{plan.energy_kwh:.3g} kWh")
    if plan.cost is not None:
        parts.append(f"costs about {plan.cost:.2f}")
    return ", ".join(parts)


def within(text: str, indent: str, further: str | None = None) -> list[str]:
    """A text in lines of the width; what in it is ours is said before by who knows which it is."""
    return wrapped(one_line(text), WIDTH, indent, further)


def subject(facts: Facts) -> list[str]:
    """Machine, model and data that are planned for."""
    found = [f"Machine {facts.machine}, not this one"] if facts.machine else []
    if facts.model is not None:
        count = facts.model.parameters
        size = f"{count / 1e6:,.1f} M parameters" if count else "size unknown"
        found.append(f"Model {facts.model.name}: {size} (from {facts.model.source})")
    if facts.dataset is not None:
        dropped, rows = facts.dataset.dropped_rows, rows_of(facts.dataset)
        found.append(
            f"Data {facts.dataset.path}: {rows}, {kind_of_rows(facts.dataset.format)}"
            + (f", {dropped:,} not usable" if dropped else "")
        )
        found.extend(f"  {said_problem(problem)}" for problem in facts.dataset.problems)
    return found


def rows_of(data: Dataset) -> str:
    """Rows of an epoch, and how many there are where those are not the same."""
    there = data.rows_there
    if there == data.rows:
        return counted(data.rows, "row")
    return f"{counted(data.rows, 'row')} in an epoch, of {there:,} there"


def fit(plan: Plan) -> str:
    """Whether it fits, with its memory and batch, or what it lacks."""
    memory = plan.memory
    spec = plan.spec
    need = f"{gib(memory.device_bytes)} of {gib(memory.device_budget_bytes)} per rank"
    unit = "block" if spec.method.stage == "pretrain" else "row"
    batch = (
        f"{spec.training.per_device_train_batch_size} × "
        f"{spec.training.gradient_accumulation_steps} × {spec.parallel.ranks} "
        f"= {counted(spec.training.effective_batch_size, unit)} a step"
        f"{', recomputing' if spec.training.gradient_checkpointing else ''}"
    )
    errors = [str(p) for p in plan.problems if p.severity == "error"]
    if plan.fits and plan.host_unknown:
        host = f"{gib(memory.host_bytes)} of host memory, which is not known here"
        return f"unknown whether it fits: it needs {host}; {need} predicted, {batch}"
    if plan.fits:
        return f"fits, {need} predicted, {batch}"
    if errors and memory.fits:
        return f"no, {errors[0]}"
    least = "at least " if memory.at_least else ""
    ways = f"; would fit: {'; or '.join(plan.would_fit)}" if plan.would_fit else ""
    from wizard.planner.shortfall import while_loading  # loaded by then

    when = while_loading(memory)
    return f"no, {least}{gib(memory.over_bytes)} over {memory.over_where} ({need}){when}{ways}"


def summary(plan: Plan, facts: Facts) -> list[str]:
    """The chosen plan in few lines, for someone who is asked whether to start it."""
    steps = counted(plan.steps, "step") if plan.steps is not None else "steps unknown"
    return [
        *subject(facts),
        f"{plan.title}: {fit(plan)}, {steps}",
        *(f"  {line}" for line in plan.why),
        *warnings(plan),
    ]


def warnings(plan: Plan) -> list[str]:
    """What is wrong with a plan, a line each."""
    return [f"({said(p.severity)}) {said_problem(p)}" for p in plan.problems]


def detail(plan: Plan, title: str = "Why") -> list[str]:
    """Everything about a plan: reasons, time, memory, rungs, settings, warnings."""
    steps = counted(plan.steps, "step") if plan.steps is not None else "steps unknown"
    return [
        f"{title} ({steps})",
        *(line for why in plan.why for line in within(said(why), "  ", "    ")),
        *_time(plan),
        "Predicted memory of one rank",
        *_memory(plan),
        *_ladder(plan),
        "Settings",
        *(line for decision in plan.decisions for line in _decision(decision)),
        *(line for text in warnings(plan) for line in within(text, "", "  ")),
    ]


def _time(plan: Plan) -> list[str]:
    """What a step is spent on, the largest first."""
    if plan.step_seconds is None:
        return within(said(f"Predicted step, unknown: {NO_SPEED}"), "", "  ")
    terms = sorted(plan.step_terms, key=lambda term: -term[1])
    shares = [f"{said(name)} {percent(value, plan.step_seconds)}" for name, value in terms]
    return [f"Predicted step, {duration(plan.step_seconds)}", *within(joined(shares), "  ")]


def _memory(plan: Plan) -> list[str]:
    memory = plan.memory
    host = f"host, all ranks together: {gib_of(memory.host_bytes, memory.host_budget_bytes)}"
    disk = f"disk, with all checkpoints: {gib_of(memory.disk_bytes, memory.disk_budget_bytes)}"
    colon = mark(": ")
    parts = [
        f"{said(part.name)}{colon}{gib(part.bytes)} = {said(part.formula)}" for part in memory.parts
    ]
    left = [f"not in it: {line}" for line in memory.left_out]
    peaks = joined(f"{said(name)} {gib(size)}" for name, size in memory.moments)
    more = [f"tensors at the peak of each moment: {peaks}"] if peaks else []
    lines = [*parts, *map(said, (*more, host, disk, *left))]
    return [wrapped for line in lines for wrapped in within(line, "  ", "    ")]


def _ladder(plan: Plan) -> list[str]:
    """The rungs in a few words each."""
    if not plan.rungs:
        return []
    found = ["If memory runs out after all, in this order"]
    for number, rung in enumerate(plan.rungs, start=1):
        exact = "" if number <= plan.exact_rungs else "; the optimizer's states start anew"
        found += within(f"{number}. {said(_rung(rung) + exact)}", "  ", "     ")
    return found


def _rung(rung: Spec) -> str:
    training, parallel = rung.training, rung.parallel
    again = "recomputing" if training.gradient_checkpointing else "keeping activations"
    moved = "" if parallel.offload == "none" else f", {parallel.offload} offloaded"
    return (
        f"{training.per_device_train_batch_size} × {training.gradient_accumulation_steps}, "
        f"{again}, {parallel.strategy}{moved}, {training.optim}"
    )


def _decision(decision: Decision) -> list[str]:
    """A setting with its reason; then what was not chosen, what would change it, who says so."""
    others, colon = decision.alternatives, mark(": ")
    head = f"{decision.setting} = {setting(decision.value)}{colon}{said(decision.reason)}"
    more = [
        f"{said('not')} {said_value(setting(other.value))}{colon}{said(other.why_not)}"
        for other in others
    ]
    more += [said(f"changes with {decision.changes_with}")] if decision.changes_with else []
    more += [said(f"source: {decision.source}")] if decision.source else []
    return [
        *within(head, "  ", "    "),
        *(w for m in more for w in within(m, "    ", "      ")),
    ]


def trace_lines(plan: Plan, traced: Traced) -> list[str]:
    """The traced step beside the simulated one."""
    from wizard.planner.traced import tensor_bytes, with_trace

    simulated, memory = tensor_bytes(plan.memory), with_trace(plan.memory, traced)
    off = 100 * (simulated / traced.allocated_peak_bytes - 1)
    moments = ", ".join(f"{name} {gib(size)}" for name, size in traced.moments if name)
    verdict = "fits" if memory.fits else f"does not fit: {gib(memory.over_bytes)} over"
    return [
        f"Traced step of 1 (fake tensors on the installed libraries, {traced.seconds:.0f} s)",
        f"  tensors: {gib(traced.allocated_peak_bytes)} at the peak, in {traced.moment}; "
        f"predicted {gib(simulated)} ({off:+.2f} %)",
        f"  peaks: {moments}",
        f"  with allocator and context: {gib(memory.device_bytes)} of "
        f"{gib(memory.device_budget_bytes)} per rank, {verdict}",
    ]
