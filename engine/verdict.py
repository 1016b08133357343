"""Exit files, signals and counters of one stage → one exit code and its reason."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from engine.causes import LOST_DEVICE, SIGNALS, class_of_text, last_line
from engine.events import (
    EXIT_CANNOT_WRITE,
    EXIT_COMM,
    EXIT_HOST_OOM,
    EXIT_MEANING,
    EXIT_OK,
    EXIT_OTHER,
    EXIT_STOPPED,
    FAILURE_EXIT,
)
from engine.theirs import quoted

CRASHES = frozenset({signal.SIGABRT, signal.SIGBUS, signal.SIGSEGV, signal.SIGILL})
"""Signals a process sends itself: a restart would meet them again."""
LAST_LINES = 30
"""Of a rank's stderr: older lines may warn of what never came."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How a stage, or the run, ended."""

    code: int
    failure: str | None = None
    """Class; None when nothing failed."""
    message: str = ""
    rank: int | None = None
    """Whose failure it was, when one rank's was first."""
    evidence: tuple[str, ...] = ()
    """Lines that the kernel, torchrun or the rank itself left, nearest first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What is left when the processes of a stage are gone."""

    command_code: int | None
    """What the command ended with; None when it, or who waited for it, was killed."""
    ranks: Sequence[int] = ()
    """Ranks that should have left an exit file; none for a command that is no training."""
    exits: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """Rank → its exit file."""
    first_lost: tuple[int, int] | None = None
    """(rank, exit code, negative for a signal) of the process torchrun saw end first."""
    oom_kills: int = 0
    """Processes the kernel killed for memory meanwhile."""
    disk_full: bool = False
    """Last words may be missing because they could not be written."""
    stop_asked: bool = False
    last_line: str = ""
    """What the command said last."""
    said: Mapping[int, str] = field(default_factory=dict)
    """Rank → the end of what a rank without an exit file wrote to stderr."""
    kernel: Sequence[str] = ()
    """What the kernel said meanwhile of memory, devices, disks and crashes."""
    hang: tuple[int | None, str] | None = None
    """(rank, sentence) when the watch ended ranks that hung."""
    port_owner: str = ""
    """Who holds the port that torchrun could not have."""


def judge(evidence: Evidence) -> Verdict:
    """The one code: the first cause, not what it caused in the others."""
    found = _ranks(evidence) if evidence.ranks else _command(evidence)
    if found.failure is not None:
        found = _with_evidence(found, evidence)
    if evidence.stop_asked and found.code in (EXIT_COMM, EXIT_STOPPED):
        own_end = not evidence.ranks  # a command that saves nothing is ended by the watch itself
        lost = f"; while it stopped: {found.message}" if found.failure and not own_end else ""
        return Verdict(code=EXIT_STOPPED, message=EXIT_MEANING[EXIT_STOPPED] + lost)
    return found


def _with_evidence(verdict: Verdict, evidence: Evidence) -> Verdict:
    """What the kernel said outranks what a rank made of it, for a device that is lost."""
    lost = [line for line in evidence.kernel if LOST_DEVICE.search(line)]
    if lost and verdict.code in (EXIT_OTHER, EXIT_COMM) and verdict.failure != "lost_device":
        text = f"a device was lost ({quoted(lost[0])}): {verdict.message}"
        verdict = replace(verdict, code=EXIT_COMM, failure="lost_device", message=text)
    first = evidence.first_lost
    torchrun = [] if first is None else [f"torchrun saw rank {first[0]} end first, with {first[1]}"]
    return replace(verdict, evidence=(*evidence.kernel[-5:], *torchrun))


def _command(evidence: Evidence) -> Verdict:
    code = evidence.command_code
    if code == EXIT_OK:
        return Verdict(code=EXIT_OK)
    if code is None or code > 128:
        return _killed(evidence, "the command")
    if code not in EXIT_MEANING:
        code = EXIT_OTHER
    told = evidence.last_line
    if told and code == EXIT_OTHER:  # the end of a traceback
        told = quoted(told)
    return Verdict(code=code, failure=class_of(code), message=told)


def _ranks(evidence: Evidence) -> Verdict:
    codes = {_code(evidence.exits[rank]) for rank in evidence.ranks if rank in evidence.exits}
    missing = [rank for rank in evidence.ranks if rank not in evidence.exits]
    own = _earliest(evidence, consequence=False)
    if own is not None:
        return own
    if evidence.hang is not None:
        rank, text = evidence.hang
        return Verdict(code=EXIT_COMM, failure="comm_timeout", message=text, rank=rank)
    if missing:
        return _without_last_word(evidence, missing)
    if EXIT_COMM in codes:
        return _earliest(evidence, consequence=True) or Verdict(code=EXIT_COMM)
    return Verdict(code=EXIT_STOPPED if EXIT_STOPPED in codes else EXIT_OK)


def _earliest(evidence: Evidence, *, consequence: bool) -> Verdict | None:
    """The first rank that failed by itself or, with `consequence`, because another one had."""
    failed = [
        (_time(said), rank, said)
        for rank, said in sorted(evidence.exits.items())
        if _code(said) not in (EXIT_OK, EXIT_STOPPED)
        and _code(said) in EXIT_MEANING
        and (_code(said) == EXIT_COMM) == consequence
    ]
    if not failed:
        return None
    _, rank, said = min(failed, key=lambda entry: (_terminated(entry[2]), entry[:2]))
    code = _code(said)
    failure = said.get("failure")
    return Verdict(
        code=code,
        failure=failure if isinstance(failure, str) and failure else class_of(code),
        message=str(said.get("message") or EXIT_MEANING[code]),
        rank=rank,
    )


def _terminated(said: Mapping[str, Any]) -> bool:
    """torchrun ended this rank because of another one."""
    return said.get("failure") == "killed"


def _without_last_word(evidence: Evidence, missing: Sequence[int]) -> Verdict:
    """A rank left no exit file: killed, crashed in native code, or it never began."""
    if evidence.disk_full:
        text = "the run's disk is full, so its ranks could not even say how they ended"
        return Verdict(code=EXIT_CANNOT_WRITE, failure="disk_full", message=text)
    # torchrun may name a rank that only followed: it left its word, the one to look for did not.
    named = evidence.first_lost
    rank, code = named if named and named[0] in missing else (missing[0], None)
    if code is None and evidence.command_code in range(129) and not evidence.exits:
        code = evidence.command_code
    ours = evidence.said.get(rank, "")
    line = last_line(ours) or evidence.last_line
    line = quoted(line) if line else ""
    by_itself = code is not None and (code >= 0 or -code in CRASHES)
    if by_itself and not evidence.oom_kills:
        known = class_of_text("\n".join((ours or evidence.last_line).splitlines()[-LAST_LINES:]))
        if known is not None:
            return _from_text(evidence, known, rank, line)
    if code is not None and by_itself and not evidence.oom_kills:
        how = f"{code}" if code >= 0 else f"{_signal_name(-code)} ({SIGNALS[-code]})"
        text = f"rank {rank} ended with {how} and left no exit file" + (f": {line}" if line else "")
        return Verdict(code=EXIT_OTHER, failure="unknown", message=text, rank=rank)
    why = SIGNALS.get(-code) if code is not None else None
    how = "" if code is None or code >= 0 else f" by {_signal_name(-code)}"
    how += f" ({why})" if why else ""
    return _killed(evidence, f"rank {rank}", how, rank)


def _from_text(evidence: Evidence, failure: str, rank: int, line: str) -> Verdict:
    """A native library's last words: no exception came of them, so no exit file did."""
    text = f"rank {rank} ended without a last word of its own; it wrote: {line}"
    if evidence.port_owner:
        text = f"the port for the ranks to meet is taken by {evidence.port_owner}: {line}"
    return Verdict(code=FAILURE_EXIT[failure], failure=failure, message=text, rank=rank)


def _killed(evidence: Evidence, who: str, how: str = "", rank: int | None = None) -> Verdict:
    if evidence.oom_kills:
        text = f"{who} was killed by the kernel because the host's memory was full"
        return Verdict(code=EXIT_HOST_OOM, failure="host_oom", message=text, rank=rank)
    text = f"{who} was ended{how or ' from outside'}, without a last word"
    return Verdict(code=EXIT_COMM, failure="killed", message=text, rank=rank)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _code(said: Mapping[str, Any]) -> int:
    code = said.get("code")
    return code if isinstance(code, int) and code in EXIT_MEANING else EXIT_OTHER


def _time(said: Mapping[str, Any]) -> float:
    t = said.get("t")
    return float(t) if isinstance(t, int | float) else 0.0


def class_of(code: int) -> str:
    """The failure class a code stands for when nothing says more."""
    if code == EXIT_OTHER:
        return "unknown"
    return next((name for name, value in FAILURE_EXIT.items() if value == code), "unknown")
