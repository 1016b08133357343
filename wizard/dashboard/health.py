"""RunState → what is wrong with a run: each finding with its evidence and, where known, its cause.

Nothing here reads a clock or a file. Thresholds are proposals; they stand at the top of the
module that uses them.
"""

from __future__ import annotations

from collections.abc import Iterator

from wizard.dashboard.finding import Finding, ranks_text
from wizard.dashboard.health_ranks import (
    clock_skew,
    device_errors,
    hang,
    silent_ranks,
    stragglers,
)
from wizard.dashboard.health_training import (
    clipped,
    loss,
    memory_creep,
    near_out_of_memory,
    prediction_off,
    starved_loader,
    throughput_drop,
)
from wizard.dashboard.predicted import Predicted
from wizard.dashboard.values import RunState

__all__ = ["Finding", "health", "ranks_text", "verdict"]

ORDER = {"error": 0, "warning": 1, "info": 2}


def health(state: RunState, predicted: Predicted, now: float) -> tuple[Finding, ...]:
    """Everything found, the gravest first; `now` is in unix seconds."""
    found = [*_always(state, predicted)]
    if not state.ended:
        found += _while_it_runs(state, now)
    return tuple(sorted(found, key=lambda finding: ORDER[finding.severity]))


def _always(state: RunState, predicted: Predicted) -> Iterator[Finding]:
    yield from failed(state)
    yield from device_errors(state)
    yield from loss(state)
    yield from clipped(state, predicted)
    yield from prediction_off(state, predicted)


def _while_it_runs(state: RunState, now: float) -> Iterator[Finding]:
    yield from hang(state)
    yield from silent_ranks(state, now)
    yield from stragglers(state)
    yield from clock_skew(state, now)
    yield from starved_loader(state)
    yield from near_out_of_memory(state)
    yield from memory_creep(state)
    yield from throughput_drop(state)
    yield from disk_short(state)


def failed(state: RunState) -> Iterator[Finding]:
    """Why the run, or a rank of one that still goes on, ended early."""
    failure = state.failure
    if failure is not None:
        who = "the run" if failure.rank is None else f"rank {failure.rank}"
        yield Finding(
            kind="failed",
            severity="error",
            what=f"{who} failed: {failure.failure}",
            evidence=failure.message or "it left no message",
            ranks=() if failure.rank is None else (failure.rank,),
        )


def disk_short(state: RunState) -> Iterator[Finding]:
    """Whether the next checkpoint fits on the disk."""
    sizes = [saved.bytes for saved in state.saved if saved.bytes]
    if not sizes or state.disk_free_bytes is None:
        return
    needed, free = max(sizes), state.disk_free_bytes
    if free >= 2 * needed:
        return
    gib = 1024**3
    enough = free >= 1.05 * needed
    yield Finding(
        kind="disk_short",
        severity="warning" if enough else "error",
        what="room for one more checkpoint" if enough else "no room for the next checkpoint",
        evidence=f"{free / gib:.1f} GiB free, a checkpoint takes {needed / gib:.1f} GiB",
        fix="free some of the run's disk, or move older checkpoints away",
    )


def verdict(findings: tuple[Finding, ...]) -> str:
    """All of it in a few words."""
    grave = [finding for finding in findings if finding.severity != "info"]
    if not grave:
        return "ok"
    more = f", {len(grave) - 1} more" if len(grave) > 1 else ""
    return f"{'FAIL' if grave[0].severity == 'error' else '(!)'} {grave[0].what}{more}"
