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
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import processes
from engine.events import (
    EXIT_BAD_SPEC,
    EXIT_CANNOT_WRITE,
    EXIT_COMM,
    EXIT_OK,
    EXIT_OTHER,
    exit_code,
)
from engine.evidence import exit_file, gather
from engine.record import (
    launcher_is_gone,
    living_owner,
    read_json,
    record_end,
    tell,
    write_json,
    write_state,
)
from engine.verdict import Verdict, judge

POLL_SECONDS = 0.2
LOOK_SECONDS = 2.0
HEARTBEAT_SECONDS = 10.0
STOP_GRACE_SECONDS = 10.0
LEFTOVER_GRACE_SECONDS = 5.0
STALE_SECONDS = 60.0
"""Ranks send a pulse every 5 s: twelve missed ones are no accident."""
LOW_DISK_BYTES = 2 * 1024**3


def begin(run: Path, pid: int, *, new: bool = False) -> int:
    """Make a process the run's launcher; prints the number of the next attempt.

    Refuses, with 70, while another launcher or the training it left behind is alive; a `new`
    run, with 64, where an earlier one left checkpoints. A refusal leaves everything as it was.
    """
    with _only_one(run):
        one_of_many = os.environ.get("NNODES", "1") not in ("", "1")
        owner = living_owner(run, elsewhere=not one_of_many)
        if owner is not None:
            _say(f"this run is already going ({owner}): tunewright watch {run.resolve()}")
            return EXIT_OTHER
        old = next((run / "checkpoints").glob("checkpoint-*"), None) if new else None
        if old is not None:
            _say(f"there is {old.name} already: go on with --resume, or move checkpoints/ away")
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
    return EXIT_OK


@dataclass(kw_only=True)
class Stage:
    """One command of the run, watched until it is gone."""

    run: Path
    phase: str
    pid: int
    ranks: range
    """Ranks on this machine; empty for a command that is no training."""
    attempt: int
    rung: int
    started: int | None = None
    oom_kills: int = 0
    began: float = 0.0
    family: dict[int, int] = field(default_factory=dict)
    stop_seen: bool = False
    low_disk_told: bool = False
    heard: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Rank → (bytes of its stream, when they last grew)."""
    stale: tuple[int, ...] = ()
    written: float = 0.0
    verdict: Verdict | None = None


def watch(stage: Stage) -> int:
    """Watch a stage to its end, judge it, and return its one code."""
    stage.started = processes.start_time(stage.pid)
    stage.oom_kills = processes.oom_kills()
    stage.began = time.time()
    _write_stage(stage)
    _tell_stage(stage, "phase", phase="starting" if stage.ranks else stage.phase)
    looked = 0.0
    while processes.is_alive(stage.pid, stage.started):
        _heed_stop(stage)
        if time.monotonic() - looked >= LOOK_SECONDS:
            looked = time.monotonic()
            _look(stage)
        time.sleep(POLL_SECONDS)
    return _finish(stage)


def _heed_stop(stage: Stage) -> None:
    """Ranks see the stop file themselves and save; other commands are ended here."""
    if stage.stop_seen or not (stage.run / "stop").exists():
        return
    stage.stop_seen = True
    _write_stage(stage)
    _tell_stage(stage, "phase", phase="stopping")
    if not stage.ranks:
        processes.end(processes.family(stage.pid), STOP_GRACE_SECONDS)


def _look(stage: Stage) -> None:
    family = processes.family(stage.pid)
    stale = _stale_ranks(stage)
    changed = family != stage.family or stale != stage.stale
    for rank in set(stale) - set(stage.stale):
        _tell_stage(stage, "warn", text=f"rank {rank} has been silent for {STALE_SECONDS:.0f} s")
    stage.family, stage.stale = family, stale
    _warn_of_low_disk(stage)
    if changed or time.monotonic() - stage.written >= HEARTBEAT_SECONDS:
        _write_stage(stage)


def _stale_ranks(stage: Stage) -> tuple[int, ...]:
    """Ranks that spoke in this stage and then fell silent for long."""
    now = time.monotonic()
    stale = []
    for rank in stage.ranks:
        size = _size_bytes(stage.run / "events" / f"rank-{rank:05d}.jsonl")
        known, since = stage.heard.get(rank, (0, now))
        ended = exit_file(stage.run, stage.attempt, rank).exists()
        if size != known:
            stage.heard[rank] = (size, now)
        elif size and not ended and now - since > STALE_SECONDS:
            stale.append(rank)
    return tuple(stale)


def _warn_of_low_disk(stage: Stage) -> None:
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(stage.run).free
        if free < LOW_DISK_BYTES and not stage.low_disk_told:
            stage.low_disk_told = True
            _tell_stage(stage, "warn", text=f"only {free / 1024**3:.1f} GiB left on the run's disk")


def _finish(stage: Stage) -> int:
    """Nothing of the stage stays behind; its verdict is written where the run's state is."""
    processes.end(stage.family, LEFTOVER_GRACE_SECONDS)
    evidence = gather(
        stage.run,
        phase=stage.phase,
        attempt=stage.attempt,
        ranks=stage.ranks,
        began=stage.began,
        oom_kills=processes.oom_kills() - stage.oom_kills,
    )
    stage.verdict = judge(evidence)
    verdict, state = stage.verdict, _write_stage(stage)
    if verdict.failure is not None:
        _tell_failure(stage, verdict)
    if launcher_is_gone(stage.run):
        _record_unfinished(stage, verdict, state)
    return verdict.code


def _record_unfinished(stage: Stage, verdict: Verdict, state: dict[str, Any]) -> None:
    """Nobody is left to go on: only a training that is done has done what the run is for."""
    if verdict.code == EXIT_OK and not stage.ranks:
        text = f"run.sh was ended while {stage.phase}, so nothing was trained"
        verdict = Verdict(code=EXIT_COMM, failure="killed", message=text)
        state = {**state, "failure": verdict.failure, "message": text}
        _tell_failure(stage, verdict)
    record_end(stage.run, verdict.code, state)


def _tell_failure(stage: Stage, verdict: Verdict) -> None:
    """A rank that had a last word wrote its own event; others are spoken for here."""
    rank = verdict.rank
    if rank is not None and exit_file(stage.run, stage.attempt, rank).exists():
        _say(f"rank {rank}: {verdict.message}")
        return
    _say(verdict.message)
    fields = {"failure": verdict.failure, "message": verdict.message, "traceback": ""}
    _tell_stage(stage, "failed", **fields)


def _write_stage(stage: Stage) -> dict[str, Any]:
    stage.written = time.monotonic()
    verdict = stage.verdict
    ended = verdict is not None
    state = {
        "phase": "stopping" if stage.stop_seen else stage.phase,
        "attempt": stage.attempt,
        "rung": stage.rung,
        "failure": verdict.failure if verdict else None,
        "message": verdict.message if verdict else None,
        "failed_rank": verdict.rank if verdict else None,
        "stage_pid": None if ended else stage.pid,
        "stage_start_time": None if ended else stage.started,
        "watch_pid": os.getpid(),
        "watch_start_time": processes.start_time(os.getpid()),
        "processes": {} if ended else {str(pid): t for pid, t in stage.family.items()},
        "stale": list(stage.stale),
        "pid": read_json(stage.run / "launch.json").get("pid"),
    }
    write_state(stage.run, state)
    return state


def _tell_stage(stage: Stage, kind: str, **fields: Any) -> None:
    if kind == "phase":
        fields = {"progress": None, "detail": None, **fields}
    tell(stage.run, {"attempt": stage.attempt, "rung": stage.rung}, kind, **fields)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


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
            _say(f"cannot write in {options.run.resolve()}: {error.strerror}")
            return EXIT_CANNOT_WRITE
    if options.command == "end":
        return end(options.run, options.code, options.reason)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal does not end the watch
    return watch(
        Stage(
            run=options.run,
            phase=options.phase,
            pid=options.pid,
            ranks=range(options.first_rank, options.first_rank + options.ranks),
            attempt=options.attempt,
            rung=options.rung,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
