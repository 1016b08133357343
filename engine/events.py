"""Events: what the trainer says, one JSON object per line. Standard library only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_LINE_BYTES = 4096

KINDS = ("hello", "phase", "step", "train", "pulse", "eval", "saved", "warn", "failed", "done")

EXIT_OK = 0
EXIT_BAD_SPEC = 64
EXIT_BAD_DATA = 65
EXIT_NO_DEVICES = 69
EXIT_OTHER = 70
EXIT_GPU_OOM = 71
EXIT_HOST_OOM = 72
EXIT_CANNOT_WRITE = 73
EXIT_NOT_FINITE = 74
EXIT_STOPPED = 75
EXIT_COMM = 76

OWNERS = ("stage", "watch")
"""Who has a pid and a start time in state.json."""
FRESH_SECONDS = 60.0
"""A state.json that is older was missed six times by the watch."""
FIRST_SECOND = 946_684_800
"""2000 in unix seconds: no clock that runs says less,"""
LAST_SECOND = 4_102_444_800
"""and none says 2100."""

EXIT_MEANING: Mapping[int, str] = {
    EXIT_OK: "finished",
    EXIT_BAD_SPEC: "the spec cannot be used",
    EXIT_BAD_DATA: "the data cannot be used",
    EXIT_NO_DEVICES: "the devices the run asks for are missing",
    EXIT_OTHER: "an unexpected error",
    EXIT_GPU_OOM: "out of device memory",
    EXIT_HOST_OOM: "out of host memory",
    EXIT_CANNOT_WRITE: "the disk cannot be written",
    EXIT_NOT_FINITE: "the loss is no longer a finite number",
    EXIT_STOPPED: "stopped on request; it can be resumed",
    EXIT_COMM: "communication failed or a rank was lost",
}

FAILURE_EXIT: Mapping[str, int] = {
    "bad_spec": EXIT_BAD_SPEC,
    "no_devices": EXIT_NO_DEVICES,
    "gpu_oom": EXIT_GPU_OOM,
    "host_oom": EXIT_HOST_OOM,
    "nan": EXIT_NOT_FINITE,
    "comm_timeout": EXIT_COMM,
    "comm_failed": EXIT_COMM,
    "bad_data": EXIT_BAD_DATA,
    "disk_full": EXIT_CANNOT_WRITE,
    "lost_device": EXIT_COMM,
    "user_code": EXIT_OTHER,
    "ddp_graph": EXIT_OTHER,
    "killed": EXIT_COMM,
    "unknown": EXIT_OTHER,
}
"""Failure class → exit code."""


def encode(
    kind: str,
    *,
    t: float,
    rank: int | None,
    attempt: int = 0,
    rung: int = 0,
    step: int | None = None,
    **fields: Any,
) -> str:
    """One line with its newline, at most 4 KiB: texts are shortened, numbers never.

    Numbers that are not finite become their names as text, so that every line is valid JSON.
    """
    event = {
        "t": round(t, 3),
        "kind": kind,
        "rank": rank,
        "attempt": attempt,
        "rung": rung,
        "step": step,
        **fields,
    }
    room = MAX_LINE_BYTES
    while True:
        line = json.dumps(_shorten(event, room), separators=(",", ":"), allow_nan=False) + "\n"
        if len(line) <= MAX_LINE_BYTES or room < 8:
            return line
        room //= 2


def _shorten(value: Any, room: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= room else value[: room // 2] + "…" + value[-room // 2 :]
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(k): _shorten(v, room) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_shorten(v, room) for v in value]
    return value


def decode(line: str | bytes) -> dict[str, Any] | None:
    """The event of one whole line, or None for anything that is not one."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        return None
    return event if unix_seconds(event.get("t")) is not None else None


def unix_seconds(value: object) -> float | None:
    """A time read from a file, if it can be one: a number between 2000 and 2100."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if FIRST_SECOND <= value < LAST_SECOND else None


def exit_code(value: object) -> int | None:
    """An exit code read from a file, if it can be one: a whole number from 0 to 255."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value <= 255 else None


def recorded_processes(
    launch: Mapping[str, Any], state: Mapping[str, Any]
) -> Iterator[tuple[int, int]]:
    """(pid, start time) of everything that launch.json and state.json say a run consists of."""
    recorded = [(launch.get("pid"), launch.get("start_time"))]
    recorded += [(state.get(f"{who}_pid"), state.get(f"{who}_start_time")) for who in OWNERS]
    family = state.get("processes")
    if isinstance(family, dict):
        recorded += [
            (int(pid), at) for pid, at in family.items() if re.fullmatch("[0-9]{1,9}", pid)
        ]
    for pid, started in recorded:
        if isinstance(pid, int) and isinstance(started, int):
            yield pid, started


def beats_elsewhere(
    launch: Mapping[str, Any], state: Mapping[str, Any], *, host: str, now: float
) -> bool:
    """Whether a machine that is not `host` runs a run, for its processes cannot be seen here.

    The watch renews state.json every ten seconds while a stage runs: a fresh one is a sign of
    life. Clocks of two machines may differ a little.
    """
    where, updated = launch.get("host"), unix_seconds(state.get("updated"))
    if not isinstance(where, str) or where == host or updated is None:
        return False
    return exit_code(state.get("exit_code")) is None and abs(now - updated) < FRESH_SECONDS


def split(chunk: bytes) -> tuple[list[bytes], bytes]:
    """(whole lines, unfinished rest) of bytes read from a growing stream."""
    *lines, rest = chunk.split(b"\n")
    return lines, rest


def decode_all(chunk: bytes) -> Iterator[dict[str, Any]]:
    """Every event in whole lines of a chunk; what is not an event is skipped."""
    for line in split(chunk)[0]:
        event = decode(line)
        if event is not None:
            yield event


def printable(text: str) -> str:
    """Text safe inside a one-line comment: everything unprintable becomes an escape."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )
