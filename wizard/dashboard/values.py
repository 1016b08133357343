"""RunState and what it is made of: all that is known of a run, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

ENDINGS = ("done", "stopped", "failed")
"""Phases in which nothing runs any more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a rank, or the run, ended early."""

    failure: str
    """Class, as in `engine.events.FAILURE_EXIT`."""
    message: str = ""
    traceback: str = ""
    rank: int | None = None
    """None when the launcher found it."""
    t: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A warning somebody gave."""

    t: float
    rank: int | None
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Saved:
    """A checkpoint or the result, written."""

    t: float
    step: int | None
    path: str
    bytes: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Evaluation:
    """Metrics of one evaluation."""

    t: float
    step: int | None
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class RankState:
    """What is known of one rank in the current attempt; unknown is None."""

    rank: int
    host: str | None = None
    pid: int | None = None
    device: str | None = None
    uuid: str | None = None
    phase: str | None = None
    phase_seconds: float | None = None
    """Seconds in this phase when the rank last spoke."""
    progress: float | None = None
    """Share of the phase that is done, 0 to 1."""
    step: int | None = None
    step_seconds: float | None = None
    own_seconds: float | None = None
    """Work of the rank itself in a step: the figure in which a slow rank shows."""
    wait_seconds: float | None = None
    data_seconds: float | None = None
    recent: tuple[tuple[float, float, float], ...] = ()
    """(steps, seconds, tokens) of the last lines."""
    memory_allocated_bytes: float | None = None
    memory_reserved_bytes: float | None = None
    memory_peak_bytes: float | None = None
    memory_used_bytes: float | None = None
    """The whole device, whoever uses it."""
    process_memory_bytes: float | None = None
    process_memory_peak_bytes: float | None = None
    utilization_percent: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    updated: float | None = None
    """Unix seconds of its newest event."""
    exit_code: int | None = None
    failure: Failure | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens a second over the last steps; None before the first."""
        seconds = sum(line[1] for line in self.recent)
        return sum(line[2] for line in self.recent) / seconds if seconds > 0 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RunState:
    """What is known of a run; unknown is None."""

    name: str = ""
    phase: str | None = None
    """The launcher's or rank 0's newest phase."""
    detail: str | None = None
    progress: float | None = None
    """Share of the phase that is done, 0 to 1."""
    attempt: int = 0
    rung: int = 0
    world_size: int | None = None
    step: int | None = None
    total_steps: int | None = None
    epoch: float | None = None
    loss: float | None = None
    """The newest loss; may be nan, unlike those in `losses`."""
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens_seen: float | None = None
    losses: tuple[tuple[int, float], ...] = ()
    """(step, loss), thinned evenly to at most 1024 points; first and last are exact."""
    ranks: Mapping[int, RankState] = field(default_factory=dict)
    stale: tuple[int, ...] = ()
    """Ranks that have not spoken for long, as the watch says."""
    warnings: tuple[Note, ...] = ()
    saved: tuple[Saved, ...] = ()
    evals: tuple[Evaluation, ...] = ()
    failure: Failure | None = None
    exit_code: int | None = None
    """Code of the whole run; None while it runs."""
    lost: bool = False
    """Everything that ran is gone and nobody wrote how it ended."""
    started: float | None = None
    updated: float | None = None
    phases: tuple[tuple[str, float], ...] = ()
    """(phase, unix seconds it began) of the last changes, oldest first."""
    older_seconds: Mapping[str, float] = field(default_factory=dict)
    """Phase → seconds, of the changes that left `phases`."""
    loss_stride: int = 1
    loss_count: int = 0

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens a second of all ranks together; None before the first step."""
        speeds = [rank.tokens_per_second for rank in self.ranks.values()]
        known = [speed for speed in speeds if speed is not None]
        return sum(known) if known else None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come from this run unless it is started again."""
        return self.exit_code is not None or self.lost

    @property
    def step_seconds(self) -> float | None:
        """Median seconds of a step over the last ones, from the lowest rank that has any."""
        for _, rank in sorted(self.ranks.items()):
            if rank.recent:
                return median(seconds / steps for steps, seconds, _ in rank.recent)
        return None

    def eta_seconds(self) -> float | None:
        """Seconds of training left: steps left × recent median step; None while unknown."""
        seconds = self.step_seconds
        if self.total_steps is None or self.step is None or seconds is None:
            return None
        return max(self.total_steps - self.step, 0) * seconds

    def stage_seconds(self, until: float) -> dict[str, float]:
        """Phase → seconds spent in it, the open phase counted up to `until` (unix seconds)."""
        if self.ended and self.updated is not None:
            until = self.updated
        totals = dict(self.older_seconds)
        ends = [*(t for _, t in self.phases[1:]), until]
        for (phase, begun), end in zip(self.phases, ends, strict=False):
            if phase not in ENDINGS:
                totals[phase] = totals.get(phase, 0.0) + max(end - begun, 0.0)
        return totals
