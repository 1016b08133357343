"""RunState and what it is made of: all that is known of a run, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

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


class Row(NamedTuple):
    """What was known of the whole run when rank 0 logged a step; unknown is None."""

    step: int
    t: float
    """Unix seconds."""
    loss: float | None = None
    """None also for one that is not finite: it cannot be drawn."""
    learning_rate: float | None = None
    grad_norm: float | None = None
    tokens_per_second: float | None = None
    """Of all ranks together."""
    memory_bytes: float | None = None
    """Held by the rank that holds most: on its device, or of its process where there is none."""


class Line(NamedTuple):
    """Sums of one `step` line of a rank; seconds of `steps` steps together."""

    steps: float
    seconds: float
    tokens: float
    own_seconds: float | None = None
    wait_seconds: float | None = None
    data_seconds: float | None = None
    padded_tokens: float | None = None


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
    doing: str | None = None
    """Where in a step it is: data, compute, collective or device."""
    progress: float | None = None
    """Share of the phase that is done, 0 to 1."""
    step: int | None = None
    step_seconds: float | None = None
    own_seconds: float | None = None
    """Work of the rank itself in a step: the figure in which a slow rank shows."""
    wait_seconds: float | None = None
    data_seconds: float | None = None
    step_t: float | None = None
    """Unix seconds, by the rank's own clock, of the line that told its newest step."""
    recent: tuple[Line, ...] = ()
    """The last lines."""
    sampled: tuple[float, ...] = ()
    """Its own work in a step, of the last few in which that was measured, where not in all."""
    memory_allocated_bytes: float | None = None
    memory_reserved_bytes: float | None = None
    memory_peak_bytes: float | None = None
    memory_used_bytes: float | None = None
    """The whole device, whoever uses it."""
    memory_total_bytes: float | None = None
    """What the device has."""
    process_memory_bytes: float | None = None
    process_memory_peak_bytes: float | None = None
    utilization_percent: float | None = None
    sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    power_cap_w: float | None = None
    pcie_link_width: float | None = None
    """Lanes of its link in use."""
    xid: float | None = None
    """Newest error number the driver told of this device; 0 when it told of none."""
    updated: float | None = None
    """Unix seconds of its newest event."""
    exit_code: int | None = None
    failure: Failure | None = None

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens a second over the last steps; None before the first."""
        seconds = sum([line[1] for line in self.recent])
        return sum([line[2] for line in self.recent]) / seconds if seconds > 0 else None

    @property
    def held_bytes(self) -> float | None:
        """Memory it holds now: on its device, or of its process where there is none."""
        if self.memory_allocated_bytes is not None:
            return self.memory_allocated_bytes
        return self.process_memory_bytes

    @property
    def peak_bytes(self) -> float | None:
        """Most memory it has held, of the same kind as `held_bytes`."""
        if self.memory_peak_bytes is not None:
            return self.memory_peak_bytes
        return None if self.memory_allocated_bytes is not None else self.process_memory_peak_bytes


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
    resumed: bool = False
    """Whether the attempt before had ended as a whole, so that somebody started this one."""
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
    history: tuple[Row, ...] = ()
    """The whole run, thinned evenly to at most 1024 rows; first and last are exact."""
    recent: tuple[Row, ...] = ()
    """The last 200 rows, all of them."""
    history_share: float = 1.0
    """Share of the run's events that are in `history`; below 1 while a long run is still read."""
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
    disk_free_bytes: float | None = field(default=None, compare=False)
    """Free on the disk that holds the run; None when nobody looked. No news of the run itself."""
    stride: int = 1
    """Every how many rows one is kept in `history`,"""
    count: int = 0
    """and how many there were."""

    @property
    def losses(self) -> tuple[tuple[int, float], ...]:
        """(step, loss) of `history`, without those that are not finite."""
        return tuple((row.step, row.loss) for row in self.history if row.loss is not None)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens a second of all ranks together; None before the first step."""
        speeds = [rank.tokens_per_second for rank in self.ranks.values()]
        known = [speed for speed in speeds if speed is not None]
        return sum(known) if known else None

    @property
    def padded_per_second(self) -> float | None:
        """Tokens a second of all ranks with their padding, as a plan counts them."""
        lines = [line for rank in self.ranks.values() for line in rank.recent]
        if not lines or any(line.padded_tokens is None for line in lines):
            return None
        seconds = sum(line.seconds for line in lines)
        tokens = sum(line.padded_tokens or 0.0 for line in lines)
        return len(self.ranks) * tokens / seconds if seconds > 0 else None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come from this run unless it is started again."""
        return self.exit_code is not None or self.lost

    @property
    def step_seconds(self) -> float | None:
        """Median seconds of a step over the last ones, from the lowest rank that has any."""
        for _, rank in sorted(self.ranks.items()):
            if rank.recent:
                return median(line.seconds / line.steps for line in rank.recent)
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

    @property
    def first_loss(self) -> float | None:
        """Of all attempts."""
        return self.losses[0][1] if self.losses else None

    @property
    def last_loss(self) -> float | None:
        """Of all attempts; never nan, unlike `loss`."""
        return self.losses[-1][1] if self.losses else None

    def running_seconds(self) -> float | None:
        """Seconds of all attempts up to its newest news, without those in which it stood ended."""
        if self.updated is None or not self.phases:
            return None
        return sum(self.stage_seconds(self.updated).values())
