"""Findings about the training as a whole: loss, gradients, memory, data, speed, prediction."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from wizard.dashboard.finding import Finding
from wizard.dashboard.predicted import Predicted
from wizard.dashboard.values import RankState, Row, RunState

SPIKE_SIGMAS, SPIKE_ROWS, NEWEST_ROWS = 6.0, 30, 5
SIGMA_OF_MAD = 1.4826
"""Standard deviation of normal noise as a multiple of its median absolute deviation."""
PLATEAU_ROWS, PLATEAU_SHARE = 200, 0.01
CLIPPED_SHARE, CLIPPED_ROWS = 0.5, 20
STARVED_SHARE, STARVED_LINES = 0.2, 10
FULL_SHARE = 0.95
CREEP_ROWS, CREEP_SHARE = 60, 0.05
DROP_SHARE, DROP_ROWS = 0.8, 60
OFF_SHARE, OFF_STEPS = 0.10, 10
GIB = 1024**3


def loss(state: RunState) -> Iterator[Finding]:
    """A loss that is no number, that jumped, or that no longer falls."""
    if state.loss is not None and not math.isfinite(state.loss):
        last = state.losses[-1] if state.losses else None
        yield Finding(
            kind="loss_nan",
            severity="error",
            what=f"the loss is {state.loss}",
            evidence=f"step {state.step}"
            + (f"; {last[1]:.4f} at step {last[0]} was the last number" if last else ""),
            cause=_why_nan(state),
            fix="a lower learning_rate, or bf16 where fp16 is used, from the last checkpoint",
        )
        return
    rows = [row for row in state.recent if row.loss is not None]
    spiked = list(_spike(rows))
    yield from spiked
    if not spiked:
        yield from _plateau(state, rows)


def _why_nan(state: RunState) -> str:
    norms = [row.grad_norm for row in state.recent[-10:] if row.grad_norm is not None]
    if len(norms) > 3 and norms[-1] > 3 * median(norms[:-1]):
        return f"gradients that grew: their norm was {norms[-1]:.3g} just before"
    return ""


def _spike(rows: Sequence[Row]) -> Iterator[Finding]:
    before, newest = rows[:-NEWEST_ROWS], rows[-NEWEST_ROWS:]
    if len(before) < SPIKE_ROWS:
        return
    losses = [row.loss or 0.0 for row in before]
    usual = median(losses)
    sigma = SIGMA_OF_MAD * median(abs(value - usual) for value in losses)
    worst = max(newest, key=lambda row: row.loss or 0.0)
    above = (worst.loss or 0.0) - usual
    if sigma > 0 and above > SPIKE_SIGMAS * sigma:
        yield Finding(
            kind="loss_spike",
            severity="warning",
            what=f"the loss jumped to {worst.loss:.4f} at step {worst.step}",
            evidence=f"the last {len(before)} had a median of {usual:.4f}; "
            f"this is {above / sigma:.0f} times their usual spread above it",
            cause="an odd batch, or a learning_rate that is too high",
        )


def _plateau(state: RunState, rows: Sequence[Row]) -> Iterator[Finding]:
    history = [loss for _, loss in state.losses]
    if len(rows) < PLATEAU_ROWS or state.count < 2 * PLATEAU_ROWS:
        return
    half = len(rows) // 2
    early = median(row.loss or 0.0 for row in rows[:half])
    late = median(row.loss or 0.0 for row in rows[half:])
    fallen = median(history[:10]) - late
    if fallen > 0 and early - late < PLATEAU_SHARE * fallen:
        yield Finding(
            kind="loss_plateau",
            severity="info",
            what="the loss no longer falls",
            evidence=f"median {early:.4f}, then {late:.4f} over the last {len(rows)} logged steps; "
            f"it has fallen by {fallen:.4f} in all",
        )


def clipped(state: RunState, predicted: Predicted) -> Iterator[Finding]:
    """Gradients that are cut short in most steps."""
    limit = predicted.max_grad_norm
    norms = [row.grad_norm for row in state.recent if row.grad_norm is not None]
    if not limit or len(norms) < CLIPPED_ROWS:
        return
    share = sum(norm > limit for norm in norms) / len(norms)
    if share > CLIPPED_SHARE:
        yield Finding(
            kind="clipped",
            severity="info",
            what=f"gradients are clipped in {100 * share:.0f} % of the steps",
            evidence=f"median norm {median(norms):.3g}, max_grad_norm {limit:g}",
            fix="a lower learning_rate or a larger effective batch, if the loss is not falling",
        )


def starved_loader(state: RunState) -> Iterator[Finding]:
    """Ranks that wait for their rows."""
    shares = {n: s for n, rank in state.ranks.items() if (s := _data_share(rank)) is not None}
    starved = tuple(sorted(n for n, share in shares.items() if share > STARVED_SHARE))
    if not starved:
        return
    worst = max(starved, key=lambda n: shares[n])
    yield Finding(
        kind="starved_loader",
        severity="warning",
        what=f"{100 * shares[worst]:.0f} % of a step goes into waiting for data",
        evidence=f"rank {worst}: {state.ranks[worst].data_seconds or 0.0:.3f} s a step; "
        f"{len(starved)} of {len(shares)} ranks wait for more than {100 * STARVED_SHARE:.0f} %",
        cause="reading and batching rows is slower than training on them",
        fix="a larger dataloader_num_workers",
        ranks=starved,
    )


def _data_share(rank: RankState) -> float | None:
    lines = [line for line in rank.recent if line.data_seconds is not None]
    seconds = sum(line.seconds for line in lines)
    if len(lines) < STARVED_LINES or seconds <= 0:
        return None
    return sum(line.data_seconds or 0.0 for line in lines) / seconds


def near_out_of_memory(state: RunState) -> Iterator[Finding]:
    """Devices with next to nothing left."""
    shares = {n: s for n, rank in state.ranks.items() if (s := _full_share(rank)) is not None}
    full = tuple(sorted(n for n, share in shares.items() if share > FULL_SHARE))
    if not full:
        return
    worst = max(full, key=lambda n: shares[n])
    rank = state.ranks[worst]
    total = rank.memory_total_bytes or 0.0
    used = max(rank.memory_used_bytes or 0.0, rank.memory_reserved_bytes or 0.0)
    foreign = used - (rank.memory_reserved_bytes or used)
    yield Finding(
        kind="near_oom",
        severity="warning",
        what=f"the device of rank {worst} is {100 * shares[worst]:.0f} % full",
        evidence=f"{used / GIB:.1f} of {total / GIB:.1f} GiB; {len(full)} of {len(shares)} devices "
        f"are over {100 * FULL_SHARE:.0f} %",
        cause=f"{foreign / GIB:.1f} GiB of it are not the run's" if foreign > 2 * GIB else "",
        fix="a longer row than any so far may not fit: a smaller per_device_train_batch_size "
        "with more gradient_accumulation_steps",
        ranks=full,
    )


def _full_share(rank: RankState) -> float | None:
    held = [b for b in (rank.memory_used_bytes, rank.memory_reserved_bytes) if b is not None]
    return max(held) / rank.memory_total_bytes if held and rank.memory_total_bytes else None


def memory_creep(state: RunState) -> Iterator[Finding]:
    """Memory that grows step by step: even the least of each third of the last steps rises."""
    rows = [row for row in state.recent if row.memory_bytes is not None]
    if len(rows) < CREEP_ROWS:
        return
    third = len(rows) // 3
    parts = (rows[:third], rows[third : 2 * third], rows[2 * third :])
    least = [min(row.memory_bytes or 0.0 for row in part) for part in parts]
    most = [max(row.memory_bytes or 0.0 for row in part) for part in parts]
    rises = least[0] < least[1] < least[2] and most[0] < most[1] < most[2]
    if not rises or least[2] < (1 + CREEP_SHARE) * least[0]:
        return
    steps = max(rows[-1].step - rows[0].step, 1)
    grown = least[2] - least[0]
    yield Finding(
        kind="memory_creep",
        severity="warning",
        what="memory grows from step to step",
        evidence=f"{least[0] / GIB:.2f} → {least[2] / GIB:.2f} GiB within {steps} steps"
        + _until_full(state, rows[-1].memory_bytes or 0.0, grown / steps),
        cause="something keeps what each step makes: tensors in a list, a cache, a worker",
    )


def _until_full(state: RunState, held: float, bytes_per_step: float) -> str:
    totals = [r.memory_total_bytes for r in state.ranks.values() if r.memory_total_bytes]
    if not totals or bytes_per_step <= 0:
        return ""
    left = max(min(totals) - held, 0.0)
    return f"; full in about {left / bytes_per_step:.0f} steps"


def throughput_drop(state: RunState) -> Iterator[Finding]:
    """Speed that was higher before."""
    speeds = [row.tokens_per_second for row in state.history if row.tokens_per_second]
    newest = [row.tokens_per_second for row in state.recent[-10:] if row.tokens_per_second]
    if len(speeds) < DROP_ROWS or len(newest) < 5:
        return
    usual, now = median(speeds[: -len(speeds) // 3]), median(newest)
    if now < DROP_SHARE * usual:
        yield Finding(
            kind="throughput_drop",
            severity="warning",
            what=f"training is {100 * (1 - now / usual):.0f} % slower than it was",
            evidence=f"{now:,.0f} tokens a second now, {usual:,.0f} before",
            cause=_why_dropped(state),
        )


def _why_dropped(state: RunState) -> str:
    if any(starved_loader(state)):
        return "waiting for data"
    hot = [r.rank for r in state.ranks.values() if (r.temperature_c or 0) >= 85]
    return f"heat: rank {hot[0]} is at 85 °C or more" if hot else ""


def prediction_off(state: RunState, predicted: Predicted) -> Iterator[Finding]:
    """The plan said something else, by more than a tenth."""
    peaks = [rank.peak_bytes for rank in state.ranks.values() if rank.peak_bytes is not None]
    if peaks and predicted.memory_bytes and (state.step or 0) >= OFF_STEPS:
        off = max(peaks) / predicted.memory_bytes - 1
        if abs(off) > OFF_SHARE:
            yield Finding(
                kind="prediction_off",
                severity="warning" if off > 0 else "info",
                what=f"memory is {100 * off:.0f} % over the plan"
                if off > 0
                else f"memory is {-100 * off:.0f} % under the plan",
                evidence=f"peak {max(peaks) / GIB:.2f} GiB, predicted "
                f"{predicted.memory_bytes / GIB:.2f} GiB",
            )
    speed = state.padded_per_second
    if speed and predicted.tokens_per_second and (state.step or 0) >= OFF_STEPS:
        off = speed / predicted.tokens_per_second - 1
        if abs(off) > OFF_SHARE:
            yield Finding(
                kind="prediction_off",
                severity="info",
                what=f"training is {100 * off:.0f} % faster than planned"
                if off > 0
                else f"training is {-100 * off:.0f} % slower than planned",
                evidence=f"{speed:,.0f} tokens a second with padding, predicted "
                f"{predicted.tokens_per_second:,.0f}",
            )
