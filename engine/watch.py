"""Beside a run while it lives: state.json, stop, stale ranks, disk, the one exit code.

Standard library only. It is not the parent of what it watches: it finds processes by pid and
start time, so it outlives the script that started both.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine import processes
from engine.events import EXIT_BAD_SPEC, EXIT_CANNOT_WRITE, EXIT_OK, EXIT_OTHER, exit_code
from engine.record import (
    living_owner,
    notify_end,
    read_json,
    record_end,
    say,
    tell,
    write_json,
    write_state,
)
from engine.stage import HANG_SECONDS, Stage, watch
from engine.theirs import why

WAIT_SECONDS = 0.5


def begin(run: Path, pid: int, *, new: bool = False) -> int:
    """Make a process the run's launcher; prints the number of the next attempt.

    Refuses, with 70, while another launcher or the training it left behind is alive; a `new`
    run, with 64, where an earlier one left checkpoints. A refusal leaves everything as it was.
    """
    with _only_one(run):
        one_of_many = os.environ.get("NNODES", "1") not in ("", "1")
        owner = living_owner(run, elsewhere=not one_of_many)
        if owner is not None:
            say(f"this run is already going ({owner}): tunewright watch {run.resolve()}")
            return EXIT_OTHER
        old = next((run / "checkpoints").glob("checkpoint-*"), None) if new else None
        if old is not None:
            say(f"there is {old.name} already: go on with --resume, or move checkpoints/ away")
            return EXIT_BAD_SPEC
        earlier = _earlier_end(run)
        (run / "stop").unlink(missing_ok=True)
        attempt = 1 + max(_numbers(run / "exit"), default=-1)
        identity = {
            "pid": pid,
            "pgid": os.getpgid(pid),
            "start_time": processes.start_time(pid),
            "boot_id": processes.boot_id(),
            "host": socket.gethostname(),
        }
        write_state(run, {"phase": "starting", "attempt": attempt, "pid": pid, "earlier": earlier})
        # Readers learn from the new attempt that the end of an earlier one is history.
        tell(run, {"attempt": attempt}, "phase", phase="starting", progress=None, detail=None)
        write_json(run / "launch.json", {"schema": 1, **identity, "started": time.time()})
    print(attempt)  # noqa: T201
    return EXIT_OK


def _earlier_end(run: Path) -> dict[str, Any] | None:
    """How the run had ended before, for a start that is refused before its first stage."""
    state = read_json(run / "state.json")
    if state.get("phase") == "starting":
        earlier = state.get("earlier")
        return earlier if isinstance(earlier, dict) else None
    return state if exit_code(state.get("exit_code")) is not None else None


@contextlib.contextmanager
def _only_one(run: Path) -> Iterator[None]:
    """Two launchers started at once decide one after the other."""
    folder = os.open(run, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if re.fullmatch("[0-9]{1,9}", path.name)]


def end(run: Path, code: int, reason: str) -> int:
    """Record how the run ended; run.sh's own reason says more than the last stage's.

    A start that was refused before its first stage changed nothing: the run ended as it had.
    """
    state = read_json(run / "state.json")
    earlier = state.get("earlier")
    if state.get("phase") == "starting" and isinstance(earlier, dict):
        tell(run, state, "warn", text=f"another start was refused: {reason}")
        before = {**earlier, "attempt": state.get("attempt")}
        record_end(run, exit_code(earlier.get("exit_code")) or EXIT_OK, before)
        return EXIT_OK
    record_end(run, code, {**state, "message": reason or state.get("message")})
    notify_end(run)
    return EXIT_OK


def wait_for(other: Path) -> int:
    """Wait until another run has ended, however it did."""
    said = False
    while (owner := living_owner(other)) is not None:
        if not said:
            said = True
            say(f"waiting for {other} to end ({owner})")
        time.sleep(WAIT_SECONDS)
    return EXIT_OK


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="engine.watch", description=__doc__)
    parser.add_argument("--run", type=Path, default=Path())
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("begin", help="write launch.json, print the next attempt")
    first.add_argument("--pid", type=int, required=True)
    first.add_argument("--new", action="store_true", help="refuse where checkpoints are already")
    middle = commands.add_parser(
        "stage", help="watch a process to its end; its code is the stage's"
    )
    middle.add_argument("--phase", required=True)
    middle.add_argument("--pid", type=int, required=True)
    middle.add_argument("--ranks", type=int, default=0)
    middle.add_argument("--first-rank", type=int, default=0)
    middle.add_argument("--attempt", type=int, default=0)
    middle.add_argument("--rung", type=int, default=0)
    middle.add_argument("--hang-seconds", type=float, default=HANG_SECONDS)
    waiting = commands.add_parser("wait", help="wait for another run to end")
    waiting.add_argument("other", type=Path)
    last = commands.add_parser("end", help="write the final state")
    last.add_argument("--code", type=int, required=True)
    last.add_argument("--reason", default="", help="the sentence run.sh itself ended with")
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> int:
    """One of begin, stage, end; the exit code."""
    options = _arguments(given)
    if options.command == "begin":
        try:
            return begin(options.run, options.pid, new=options.new)
        except OSError as error:
            say(f"cannot write in {options.run.resolve()}: {why(error)}")
            return EXIT_CANNOT_WRITE
    if options.command == "end":
        return end(options.run, options.code, options.reason)
    if options.command == "wait":
        return wait_for(options.other)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal does not end the watch
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # nor does `stty tostop` hold it when it speaks
    return watch(
        Stage(
            run=options.run,
            phase=options.phase,
            pid=options.pid,
            ranks=range(options.first_rank, options.first_rank + options.ranks),
            attempt=options.attempt,
            rung=options.rung,
            hang_seconds=options.hang_seconds,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
