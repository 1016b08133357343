"""Events → RunState, one event at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from engine.events import EXIT_OK, EXIT_STOPPED, exit_code, unix_seconds
from wizard.dashboard.values import (
    ENDINGS,
    Evaluation,
    Failure,
    Note,
    RankState,
    RunState,
    Saved,
)

__all__ = ["Evaluation", "Failure", "Note", "RankState", "RunState", "Saved", "fold", "with_status"]

Event = Mapping[str, Any]

KEPT_LOSSES = 1024
KEPT_NOTES = 200
KEPT_PHASES = 64
RECENT_STEPS = 20

COMM_FAILURES = ("comm_timeout", "comm_failed", "killed")
"""Classes that another rank's end causes: a failure of any other class explains more."""


def fold(state: RunState, event: Event) -> RunState:
    """The state after one event.

    Ranks may be read in any order; an event of an attempt that is over changes nothing but
    notes. Kinds and fields that are not understood are ignored.
    """
    change = _CHANGES.get(_text(event, "kind"))
    t = unix_seconds(event.get("t"))
    if change is None or t is None:
        return state
    attempt = _whole(event, "attempt") or 0
    if attempt > state.attempt:
        state = _next_attempt(state, attempt, t)
    state = replace(
        state,
        started=t if state.started is None else min(state.started, t),
        updated=t if state.updated is None else max(state.updated, t),
    )
    if attempt < state.attempt and event["kind"] not in _LASTING:
        return state
    return change(replace(state, rung=_newest_rung(state, event)), event, t)


def with_status(state: RunState, status: Mapping[str, Any]) -> RunState:
    """The state with what state.json says: stale ranks, exit code, the failure the watch found."""
    stale = status.get("stale")
    state = replace(state, stale=_ranks_of(stale) if isinstance(stale, list) else ())
    code = exit_code(status.get("exit_code"))
    if code is None:
        return state
    failure = state.failure
    if failure is None and code != 0 and isinstance(status.get("failure"), str):
        failure = Failure(failure=_text(status, "failure"), message=_text(status, "message"))
    phase = _text(status, "phase") or state.phase
    return replace(state, exit_code=code, failure=failure, phase=phase)


def _ranks_of(values: list[Any]) -> tuple[int, ...]:
    return tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))


def _newest_rung(state: RunState, event: Event) -> int:
    return max(state.rung, _whole(event, "rung") or 0)


def _next_attempt(state: RunState, attempt: int, t: float) -> RunState:
    """Ranks start anew; what failed before stays as a warning."""
    warnings = state.warnings
    if state.failure is not None:
        failure = state.failure
        who = "launcher" if failure.rank is None else f"rank {failure.rank}"
        text = f"attempt {state.attempt} ended by {failure.failure} ({who}): {failure.message}"
        warnings = (*warnings, Note(t=t, rank=failure.rank, text=text))[-KEPT_NOTES:]
    return replace(
        state,
        attempt=attempt,
        ranks={},
        stale=(),
        step=None,
        failure=None,
        exit_code=None,
        lost=False,
        warnings=warnings,
    )


def _hello(state: RunState, event: Event, t: float) -> RunState:
    state = replace(state, world_size=_whole(event, "world_size") or state.world_size)
    known = {key: event[key] for key in ("host", "device", "uuid") if _text(event, key)}
    return _change_rank(state, event, t, {**known, **_numbers(event, ("pid",))})


def _phase(state: RunState, event: Event, t: float) -> RunState:
    phase = _text(event, "phase")
    if not phase:
        return state
    state = _rank_phase(state, event, t, phase, None)
    state = _change_rank(state, event, t, {"progress": _number(event, "progress")})
    if event.get("rank") not in (None, 0):
        return state
    total = _whole(event, "total_steps")
    state = replace(state, total_steps=state.total_steps if total is None else total)
    if state.phases and t < state.phases[-1][1]:
        return _insert_phase(state, phase, t)
    state = replace(
        state,
        phase=phase,
        detail=_text(event, "detail") or None,
        progress=_number(event, "progress"),
    )
    if state.phases and state.phases[-1][0] == phase:
        return state
    return _insert_phase(state, phase, t)


def _rank_phase(
    state: RunState, event: Event, t: float, phase: str, seconds: float | None
) -> RunState:
    rank = _rank(state, event)
    if rank is None or (rank.updated or 0.0) > t:
        return state
    if seconds is None:
        seconds = rank.phase_seconds if rank.phase == phase else 0.0
    return _change_rank(state, event, t, {"phase": phase, "phase_seconds": seconds})


def _insert_phase(state: RunState, phase: str, t: float) -> RunState:
    """Adds a change of phase where its time belongs; a full list gives its oldest to the sums."""
    at = sum(1 for _, begun in state.phases if begun <= t)
    phases = (*state.phases[:at], (phase, t), *state.phases[at:])
    older = state.older_seconds
    if len(phases) > KEPT_PHASES:
        (name, begun), (_, end) = phases[0], phases[1]
        if name not in ENDINGS:
            older = {**older, name: older.get(name, 0.0) + end - begun}
        phases = phases[1:]
    return replace(state, phases=phases, older_seconds=older)


def _step(state: RunState, event: Event, t: float) -> RunState:
    step = _whole(event, "step")
    if step is not None:
        state = replace(state, step=max(step, state.step or 0))
    rank = _rank(state, event)
    if rank is None:
        return state
    steps = _number(event, "steps") or 1.0
    changes = _numbers(event, _STEP_MEMORY)
    for key, name in _STEP_SECONDS.items():
        value = _number(event, key)
        if value is not None and steps > 0:
            changes[name] = value / steps
    seconds = _number(event, "seconds")
    if seconds is not None and steps > 0:
        line = (steps, seconds, _number(event, "tokens") or 0.0)
        changes["recent"] = (*rank.recent, line)[-RECENT_STEPS:]
    if step is not None:
        changes["step"] = max(step, rank.step or 0)
    return _change_rank(state, event, t, changes)


def _train(state: RunState, event: Event, t: float) -> RunState:
    changes = _numbers(event, ("learning_rate", "tokens_seen", "epoch"))
    for key in ("loss", "grad_norm"):
        if (value := _reading(event, key)) is not None:
            changes[key] = value
    state = replace(state, **changes)
    step, loss = _whole(event, "step"), changes.get("loss")
    if step is None or loss is None or not math.isfinite(loss):
        return state
    return _add_loss(state, step, loss)


def _add_loss(state: RunState, step: int, loss: float) -> RunState:
    """Keeps every `loss_stride`-th point and always the last one."""
    losses = state.losses
    if losses and losses[-1][0] >= step:  # resumed from an older checkpoint
        losses = tuple(point for point in losses if point[0] < step)
    elif state.loss_count % state.loss_stride and len(losses) > 1:
        losses = losses[:-1]
    losses = (*losses, (step, loss))
    stride = state.loss_stride
    if len(losses) > KEPT_LOSSES:
        losses = (*losses[:-1:2], losses[-1])
        stride *= 2
    return replace(state, losses=losses, loss_stride=stride, loss_count=state.loss_count + 1)


def _pulse(state: RunState, event: Event, t: float) -> RunState:
    phase = _text(event, "phase")
    if phase:
        state = _rank_phase(state, event, t, phase, _number(event, "seconds"))
    return _change_rank(state, event, t, _sensors(event))


def _sensors(event: Event) -> dict[str, Any]:
    """A sensor that fell silent is unknown again, not its old value."""
    return {key: _number(event, key) for key in _PULSE if key in event}


def _eval(state: RunState, event: Event, t: float) -> RunState:
    given = event.get("metrics")
    if not isinstance(given, Mapping):
        return state
    metrics = {str(k): v for k in given if (v := _number(given, k)) is not None}
    found = Evaluation(t=t, step=_whole(event, "step"), metrics=metrics)
    return replace(state, evals=(*state.evals, found)[-KEPT_NOTES:])


def _saved(state: RunState, event: Event, t: float) -> RunState:
    found = Saved(
        t=t,
        step=_whole(event, "step"),
        path=_text(event, "path"),
        bytes=_number(event, "bytes"),
        seconds=_number(event, "seconds"),
    )
    return replace(state, saved=(*state.saved, found)[-KEPT_NOTES:])


def _warn(state: RunState, event: Event, t: float) -> RunState:
    note = Note(t=t, rank=_whole(event, "rank"), text=_text(event, "text"))
    return replace(state, warnings=(*state.warnings, note)[-KEPT_NOTES:])


def _failed(state: RunState, event: Event, t: float) -> RunState:
    found = Failure(
        failure=_text(event, "failure") or "unknown",
        message=_text(event, "message"),
        traceback=_text(event, "traceback"),
        rank=_whole(event, "rank"),
        t=t,
    )
    if state.failure is None or _explains(found) < _explains(state.failure):
        state = replace(state, failure=found)
    return _change_rank(state, event, t, {"failure": found, "phase": "failed"})


def _explains(failure: Failure) -> tuple[int, float]:
    """Sorts first what no other rank's end explains, then what the watch found, then by time."""
    if failure.failure not in COMM_FAILURES:
        return 0, failure.t
    if failure.rank is None:
        return 1, failure.t
    return (3 if failure.failure == "killed" else 2), failure.t


def _done(state: RunState, event: Event, t: float) -> RunState:
    code = exit_code(event.get("exit_code"))
    if event.get("rank") is None:
        return replace(state, exit_code=code)
    changes = _numbers(event, ("process_memory_peak_bytes", "memory_peak_bytes"))
    return _change_rank(state, event, t, {**changes, "exit_code": code, "phase": _ending(code)})


def _ending(code: int | None) -> str:
    return {EXIT_OK: "done", EXIT_STOPPED: "stopped"}.get(-1 if code is None else code, "failed")


def _rank(state: RunState, event: Event) -> RankState | None:
    """The rank an event is about; None for the launcher's."""
    number = _whole(event, "rank")
    if number is None:
        return None
    return state.ranks.get(number) or RankState(rank=number)


def _change_rank(state: RunState, event: Event, t: float, changes: dict[str, Any]) -> RunState:
    rank = _rank(state, event)
    if rank is None:
        return state
    rank = replace(rank, **changes, updated=max(t, rank.updated or t))
    return replace(state, ranks={**state.ranks, rank.rank: rank})


def _number(event: Event, key: Any) -> float | None:
    """A finite number of a size that numbers of a run can have."""
    value = event.get(key)
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2.0**63:
        return value
    return None


def _reading(event: Event, key: str) -> float | None:
    """A number that may be not finite: JSON has no nan, so that comes as its name."""
    value = event.get(key)
    return float(value) if value in ("nan", "inf", "-inf") else _number(event, key)


def _numbers(event: Event, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key in keys if (value := _number(event, key)) is not None}


def _whole(event: Event, key: str) -> int | None:
    value = event.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63:
        return value
    return None


def _text(event: Event, key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


_STEP_SECONDS = {
    "seconds": "step_seconds",
    "own_seconds": "own_seconds",
    "wait_seconds": "wait_seconds",
    "data_seconds": "data_seconds",
}
_STEP_MEMORY = (
    "memory_allocated_bytes",
    "memory_reserved_bytes",
    "memory_peak_bytes",
    "process_memory_bytes",
    "process_memory_peak_bytes",
)
_PULSE = (
    "utilization_percent",
    "sm_clock_mhz",
    "temperature_c",
    "power_w",
    "power_cap_w",
    "memory_used_bytes",
    "process_memory_bytes",
)
_LASTING = ("warn", "saved", "eval")
_CHANGES: Mapping[Any, Callable[[RunState, Event, float], RunState]] = {
    "hello": _hello,
    "phase": _phase,
    "step": _step,
    "train": _train,
    "pulse": _pulse,
    "eval": _eval,
    "saved": _saved,
    "warn": _warn,
    "failed": _failed,
    "done": _done,
}
