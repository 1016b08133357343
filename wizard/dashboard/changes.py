"""What each kind of event changes in a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.events import EXIT_OK, EXIT_STOPPED, exit_code
from wizard.dashboard.draft import KEPT_RECENT, Draft
from wizard.dashboard.fields import (
    Event,
    finite,
    number,
    numbers,
    reading,
    take_numbers,
    text,
    whole,
)
from wizard.dashboard.values import ENDINGS, Evaluation, Failure, Line, Note, Row, Saved

KEPT_ROWS = 1024
KEPT_PHASES = 64
KEPT_SAMPLES = 5

COMM_FAILURES = ("comm_timeout", "comm_failed", "killed")
"""Classes that another rank's end causes: a failure of any other class explains more."""


def _hello(draft: Draft, event: Event, t: float) -> None:
    draft.run["world_size"] = whole(event, "world_size") or draft.run["world_size"]
    rank = draft.rank(event, t)
    if rank is not None:
        rank.update({key: event[key] for key in ("host", "device", "uuid") if text(event, key)})
        rank.update(numbers(event, ("pid", "memory_total_bytes")))
        if name := text(event, "device_name"):
            rank["device"] = name


def _phase(draft: Draft, event: Event, t: float) -> None:
    phase = text(event, "phase")
    if not phase:
        return
    _rank_phase(draft, event, t, phase, None)
    rank = draft.rank(event, t)
    if rank is not None:
        rank["progress"] = number(event, "progress")
        if event["rank"] != 0:
            return
    elif event.get("rank") is not None:
        return
    run = draft.run
    total = whole(event, "total_steps")
    run["total_steps"] = run["total_steps"] if total is None else total
    phases = run["phases"]
    if phases and t < phases[-1][1]:
        _insert_phase(run, phase, t)
        return
    run["phase"] = phase
    run["detail"] = text(event, "detail") or None
    run["progress"] = number(event, "progress")
    if not phases or phases[-1][0] != phase:
        _insert_phase(run, phase, t)


def _rank_phase(draft: Draft, event: Event, t: float, phase: str, seconds: float | None) -> None:
    """What a rank does now, unless something newer is known of it."""
    number = event.get("rank")
    if type(number) is not int:
        return
    known = draft.ranks.get(number)
    old = draft.old_ranks.get(number)
    updated = known["updated"] if known is not None else old.updated if old is not None else None
    if (updated or 0.0) > t:
        return
    rank = draft.rank(event, t)
    if rank is None:
        return
    if seconds is None:
        seconds = rank["phase_seconds"] if rank["phase"] == phase else 0.0
    rank["phase"], rank["phase_seconds"] = phase, seconds


def _insert_phase(run: dict[str, Any], phase: str, t: float) -> None:
    """Adds a change of phase where its time belongs; a full list gives its oldest to the sums."""
    phases = run["phases"]
    at = sum(1 for _, begun in phases if begun <= t)
    phases = (*phases[:at], (phase, t), *phases[at:])
    if len(phases) > KEPT_PHASES:
        (name, begun), (_, end) = phases[0], phases[1]
        if name not in ENDINGS:
            older = run["older_seconds"]
            run["older_seconds"] = {**older, name: older.get(name, 0.0) + end - begun}
        phases = phases[1:]
    run["phases"] = phases


def _step(draft: Draft, event: Event, t: float) -> None:
    step = whole(event, "step")
    if step is not None and step > (draft.run["step"] or -1):
        draft.run["step"] = step
    rank = draft.rank(event, t)
    if rank is None:
        return
    take_numbers(event, _STEP_MEMORY, rank)
    get = numbers(event, _STEP_SUMS).get
    steps, seconds = get("steps") or 1.0, get("seconds")
    if steps > 0:
        own, wait, data = get("own_seconds"), get("wait_seconds"), get("data_seconds")
        sampled = get("sampled_steps")
        measured = sampled or steps
        if own is not None:
            rank["own_seconds"] = own / measured
        if wait is not None:
            rank["wait_seconds"] = wait / measured
        if sampled and own is not None:
            rank["sampled"] = (*rank["sampled"][1 - KEPT_SAMPLES :], own / sampled)
            own = wait = None
        if data is not None:
            rank["data_seconds"] = data / steps
        if seconds is not None:
            rank["step_seconds"] = seconds / steps
            tokens, padded = get("tokens") or 0.0, get("padded_tokens")
            line = Line(steps, seconds, tokens, own, wait, data, padded)
            draft.lines(rank["rank"]).add(line)
    if step is not None and step >= (rank["step"] or 0):
        rank["step"], rank["step_t"] = step, t


def _train(draft: Draft, event: Event, t: float) -> None:
    run = draft.run
    run.update(numbers(event, ("learning_rate", "tokens_seen", "epoch")))
    loss, norm = reading(event, "loss"), reading(event, "grad_norm")
    run["loss"] = run["loss"] if loss is None else loss
    run["grad_norm"] = run["grad_norm"] if norm is None else norm
    step = whole(event, "step")
    if step is None or loss is None:
        return
    speed, memory = _of_all(draft)
    row = Row(step, t, finite(loss), number(event, "learning_rate"), finite(norm), speed, memory)
    _add_row(draft, row)


def _of_all(draft: Draft) -> tuple[float | None, float | None]:
    """Tokens a second once all ranks told theirs, and memory of the one that holds most."""
    speed, memory, unheard = 0.0, None, False
    for rank in draft.numbers():
        lines = draft.lines(rank)
        seconds = sum(lines.seconds)
        if seconds > 0:
            speed += sum(lines.tokens) / seconds
        else:
            unheard = True
        held = draft.memory_bytes(rank)
        if held is not None and (memory is None or held > memory):
            memory = held
    return None if unheard or not speed else speed, memory


def _add_row(draft: Draft, row: Row) -> None:
    """Keeps every `stride`-th row and always the last one."""
    run, rows, recent = draft.run, draft.history, draft.recent
    while recent and recent[-1].step >= row.step:  # resumed from an older checkpoint
        recent.pop()
    recent.append(row)
    if len(recent) > 2 * KEPT_RECENT:
        del recent[:-KEPT_RECENT]
    if rows and rows[-1].step >= row.step:
        while rows and rows[-1].step >= row.step:
            rows.pop()
    elif run["count"] % run["stride"] and len(rows) > 1:
        rows.pop()
    rows.append(row)
    if len(rows) > KEPT_ROWS:
        rows[:] = [*rows[:-1:2], rows[-1]]
        run["stride"] *= 2
    run["count"] += 1


def _pulse(draft: Draft, event: Event, t: float) -> None:
    """A sensor that fell silent is unknown again, not its old value."""
    phase = text(event, "phase")
    if phase:
        _rank_phase(draft, event, t, phase, number(event, "seconds"))
    rank = draft.rank(event, t)
    if rank is not None:
        known = numbers(event, _PULSE)
        rank.update({key: known.get(key) for key in _PULSE if key in event})
        rank["doing"] = text(event, "doing") or None


def _eval(draft: Draft, event: Event, t: float) -> None:
    given = event.get("metrics")
    if isinstance(given, Mapping):
        metrics = {str(k): v for k in given if (v := number(given, k)) is not None}
        draft.keep("evals", Evaluation(t=t, step=whole(event, "step"), metrics=metrics))


def _saved(draft: Draft, event: Event, t: float) -> None:
    found = Saved(
        t=t,
        step=whole(event, "step"),
        path=text(event, "path"),
        bytes=number(event, "bytes"),
        seconds=number(event, "seconds"),
    )
    draft.keep("saved", found)


def _warn(draft: Draft, event: Event, t: float) -> None:
    draft.keep("warnings", Note(t=t, rank=whole(event, "rank"), text=text(event, "text")))


def _failed(draft: Draft, event: Event, t: float) -> None:
    found = Failure(
        failure=text(event, "failure") or "unknown",
        message=text(event, "message"),
        traceback=text(event, "traceback"),
        rank=whole(event, "rank"),
        t=t,
    )
    known = draft.run["failure"]
    if known is None or _explains(found) < _explains(known):
        draft.run["failure"] = found
    rank = draft.rank(event, t)
    if rank is not None:
        rank["failure"], rank["phase"] = found, "failed"


def _explains(failure: Failure) -> tuple[int, float]:
    """Sorts first what no other rank's end explains, then what the watch found, then by time."""
    if failure.failure not in COMM_FAILURES:
        return 0, failure.t
    if failure.rank is None:
        return 1, failure.t
    return (3 if failure.failure == "killed" else 2), failure.t


def _done(draft: Draft, event: Event, t: float) -> None:
    code = exit_code(event.get("exit_code"))
    if event.get("rank") is None:
        draft.run["exit_code"] = code
        return
    rank = draft.rank(event, t)
    if rank is not None:
        rank.update(numbers(event, ("process_memory_peak_bytes", "memory_peak_bytes")))
        rank["exit_code"], rank["phase"] = code, _ending(code)


def _ending(code: int | None) -> str:
    return {EXIT_OK: "done", EXIT_STOPPED: "stopped"}.get(-1 if code is None else code, "failed")


_STEP_MEMORY = (
    "memory_allocated_bytes",
    "memory_reserved_bytes",
    "memory_peak_bytes",
    "process_memory_bytes",
    "process_memory_peak_bytes",
)
_STEP_SUMS = (
    "steps",
    "sampled_steps",
    "seconds",
    "own_seconds",
    "wait_seconds",
    "data_seconds",
    "tokens",
    "padded_tokens",
)
_PULSE = (
    "utilization_percent",
    "sm_clock_mhz",
    "temperature_c",
    "power_w",
    "power_cap_w",
    "memory_used_bytes",
    "process_memory_bytes",
    "pcie_link_width",
    "xid",
)
LASTING = ("warn", "saved", "eval")
"""Kinds that count though their attempt is over."""
CHANGES: Mapping[str, Callable[[Draft, Event, float], None]] = {
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
