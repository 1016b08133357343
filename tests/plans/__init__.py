"""Golden plans: what the planner says for a machine and a model, as text to review in diffs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from wizard.facts import GIB
from wizard.plan import Plan

FOLDER = Path(__file__).parent


def as_text(plans: Sequence[Plan]) -> str:
    """The table of plans, then every decision of the first."""
    lines = [_row(plan) for plan in plans]
    lines += ["", f"# {plans[0].title}"]
    lines += [f"{d.setting} = {d.value!r}  # {d.reason}" for d in plans[0].decisions]
    lines += ["", "# memory of one rank"]
    lines += [f"{p.bytes / GIB:7.2f} GiB  {p.name}: {p.formula}" for p in plans[0].memory.parts]
    lines += ["", *plans[0].why]
    return "\n".join(lines) + "\n"


def _row(plan: Plan) -> str:
    training = plan.spec.training
    sizes = f"{training.per_device_train_batch_size} × {training.gradient_accumulation_steps}"
    memory = plan.memory
    fits = "fits" if plan.fits else f"{memory.over_bytes / GIB:.1f} GiB over"
    again = "checkpointing" if training.gradient_checkpointing else "no checkpointing"
    return (
        f"{plan.title} | {sizes}, {again} | {memory.device_bytes / GIB:.1f} GiB "
        f"| host {memory.host_bytes / GIB:.1f} GiB | {len(plan.rungs)} rungs | {fits}"
    )
