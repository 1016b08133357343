"""The record of a run that the watch keeps: launch.json, state.json, launcher.jsonl.

Also how every JSON file of a run is written: whole, or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine import processes
from engine.events import (
    EXIT_MEANING,
    EXIT_OK,
    EXIT_STOPPED,
    beats_elsewhere,
    encode,
    recorded_processes,
)
from engine.notify import notify
from engine.verdict import class_of

ENDINGS: Mapping[int, str] = {EXIT_OK: "done", EXIT_STOPPED: "stopped"}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all.

    Raises OSError when the folder cannot be written; what was begun is removed.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(_text(value), encoding="utf-8")
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def _text(value: Mapping[str, Any]) -> str:
    """ASCII: a name that is not valid Unicode can be written too."""
    return json.dumps(value, indent=1) + "\n"


def _rewrite(path: Path, value: Mapping[str, Any]) -> None:
    """Write into the blocks that a file has: a full disk has room for this, for no new file."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        content = _text(value).encode()
        os.ftruncate(descriptor, os.pwrite(descriptor, content, 0))
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
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
    whole = {**base, **state, "updated": time.time()}
    try:
        write_json(run / "state.json", whole)
    except OSError:
        with contextlib.suppress(OSError):
            _rewrite(run / "state.json", whole)


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


def notify_end(run: Path) -> None:
    """Tell the user's own program how the run ended: what is recorded is what is told."""
    state = read_json(run / "state.json")
    phase = str(state.get("phase"))
    event = "finished" if phase == "done" else phase
    notify(run, event, str(state.get("message") or ""), wait=True)


def say(text: str) -> None:
    """A sentence for whoever reads the launcher's log."""
    print(text, file=sys.stderr)  # noqa: T201


def living_owner(run: Path, *, elsewhere: bool = True) -> str | None:
    """Who runs this run, in words: its launcher, what that left behind, or another machine.

    Without `elsewhere` other machines may: this one is a node of their run.
    """
    launch, state = read_json(run / "launch.json"), read_json(run / "state.json")
    if launch.get("boot_id") == processes.boot_id():
        for pid, started in recorded_processes(launch, state):
            if processes.is_alive(pid, started):
                return f"process {pid}"
    if elsewhere and beats_elsewhere(launch, state, host=socket.gethostname(), now=time.time()):
        return f"on {launch['host']}"
    return None


def launcher_is_gone(run: Path) -> bool:
    """Whether nobody is left to go on after the present stage."""
    launch = read_json(run / "launch.json")
    pid, started = launch.get("pid"), launch.get("start_time")
    return isinstance(pid, int) and not processes.is_alive(pid, started)
