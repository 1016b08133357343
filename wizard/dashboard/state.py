"""Events → RunState: pure, and fast enough for the whole history of a long run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from engine.events import FIRST_SECOND, LAST_SECOND, exit_code, unix_seconds
from wizard.dashboard.changes import CHANGES, KEPT_PHASES, KEPT_ROWS, LASTING
from wizard.dashboard.draft import Draft
from wizard.dashboard.fields import Event, text, whole
from wizard.dashboard.values import (
    Evaluation,
    Failure,
    Line,
    Note,
    RankState,
    Row,
    RunState,
    Saved,
)

Found = TypeVar("Found")

__all__ = [
    "KEPT_PHASES",
    "KEPT_ROWS",
    "Evaluation",
    "Failure",
    "Line",
    "Note",
    "RankState",
    "Row",
    "RunState",
    "Saved",
    "fold",
    "fold_all",
    "with_present",
    "with_status",
]


def fold(state: RunState, event: Event) -> RunState:
    """The state after one event."""
    return fold_all(state, (event,))


def fold_all(state: RunState, events: Iterable[Event]) -> RunState:
    """The state after these events.

    Ranks may be read in any order; an event of an attempt that is over changes nothing but
    notes. Kinds and fields that are not understood are ignored. Folding in pieces equals folding
    at once.
    """
    draft = Draft(state)
    for event in events:
        _take(draft, event)
    return draft.state()


def _take(draft: Draft, event: Event) -> None:
    """Change what one event says."""
    kind, t = event.get("kind"), event.get("t")
    change = CHANGES.get(kind) if type(kind) is str else None
    if type(t) is not float or not FIRST_SECOND <= t < LAST_SECOND:
        t = unix_seconds(t)
    if change is None or t is None:
        return
    run = draft.run
    attempt = whole(event, "attempt") or 0
    if attempt > run["attempt"]:
        draft.next_attempt(attempt, t)
    if run["updated"] is None or t > run["updated"]:
        run["updated"] = t
    if run["started"] is None or t < run["started"]:
        run["started"] = t
    if attempt < run["attempt"] and kind not in LASTING:
        return
    rung = whole(event, "rung")
    if rung is not None and rung > run["rung"]:
        run["rung"] = rung
    change(draft, event, t)


def with_present(past: RunState, present: RunState, share: float) -> RunState:
    """The present of a run of whose history a share was read: what came before is put before it."""
    begun = present.history[0].step if present.history else None
    older = [row for row in past.history if begun is None or row.step < begun]
    return replace(
        present,
        history=(*older, *present.history),
        history_share=share,
        started=present.started if past.started is None else past.started,
        warnings=_joined(past.warnings, present.warnings),
        saved=_joined(past.saved, present.saved),
        evals=_joined(past.evals, present.evals),
    )


def _joined(older: tuple[Found, ...], newer: tuple[Found, ...]) -> tuple[Found, ...]:
    """Notes without those that both know."""
    return (*(note for note in older if note not in newer), *newer)


def with_status(state: RunState, status: Mapping[str, Any]) -> RunState:
    """The state with what state.json says: stale ranks, exit code, the failure the watch found.

    The watch had all evidence. A rank that fails with the disk full cannot say so in its events,
    and another's, which only followed, may be all that is there.
    """
    stale = status.get("stale")
    state = replace(state, stale=_ranks_of(stale) if isinstance(stale, list) else ())
    code = exit_code(status.get("exit_code"))
    if code is None:
        return state
    failure, verdict = state.failure, text(status, "failure")
    if code != 0 and verdict and (failure is None or failure.failure != verdict):
        rank = status.get("failed_rank")
        (rank,) = _ranks_of([rank]) or (None,)
        failure = Failure(failure=verdict, message=text(status, "message"), rank=rank)
    phase = text(status, "phase") or state.phase
    return replace(state, exit_code=code, failure=failure, phase=phase)


def _ranks_of(values: list[Any]) -> tuple[int, ...]:
    return tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool))
