"""Exit files, signals and counters of one stage → one exit code and its reason."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How a stage, or the run, ended."""

    code: int
    failure: str | None = None
    """Class; None when nothing failed."""
    message: str = ""
    rank: int | None = None
    """Whose failure it was, when one rank's was first."""


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


def judge(evidence: Evidence) -> Verdict:
    """The one code: the first cause, not what it caused in the others."""
    found = _ranks(evidence) if evidence.ranks else _command(evidence)
    if evidence.stop_asked and found.code in (EXIT_COMM, EXIT_STOPPED):
        own_end = not evidence.ranks  # a command that saves nothing is ended by the watch itself
        lost = f"; while it stopped: {found.message}" if found.failure and not own_end else ""
        return Verdict(code=EXIT_STOPPED, message=EXIT_MEANING[EXIT_STOPPED] + lost)
    return found


def _command(evidence: Evidence) -> Verdict:
    code = evidence.command_code
    if code == EXIT_OK:
        return Verdict(code=EXIT_OK)
    if code is None or code > 128:
        return _killed(evidence, "the command")
    if code not in EXIT_MEANING:
        code = EXIT_OTHER
    return Verdict(code=code, failure=class_of(code), message=evidence.last_line)


def _ranks(evidence: Evidence) -> Verdict:
    codes = {_code(evidence.exits[rank]) for rank in evidence.ranks if rank in evidence.exits}
    missing = [rank for rank in evidence.ranks if rank not in evidence.exits]
    own = _earliest(evidence, consequence=False)
    if own is not None:
        return own
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
    if evidence.oom_kills or code is None or code < 0:
        how = "" if code is None else f" by {_signal_name(-code)}"
        return _killed(evidence, f"rank {rank}", how, rank)
    said = f": {evidence.last_line}" if evidence.last_line else ""
    return Verdict(
        code=EXIT_OTHER,
        failure="unknown",
        message=f"rank {rank} ended with {code} and left no exit file{said}",
        rank=rank,
    )


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
