"""One stage of a run, watched from its first moment to the verdict on its end.

Standard library only. Whoever watches is not the parent of what it watches: processes are found
by pid and start time, so the watch outlives the script that started both.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import processes
from engine.causes import kernel_lines, killed_for_memory
from engine.events import EXIT_COMM, EXIT_OK, EXIT_STOPPED, recorded_processes
from engine.evidence import exit_file, gather
from engine.hang import SILENT_SECONDS, Listener
from engine.notify import notify
from engine.progress import Progress
from engine.record import (
    launcher_is_gone,
    notify_end,
    read_json,
    record_end,
    say,
    tell,
    write_state,
)
from engine.verdict import Verdict, judge

POLL_SECONDS = 0.2
LOOK_SECONDS = 2.0
HEARTBEAT_SECONDS = 10.0
STOP_GRACE_SECONDS = 10.0
LEFTOVER_GRACE_SECONDS = 5.0
HANG_SECONDS = 600.0
KERNEL_SLACK_SECONDS = 2.0
"""The kernel's clock and ours differ by less."""
CANNOT_BE_ENDED = (
    "cannot be ended: it waits in the kernel, and what it holds is free again when its driver or "
    "disk answers, or the machine is restarted"
)
EXIT_SECONDS = 120.0
"""Ranks that said their last word and do not exit are ended."""
LOW_DISK_BYTES = 2 * 1024**3


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
    hang_seconds: float = HANG_SECONDS
    """Silence, or time without a step, after which hung ranks are ended; 0 lets them be."""
    started: int | None = None
    oom_kills: int = 0
    began: float = 0.0
    began_monotonic: float = 0.0
    family: dict[int, int] = field(default_factory=dict)
    stop_seen: bool = False
    low_disk_told: bool = False
    ever: set[int] = field(default_factory=set)
    """Every process the stage has had, to know the kernel's word on it."""
    listener: Listener | None = None
    progress: Progress | None = None
    stale: tuple[int, ...] = ()
    stuck: bool = False
    all_said: float | None = None
    """When every rank was seen to have written its exit file."""
    hang: tuple[int | None, str] | None = None
    """(rank, sentence) of the hang for which the ranks were ended."""
    written: float = 0.0
    verdict: Verdict | None = None


def watch(stage: Stage) -> int:
    """Watch a stage to its end, judge it, and return its one code."""
    stage.started = processes.start_time(stage.pid)
    stage.oom_kills = processes.oom_kills()
    stage.began, stage.began_monotonic = time.time(), time.monotonic()
    stage.listener = Listener(stage.run, stage.attempt, stage.ranks)
    stage.progress = Progress(
        stage.run, stage.attempt, trains=0 in stage.ranks, began=stage.began_monotonic
    )
    stage.family = _recorded_family(stage)
    _write_stage(stage)
    _tell_stage(stage, "phase", phase="starting" if stage.ranks else stage.phase)
    looked = 0.0
    while processes.is_alive(stage.pid, stage.started):
        _heed_stop(stage)
        if time.monotonic() - looked >= _pause(stage):
            looked = time.monotonic()
            _look(stage)
        processes.wait(stage.pid, POLL_SECONDS)
    return _finish(stage)


def _pause(stage: Stage) -> float:
    """Seconds between two looks: until its ranks are known, torchrun's end would leave them."""
    return LOOK_SECONDS if len(stage.family) > len(stage.ranks) else POLL_SECONDS


def _recorded_family(stage: Stage) -> dict[int, int]:
    """What an earlier watch of this stage saw: it was killed, and so may its stage be by now."""
    state = read_json(stage.run / "state.json")
    same = state.get("stage_pid") == stage.pid and state.get("attempt") == stage.attempt
    return dict(recorded_processes({}, state)) if same else {}


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
    # Those whose parent is gone stay known: it may have ended while this look began.
    family = {pid: at for pid, at in stage.family.items() if processes.is_alive(pid, at)}
    family |= processes.family(stage.pid)
    stage.ever.update(family)
    stale = _listen(stage)
    if stage.progress is not None:
        stage.progress.look(time.monotonic())
    changed = family != stage.family or stale != stage.stale
    stage.family, stage.stale = family, stale
    _warn_of_low_disk(stage)
    if changed or time.monotonic() - stage.written >= HEARTBEAT_SECONDS:
        _write_stage(stage)


def _listen(stage: Stage) -> tuple[int, ...]:
    """Ranks that are silent; says so once each, and ends ranks that hang for too long."""
    listener, now = stage.listener, time.monotonic()
    if listener is None:
        return ()
    listener.listen(now)
    stale, stuck = listener.silent(now, SILENT_SECONDS), listener.stuck(now)
    for rank in set(stale) - set(stage.stale):
        _tell_stall(stage, listener.silence(rank, now))
    if stuck and not stage.stuck:
        _tell_stall(stage, listener.standstill(now))
    stage.stuck = stuck
    if stage.hang_seconds and stage.hang is None:
        _end_hang(stage, listener, now)
    _end_the_finished(stage, now)
    return stale


def _end_the_finished(stage: Stage, now: float) -> None:
    """Libraries' threads can keep ranks alive that are done: nothing would ever follow them."""
    files = [exit_file(stage.run, stage.attempt, rank) for rank in stage.ranks]
    if not files or not all(file.exists() for file in files):
        stage.all_said = None
    elif stage.all_said is None:
        stage.all_said = now
    elif now - stage.all_said > EXIT_SECONDS:
        say(f"all ranks ended {EXIT_SECONDS:.0f} s ago and some do not exit: they are ended")
        processes.end(processes.family(stage.pid), LEFTOVER_GRACE_SECONDS)


def _tell_stall(stage: Stage, text: str) -> None:
    _tell_stage(stage, "warn", text=text)
    notify(stage.run, "stalled", text, wait=False)


def _end_hang(stage: Stage, listener: Listener, now: float) -> None:
    """End ranks of which one is silent, or that make no step, for longer than is allowed."""
    silent = listener.silent(now, stage.hang_seconds)
    if silent:
        stage.hang = silent[0], listener.silence(silent[0], now)
    elif listener.stuck(now, stage.hang_seconds):
        stage.hang = listener.culprit(), listener.standstill(now)
    if stage.hang is not None:
        say(f"{stage.hang[1]}: its ranks are ended")
        # Not torchrun's own way: it waits half a minute for ranks that cannot hear it.
        processes.end(processes.family(stage.pid), LEFTOVER_GRACE_SECONDS)


def _warn_of_low_disk(stage: Stage) -> None:
    with contextlib.suppress(OSError):
        free = shutil.disk_usage(stage.run).free
        if free < LOW_DISK_BYTES and not stage.low_disk_told:
            stage.low_disk_told = True
            _tell_stage(stage, "warn", text=f"only {free / 1024**3:.1f} GiB left on the run's disk")


def _finish(stage: Stage) -> int:
    """Nothing of the stage stays behind; its verdict is written where the run's state is."""
    if stage.progress is not None:
        stage.progress.look(time.monotonic())
    orphans = _orphans(stage)
    for pid in processes.end(stage.family, LEFTOVER_GRACE_SECONDS):
        _tell_stage(stage, "warn", text=f"process {pid} {CANNOT_BE_ENDED}")
    kernel = kernel_lines(stage.began_monotonic - KERNEL_SLACK_SECONDS)
    counted = processes.oom_kills() - stage.oom_kills
    evidence = gather(
        stage.run,
        phase=stage.phase,
        attempt=stage.attempt,
        ranks=stage.ranks,
        began=stage.began,
        # Counters of another group than the ranks' say nothing, then the kernel's log does.
        oom_kills=max(counted, int(killed_for_memory(kernel, stage.ever))),
        kernel=kernel,
        hang=stage.hang,
    )
    stage.verdict = judge(evidence)
    if orphans and stage.verdict.code == EXIT_STOPPED and not stage.stop_seen:
        # They stopped because they were ended here; nobody asked for that.
        text = "torchrun was ended from outside; its ranks saved and were ended"
        stage.verdict = Verdict(code=EXIT_COMM, failure="killed", message=text)
    if stage.verdict.failure == "comm_timeout":
        _mark_hang(stage, stage.verdict)
    verdict, state = stage.verdict, _write_stage(stage)
    if verdict.failure is not None:
        _tell_failure(stage, verdict)
    if launcher_is_gone(stage.run):
        _record_unfinished(stage, verdict, state)
    return verdict.code


def _orphans(stage: Stage) -> list[int]:
    """Ranks that torchrun left: it waits for them unless it was killed."""
    if stage.listener is None:
        return []
    # Those that spoke since the last look would not be known for ranks.
    stage.listener.listen(time.monotonic())
    ranks = {rank.pid for rank in stage.listener.heard.values()}
    return [pid for pid, at in stage.family.items() if pid in ranks and processes.is_alive(pid, at)]


def _mark_hang(stage: Stage, verdict: Verdict) -> None:
    """run.sh tells a hang, which --on-hang decides about, from other lost ranks by this file."""
    with contextlib.suppress(OSError):
        (stage.run / "exit" / str(stage.attempt) / "hung").write_text(f"{verdict.message}\n")


def _record_unfinished(stage: Stage, verdict: Verdict, state: dict[str, Any]) -> None:
    """Nobody is left to go on: only a training that is done has done what the run is for."""
    if verdict.code == EXIT_OK and not stage.ranks:
        text = f"run.sh was ended while {stage.phase}, so nothing was trained"
        verdict = Verdict(code=EXIT_COMM, failure="killed", message=text)
        state = {**state, "failure": verdict.failure, "message": text}
        _tell_failure(stage, verdict)
    record_end(stage.run, verdict.code, state)
    notify_end(stage.run)


def _tell_failure(stage: Stage, verdict: Verdict) -> None:
    """A rank that had a last word wrote its own event; others are spoken for here."""
    rank = verdict.rank
    if rank is not None and exit_file(stage.run, stage.attempt, rank).exists():
        say(f"rank {rank}: {verdict.message}")
        return
    say(verdict.message)
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
        "evidence": list(verdict.evidence) if verdict else [],
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
