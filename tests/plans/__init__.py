"""Golden plans: what the planner says for a machine and a model, as text to review in diffs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine.spec import Spec
from wizard.facts import GIB
from wizard.plan import Plan

FOLDER = Path(__file__).parent


def as_text(plans: Sequence[Plan]) -> str:
    """The table of plans, then every decision of the first."""
    lines = [_row(plan) for plan in plans]
    lines += ["", f"# {plans[0].title}"]
    for decision in plans[0].decisions:
        lines += [f"{decision.setting} = {decision.value!r}  # {decision.reason}"]
        lines += [f"    not {other.value!r}: {other.why_not}" for other in decision.alternatives]
        lines += [f"    changes with {decision.changes_with}"] if decision.changes_with else []
        lines += [f"    source: {decision.source}"] if decision.source else []
    lines += ["", "# memory of one rank"]
    lines += [f"{p.bytes / GIB:7.2f} GiB  {p.name}: {p.formula}" for p in plans[0].memory.parts]
    lines += ["", "# rungs", *(_rung(rung) for rung in plans[0].rungs)]
    lines += ["", *plans[0].why]
    return "\n".join(lines) + "\n"


def table(plans: Sequence[Plan], most: int) -> list[str]:
    """The first plans, and the nearest of those that do not fit."""
    fitting = [plan for plan in plans if plan.fits]
    others = [plan for plan in plans if not plan.fits]
    return [_row(plan) for plan in (*fitting[:most], *others[:1])]


def _row(plan: Plan) -> str:
    memory = plan.memory
    least = "at least " if memory.at_least else ""
    over = f"{least}{memory.over_bytes / GIB:.1f} GiB over {memory.over_where}"
    time = "time unknown" if plan.step_seconds is None else f"{plan.step_seconds:.3g} s a step"
    limit = f", {plan.limited_by}" if plan.limited_by else ""
    ways = f": {', or '.join(plan.would_fit)}" if plan.would_fit else ""
    exact = f"{plan.exact_rungs} + {len(plan.rungs) - plan.exact_rungs} rungs"
    return (
        f"{plan.title} | {_sizes(plan.spec)} | {memory.device_bytes / GIB:.1f} GiB "
        f"| host {memory.host_bytes / GIB:.1f} GiB, disk {memory.disk_bytes / GIB:.1f} GiB "
        f"| {time}{limit} | {exact} | {'fits' if plan.fits else over}{ways}"
    )


def _sizes(spec: Spec) -> str:
    training = spec.training
    again = "checkpointing" if training.gradient_checkpointing else "no checkpointing"
    sizes = f"{training.per_device_train_batch_size} × {training.gradient_accumulation_steps}"
    return f"{sizes}, {again}"


def _rung(rung: Spec) -> str:
    parallel = rung.parallel
    moved = "" if parallel.offload == "none" else f", {parallel.offload} offloaded"
    return f"{_sizes(rung)}, {parallel.strategy}{moved}, {rung.training.optim}"
