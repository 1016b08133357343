"""The record of a run that the watch keeps: launch.json, state.json, launcher.jsonl."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import processes
from engine.events import EXIT_MEANING, EXIT_OK, EXIT_STOPPED, encode
from engine.verdict import class_of

ENDINGS: Mapping[int, str] = {EXIT_OK: "done", EXIT_STOPPED: "stopped"}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a file whole or not at all.

    Raises OSError when the folder cannot be written.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_state(run: Path, state: Mapping[str, Any]) -> None:
    """A full disk must not end the watch: the next write may succeed."""
    base = {
        "schema": 1,
        "phase": None,
        "attempt": 0,
        "rung": 0,
        "exit_code": None,
        "failure": None,
        "message": None,
        "stage_pid": None,
        "stage_start_time": None,
        "pid": None,
        "host": socket.gethostname(),
    }
    with contextlib.suppress(OSError):
        write_json(run / "state.json", {**base, **state, "updated": time.time()})


def tell(run: Path, where: Mapping[str, Any], kind: str, **fields: Any) -> None:
    """Add a line to the launcher's stream."""
    attempt, rung = where.get("attempt") or 0, where.get("rung") or 0
    line = encode(kind, t=time.time(), rank=None, attempt=attempt, rung=rung, **fields)
    path = run / "events" / "launcher.jsonl"
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line)


def record_end(run: Path, code: int, state: Mapping[str, Any]) -> None:
    """Write how the run ended into its state and its stream."""
    failed = code not in ENDINGS
    phase, message = ENDINGS.get(code, "failed"), state.get("message") or EXIT_MEANING.get(code)
    changes: dict[str, Any] = {
        "phase": phase,
        "exit_code": code,
        "failure": (state.get("failure") or class_of(code)) if failed else None,
        "message": message,
        "stage_pid": None,
        "stage_start_time": None,
        "watch_pid": None,
        "watch_start_time": None,
        "processes": {},
        "stale": [],
    }
    write_state(run, {**state, **changes})
    tell(run, state, "phase", phase=phase, progress=None, detail=message)
    tell(run, state, "done", exit_code=code)


def living_owner(run: Path) -> int | None:
    """Pid of the launcher, or of what it left behind, if that still runs on this boot."""
    launch, state = read_json(run / "launch.json"), read_json(run / "state.json")
    if launch.get("boot_id") != processes.boot_id():
        return None
    for pid, started in (
        (launch.get("pid"), launch.get("start_time")),
        (state.get("stage_pid"), state.get("stage_start_time")),
        (state.get("watch_pid"), state.get("watch_start_time")),
    ):
        if isinstance(pid, int) and isinstance(started, int) and processes.is_alive(pid, started):
            return pid
    return None


def launcher_is_gone(run: Path) -> bool:
    """Whether nobody is left to go on after the present stage."""
    launch = read_json(run / "launch.json")
    pid, started = launch.get("pid"), launch.get("start_time")
    return isinstance(pid, int) and not processes.is_alive(pid, started)
