"""A run in sentences and as plain values, for terminals without a screen and for programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from engine.events import EXIT_MEANING
from wizard import wording
from wizard.dashboard.finding import Finding
from wizard.dashboard.state import Failure, RunState
from wizard.dashboard.view import View
from wizard.language import foreign, mark, said

SCHEMA = 1
WORDS = {"error": "FAIL", "warning": "(!)", "info": "note"}
INTERNAL = ("recent", "stride", "count")
"""Fields of a state that only the fold needs."""


def as_json(view: View) -> dict[str, Any]:
    """A view as values that JSON can hold: unknown is null, a number that is none is its name."""
    state = view.state
    known = {
        **dataclasses.asdict(state),
        "ranks": {str(n): _rank(dataclasses.asdict(r), view, n) for n, r in state.ranks.items()},
        "losses": state.losses,
        "history": [row._asdict() for row in state.history],
        "tokens_per_second": state.tokens_per_second,
        "step_seconds": state.step_seconds,
        "eta_seconds": state.eta_seconds(),
        "predicted": dataclasses.asdict(view.plan),
        "health": [dataclasses.asdict(finding) for finding in view.findings],
    }
    kept = {name: value for name, value in known.items() if name not in INTERNAL}
    return {"schema": SCHEMA, **_plain(kept)}


def _rank(rank: dict[str, Any], view: View, number: int) -> dict[str, Any]:
    speed = view.state.ranks[number].tokens_per_second
    del rank["recent"]
    return {**rank, "tokens_per_second": speed, "slowness": view.shares.get(number)}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value


def present(view: View) -> list[str]:
    """The whole state in a few lines."""
    state = view.state
    ranks = [
        f"rank {rank.rank}: {rank.phase or 'unknown'}, step {_or_unknown(rank.step)}, "
        f"{wording.duration(rank.step_seconds)} a step, {wording.speed(rank.tokens_per_second)}"
        for _, rank in sorted(state.ranks.items())
    ]
    return [
        f"{foreign(state.name)}: {ending(state) if state.ended else state.phase or 'starting'}",
        step_line(state),
        *ranks,
        *(finding_line(finding) for finding in view.findings),
    ]


def sentence(view: View) -> str:
    """Where a run is, as one sentence that can be read aloud."""
    state = view.state
    if state.ended:
        return f"{foreign(state.name)} {ending(state)}."
    if state.step is None:
        return f"{foreign(state.name)} is {state.phase or 'starting'}."
    grave = [finding for finding in view.findings if finding.severity != "info"]
    ranks = wording.counted(len(state.ranks), "rank")
    well = f"{ranks} ok" if not grave else "; ".join(finding.what for finding in grave)
    return f"Step {step_line(state).removeprefix('step ')}, {well}."


def news(before: RunState, now: RunState) -> Iterator[str]:
    """Lines for what changed between two states."""
    if now.attempt != before.attempt:
        started = f"attempt {now.attempt}" + (f", fallback {now.rung}" if now.rung else "")
        yield f"resumed: {started}" if now.resumed else started
    if now.phase != before.phase and now.phase is not None and not now.ended:
        yield f"{now.phase}" + (f": {now.detail}" if now.detail else "")
    for warning in now.warnings[len(before.warnings) :]:
        yield f"(!) {_who(warning.rank)}{warning.text}"
    if now.losses and now.losses[-1:] != before.losses[-1:]:
        yield step_line(now)
    for saved in now.saved[len(before.saved) :]:
        yield f"saved {foreign(saved.path)} ({wording.gib(saved.bytes)})"
    if now.ended:
        yield ending(now)


def finding_line(finding: Finding) -> str:
    """A finding with its gravity as a word, for `said`."""
    return foreign(f"{said(WORDS[finding.severity])} {said_finding(finding)}")


def said_finding(finding: Finding) -> str:
    """All of a finding as one line, in the reader's language."""
    text = said(finding.what) + mark(": ") + said(finding.evidence)
    text += mark("; ") + said(f"likely {finding.cause}") if finding.cause else ""
    return text + (mark(". ") + said(f"To fix: {finding.fix}") if finding.fix else "")


def step_line(state: RunState) -> str:
    """The newest step whose loss is known, as one sentence."""
    step, loss = state.losses[-1] if state.losses else (state.step, None)
    left = state.eta_seconds()
    parts = (
        f"step {_or_unknown(step)} of {_or_unknown(state.total_steps)}",
        f"loss {wording.loss(loss)}",
        wording.speed(state.tokens_per_second),
        "" if left is None or state.ended else f"{wording.duration(left)} left",
    )
    return (
        ", ".join(part for part in parts if part and wording.UNKNOWN not in part) or "no step yet"
    )


def failure_words(failure: Failure) -> str:
    """Its class and message, for `said`; with a traceback it is in words of a library."""
    return f"{failure.failure}: {told_message(failure)}"


def told_message(failure: Failure) -> str:
    """Its message, for `said`; one with a traceback is a library's unless it quotes that."""
    theirs = failure.traceback and "“" not in failure.message
    return foreign(failure.message) if theirs else failure.message


def ending(state: RunState) -> str:
    """How the run ended, for `said`."""
    if state.exit_code is None:
        return "lost: its processes are gone and nobody recorded how it ended"
    meaning = EXIT_MEANING.get(state.exit_code, "an unexpected error")
    text = f"ended with {state.exit_code}: {meaning}"
    if state.failure is not None:
        text += f"; {_who(state.failure.rank)}{failure_words(state.failure)}"
    return text


def _who(rank: int | None) -> str:
    return "" if rank is None else f"rank {rank}: "


def _or_unknown(number: int | None) -> str:
    return wording.UNKNOWN if number is None else str(number)


def tested(result: Mapping[str, Any]) -> str:
    """What a smoke test measured beside what was predicted."""
    predicted, taken = result.get("predicted") or {}, result.get("measured") or {}
    kinds = (taken.get("memory_peak_bytes"), taken.get("process_memory_peak_bytes"))
    peaks = [[peak for peak in kind or [] if peak is not None] for kind in kinds]
    known = next((peak for peak in peaks if peak), None)
    if known is None:
        return "its memory was not measured"
    used, wanted = wording.gib(max(known)), wording.gib(predicted.get("device_bytes"))
    return f"{used} measured, {wanted} predicted"
