"""Ranks that fell silent, or make no step, told by the growth of their streams.

Standard library only. Times are this machine's monotonic clock: a jump of the wall clock, and
clocks that differ between ranks, change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine import processes
from engine.events import decode_all
from engine.evidence import exit_file

SILENT_SECONDS = 15.0
"""Ranks send a pulse every 5 s: three missed ones are said."""
STUCK_SECONDS = 60.0
"""The least time without a step that is said,"""
STUCK_STEPS = 10
"""and it must be this many times the longest step so far."""
TAIL_BYTES = 64 * 1024
READ_BYTES = 4 * 1024 * 1024

PROCESS_STATES = {
    "T": "its process {pid} is stopped, as SIGSTOP does",
    "t": "its process {pid} is stopped by a debugger",
    "D": "its process {pid} waits for a disk, a network file system or a driver",
    None: "its process {pid} is gone",
}


@dataclass(kw_only=True, slots=True)
class Heard:
    """What is known of one rank in this attempt."""

    inode: int = 0
    offset: int = 0
    spoke: float | None = None
    """When its stream last grew; None before its first word."""
    pid: int | None = None
    phase: str = ""
    doing: str = ""
    """What its newest pulse says it is at within a step."""
    step: int | None = None
    moved: float = 0.0
    """When its step or phase last changed."""
    longest: float = 0.0
    """Seconds of the longest step, as they arrived here."""


class Listener:
    """Listens to the streams of this machine's ranks."""

    def __init__(self, run: Path, attempt: int, ranks: Sequence[int]) -> None:
        self.run = run
        self.attempt = attempt
        self.heard = {rank: Heard() for rank in ranks}

    def listen(self, now: float) -> None:
        """Read what was written since; `now` is in seconds of a monotonic clock."""
        for rank, heard in self.heard.items():
            chunk = read_on(self.run / "events" / f"rank-{rank:05d}.jsonl", heard)
            events = [e for e in decode_all(chunk) if e.get("attempt") == self.attempt]
            if events:
                heard.spoke = now
            for event in events:
                _learn(heard, event, now)

    def silent(self, now: float, seconds: float = SILENT_SECONDS) -> tuple[int, ...]:
        """Ranks that spoke, have not ended, and have been silent for longer."""
        return tuple(
            rank
            for rank, heard in self.heard.items()
            if heard.spoke is not None and now - heard.spoke > seconds and not self._ended(rank)
        )

    def stuck(self, now: float, seconds: float = STUCK_SECONDS) -> bool:
        """Whether every rank trains and speaks, and none has made a step for long."""
        ranks = self.heard.values()
        return bool(ranks) and all(
            heard.phase == "training"
            and now - heard.moved > max(seconds, STUCK_STEPS * heard.longest)
            for heard in ranks
        )

    def silence(self, rank: int, now: float) -> str:
        """A sentence on a silent rank, with the state of its process as evidence."""
        heard = self.heard[rank]
        quiet = now - (now if heard.spoke is None else heard.spoke)
        text = f"rank {rank} has been silent for {quiet:.0f} s"
        if heard.pid is not None:
            words = PROCESS_STATES.get(processes.state_letter(heard.pid), "")
            text += ": " + words.format(pid=heard.pid) if words else ""
        return text + self._waiting(rank)

    def standstill(self, now: float) -> str:
        """A sentence on ranks that speak and make no step: who is where."""
        quiet = now - max(heard.moved for heard in self.heard.values())
        step = max((heard.step or 0 for heard in self.heard.values()), default=0)
        places: dict[str, list[int]] = {}
        for rank, heard in self.heard.items():
            places.setdefault(heard.doing or "unknown", []).append(rank)
        where = "; ".join(f"{_named(ranks)} in {place}" for place, ranks in places.items())
        return f"no step after step {step} for {quiet:.0f} s: {where}"

    def culprit(self) -> int | None:
        """The one rank that does not wait for others while all of them do."""
        own = [rank for rank, heard in self.heard.items() if heard.doing != "collective"]
        return own[0] if len(own) == 1 and len(self.heard) > 1 else None

    def _waiting(self, rank: int) -> str:
        others = [other for other in self.heard if other != rank]
        step = self.heard[rank].step
        if not others:
            return ""
        return f"; it was at step {step or 0}, {_named(others)} can only wait for it"

    def _ended(self, rank: int) -> bool:
        return exit_file(self.run, self.attempt, rank).exists()


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) > 4:
        return f"{len(ranks)} ranks"
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _learn(heard: Heard, event: dict[str, object], now: float) -> None:
    kind, phase, step, pid = (event.get(key) for key in ("kind", "phase", "step", "pid"))
    if kind == "hello" and isinstance(pid, int):
        heard.pid = pid
    if kind == "pulse":
        heard.doing = str(event.get("doing") or "")
    if kind in ("phase", "pulse") and isinstance(phase, str) and phase != heard.phase:
        heard.phase, heard.moved = phase, now
    if isinstance(step, int) and step != heard.step:
        if heard.step is not None and heard.phase == "training":
            heard.longest = max(heard.longest, now - heard.moved)
        heard.step, heard.moved = step, now


def read_on(path: Path, heard: Heard) -> bytes:
    """Whole lines written since; a file that was replaced or cut is read from its start."""
    try:
        with path.open("rb") as stream:
            status = path.stat()
            if heard.inode != status.st_ino:
                first = heard.inode == 0
                heard.inode = status.st_ino
                heard.offset = max(status.st_size - TAIL_BYTES, 0) if first else 0
            if status.st_size < heard.offset:
                heard.offset = 0
            stream.seek(heard.offset)
            chunk = stream.read(READ_BYTES)
    except OSError:
        return b""
    whole = chunk[: chunk.rfind(b"\n") + 1]
    # No line is that long: what has no end is damage, and must not hide what follows it.
    heard.offset += len(whole) or (len(chunk) if len(chunk) == READ_BYTES else 0)
    return whole
