"""Plan: a Spec, a Decision for each choice, estimates and problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from engine.spec import Spec
from wizard.problem import Problem


@dataclass(frozen=True, kw_only=True, slots=True)
class Alternative:
    """A value that was not chosen, and why."""

    value: Any
    why_not: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """One setting with its reason."""

    setting: str
    value: Any
    reason: str
    origin: Literal["user", "preset", "planner"] = "planner"
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPart:
    """One component of the memory estimate."""

    name: str
    bytes: int
    formula: str
    """The formula with its inputs, as shown by `why`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Predicted peak memory of one rank, and what there is."""

    parts: tuple[MemoryPart, ...]
    """They sum to `device_bytes`."""
    device_bytes: int
    """Predicted peak of the busiest rank on its device (CPU ranks: of the process)."""
    device_budget_bytes: int | None
    """What a rank may use; None when the device's memory is unknown."""
    host_bytes: int
    """Predicted host memory of all ranks together."""
    host_budget_bytes: int | None
    left_out: tuple[str, ...]
    """What the estimate does not contain, in words."""
    moment: str = ""
    """When in a step the peak is, as `backward`; empty when that is not known."""

    @property
    def fits(self) -> bool:
        """Whether both budgets hold; an unknown budget does not refuse."""
        return self.over_bytes <= 0

    @property
    def over_bytes(self) -> int:
        """Bytes a rank is over its device's budget, else all ranks over the host's.

        Negative when there is room in both.
        """
        device = _over(self.device_bytes, self.device_budget_bytes)
        host = _over(self.host_bytes, self.host_budget_bytes)
        if device is None or host is None:
            return device or host or 0
        return device if device > 0 else max(device, host)

    @property
    def over_where(self) -> str:
        """Which budget `over_bytes` is about, as in `3.1 GiB over per rank`."""
        device = _over(self.device_bytes, self.device_budget_bytes)
        return "per rank" if device is not None and device > 0 else "in host memory"


def _over(need_bytes: int, budget_bytes: int | None) -> int | None:
    return None if budget_bytes is None else need_bytes - budget_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """One way to train, ready to be rendered."""

    title: str
    """As the table shows it: `LoRA r16 bf16, DDP on 2 devices`."""
    spec: Spec
    decisions: tuple[Decision, ...]
    memory: Memory
    steps: int | None
    """Optimizer steps of the run; None when the number of rows is unknown."""
    rungs: tuple[Spec, ...] = ()
    """Further specs of the fallback ladder: the same effective batch in less memory."""
    problems: tuple[Problem, ...] = ()
    why: tuple[str, ...] = ()
    """Reasons for and against this plan as a whole."""
    step_seconds: float | None = None
    """Predicted seconds of an optimizer step of the longest rows; None when a rate is unknown."""
    tokens_per_second: float | None = None
    """Predicted for all ranks together, padding included."""
    speed_factor: float = 1.0
    """Measured over predicted speed of earlier runs here, which both of the above hold already."""
    limited_by: str = ""
    """What takes most of a step, as `matrix products` or `communication`; empty when unknown."""

    @property
    def fits(self) -> bool:
        """Whether it can be launched."""
        return self.memory.fits and not any(p.severity == "error" for p in self.problems)

    @property
    def reasons(self) -> dict[str, str]:
        """Setting → reason, for the comments of spec.toml."""
        return {d.setting: d.reason for d in self.decisions}
