"""A RunState taken apart, so that many events cost one copy of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from wizard.dashboard.fields import Event
from wizard.dashboard.values import Note, RankState, RunState

KEPT_RECENT = 200
KEPT_NOTES = 200
MOST_RANKS = 65_536
"""A higher number in a stream is damage, not a rank."""
RUN_FIELDS = tuple(f.name for f in fields(RunState))
RANK_FIELDS = tuple(f.name for f in fields(RankState))


class Draft:
    """What is changed; `state()` puts it together again."""

    def __init__(self, state: RunState) -> None:
        self.run: dict[str, Any] = {name: getattr(state, name) for name in RUN_FIELDS}
        self.history = list(state.history)
        self.recent = list(state.recent)
        self.ranks: dict[int, dict[str, Any]] = {}
        self.old_ranks: Mapping[int, RankState] = state.ranks

    def state(self) -> RunState:
        """Put together again."""
        ranks = self.old_ranks
        if self.ranks:
            ranks = {**ranks, **{n: RankState(**rank) for n, rank in self.ranks.items()}}
        run = {**self.run, "history": tuple(self.history), "ranks": ranks}
        return RunState(**run | {"recent": tuple(self.recent[-KEPT_RECENT:])})

    def next_attempt(self, attempt: int, t: float) -> None:
        """Ranks start anew; what failed before stays as a warning."""
        run, failure = self.run, self.run["failure"]
        if failure is not None:
            who = "launcher" if failure.rank is None else f"rank {failure.rank}"
            text = f"attempt {run['attempt']} ended by {failure.failure} ({who}): {failure.message}"
            self.keep("warnings", Note(t=t, rank=failure.rank, text=text))
        self.old_ranks, self.ranks = {}, {}
        nothing = dict.fromkeys(("step", "failure", "exit_code"))
        run.update(nothing, attempt=attempt, stale=(), lost=False)

    def keep(self, name: str, note: object) -> None:
        """Add a note to those of its kind; the oldest goes when there are too many."""
        self.run[name] = (*self.run[name], note)[-KEPT_NOTES:]

    def rank(self, event: Event, t: float) -> dict[str, Any] | None:
        """The rank that an event is about, to be changed; None for the launcher's."""
        number = event.get("rank")
        if type(number) is not int or not 0 <= number < MOST_RANKS:
            return None
        rank = self.ranks.get(number)
        if rank is None:
            old = self.old_ranks.get(number) or RankState(rank=number)
            rank = self.ranks[number] = {name: getattr(old, name) for name in RANK_FIELDS}
        if rank["updated"] is None or t > rank["updated"]:
            rank["updated"] = t
        return rank

    def of_ranks(self, *names: str) -> Iterator[list[Any]]:
        """These fields of each rank, in the order of their numbers: sums come out the same."""
        for number in sorted({*self.old_ranks, *self.ranks}):
            changed = self.ranks.get(number)
            if changed is not None:
                yield [changed[name] for name in names]
            else:
                yield [getattr(self.old_ranks[number], name) for name in names]
