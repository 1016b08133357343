"""Plan: a Spec, a Decision for each choice, estimates and problems."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from engine.ladder import exact_rungs
from engine.spec import Spec
from wizard.problem import Problem

PER_RANK, ON_DISK = "per rank", "on disk"


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
    changes_with: str = ""
    """What would make the planner choose another value; empty where nothing would."""
    source: str = ""
    """Publication a recommended value comes from; empty where it follows from the facts."""


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
    moments: tuple[tuple[str, int], ...] = ()
    """Live tensors at the peak of each moment of a run, in its order; empty when not known."""
    at_least: bool = False
    """`device_bytes` is a lower bound, too much already; the step itself was not simulated."""
    disk_bytes: int = 0
    """What the run writes to disk: checkpoints, the result, and files the weights wait in."""
    disk_budget_bytes: int | None = None

    @property
    def fits(self) -> bool:
        """Whether all budgets hold; an unknown budget does not refuse."""
        return self.over_bytes <= 0

    @property
    def over_bytes(self) -> int:
        """Bytes a rank is over its device's budget, else all over the host's, else the disk's.

        Negative when there is room in all.
        """
        known = [over for over, _ in self._over()]
        return next((over for over in known if over > 0), max(known, default=0))

    @property
    def over_where(self) -> str:
        """Which budget `over_bytes` is about, as in `3.1 GiB over per rank`."""
        return next((where for over, where in self._over() if over > 0), PER_RANK)

    def _over(self) -> Iterator[tuple[int, str]]:
        """(bytes over it, its name) of each budget that is known, in the order they are told."""
        for need_bytes, budget_bytes, where in (
            (self.device_bytes, self.device_budget_bytes, PER_RANK),
            (self.host_bytes, self.host_budget_bytes, "in host memory"),
            (self.disk_bytes, self.disk_budget_bytes, ON_DISK),
        ):
            if budget_bytes is not None:
                yield need_bytes - budget_bytes, where


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
    step_terms: tuple[tuple[str, float], ...] = ()
    """What a step consists of, in seconds; they sum to `step_seconds`."""
    run_seconds: float | None = None
    """Predicted seconds of all steps, with rows of average length; without loading and saving."""
    energy_kwh: float | None = None
    """Of the devices at their power limit for that long; None when a limit is unknown."""
    cost: float | None = None
    """`run_seconds` at the answers' price, in its currency; None without a price."""
    would_fit: tuple[str, ...] = ()
    """What would make a plan fit that does not, each on its own; empty when it fits."""

    @property
    def fits(self) -> bool:
        """Whether it can be launched."""
        return self.memory.fits and not any(p.severity == "error" for p in self.problems)

    @property
    def host_unknown(self) -> bool:
        """Whether it fits only if host memory, which is not known, is large enough."""
        offloads = self.spec.parallel.offload != "none" and self.spec.parallel.device_kind != "cpu"
        on_host = offloads and self.spec.parallel.offload_device == "cpu"
        return on_host and self.memory.host_budget_bytes is None

    @property
    def exact_rungs(self) -> int:
        """Rungs, from the first on, that go on exactly where the run was.

        They keep the optimizer and how the ranks share the work; later ones keep the weights, the
        schedule and the place in the data, and start the optimizer's states anew.
        """
        return exact_rungs(self.spec, self.rungs)

    @property
    def reasons(self) -> dict[str, str]:
        """Setting → reason, for the comments of spec.toml."""
        return {d.setting: d.reason for d in self.decisions}


def speeds_unknown(plans: Iterable[Plan]) -> bool:
    """Whether a plan that fits has no predicted time, so that none can be called the fastest."""
    return any(plan.fits and plan.step_seconds is None for plan in plans)
