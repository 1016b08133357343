"""What plan.json says a run will need, as values; anything that is not there is None."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wizard.dashboard.fields import number


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """The numbers of a plan that a run can be held against."""

    title: str = ""
    steps: int | None = None
    memory_bytes: float | None = None
    """Peak of the busiest rank: on its device, or of its process on a CPU."""
    budget_bytes: float | None = None
    """What a rank may use."""
    tokens_per_second: float | None = None
    """Of all ranks together, padding included."""
    step_seconds: float | None = None
    """Of an optimizer step of the longest rows."""
    max_grad_norm: float | None = None
    """Gradients longer than this are clipped; None when nothing is clipped, or unknown."""


def predicted(plan: object) -> Predicted:
    """The numbers in a plan.json that was read; a damaged one says less, never something wrong."""
    if not isinstance(plan, Mapping):
        return Predicted()
    memory = plan.get("memory")
    memory = memory if isinstance(memory, Mapping) else {}
    steps, title = number(plan, "steps"), plan.get("title")
    return Predicted(
        title=title if isinstance(title, str) else "",
        steps=None if steps is None else int(steps),
        memory_bytes=number(memory, "device_bytes"),
        budget_bytes=number(memory, "device_budget_bytes"),
        tokens_per_second=number(plan, "tokens_per_second"),
        step_seconds=number(plan, "step_seconds"),
        max_grad_norm=_decided(plan, "max_grad_norm") or None,
    )


def _decided(plan: Mapping[str, Any], setting: str) -> float | None:
    decisions = plan.get("decisions")
    for decision in decisions if isinstance(decisions, list) else ():
        if isinstance(decision, Mapping) and decision.get("setting") == setting:
            return number(decision, "value")
    return None
