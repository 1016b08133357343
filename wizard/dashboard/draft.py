"""A RunState taken apart, so that many events cost one copy of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from wizard.dashboard.fields import Event
from wizard.dashboard.values import ENDINGS, Line, Note, RankState, RunState

KEPT_RECENT = 200
KEPT_LINES = 20
KEPT_NOTES = 200
MOST_RANKS = 65_536
"""A higher number in a stream is damage, not a rank."""
RUN_FIELDS = tuple(f.name for f in fields(RunState))
RANK_FIELDS = tuple(f.name for f in fields(RankState))


class Lines:
    """The last lines of a rank, and the two columns of them that are summed for each row."""

    __slots__ = ("kept", "seconds", "tokens")

    def __init__(self, kept: tuple[Line, ...]) -> None:
        self.kept = list(kept)
        self.seconds = [line.seconds for line in kept]
        self.tokens = [line.tokens for line in kept]

    def add(self, line: Line) -> None:
        """Add the newest; the oldest goes when there are too many."""
        self.kept.append(line)
        self.seconds.append(line[1])
        self.tokens.append(line[2])
        if len(self.kept) > KEPT_LINES:
            del self.kept[0], self.seconds[0], self.tokens[0]


class Draft:
    """What is changed; `state()` puts it together again."""

    def __init__(self, state: RunState) -> None:
        self.run: dict[str, Any] = {name: getattr(state, name) for name in RUN_FIELDS}
        self.history = list(state.history)
        self.recent = list(state.recent)
        self.ranks: dict[int, dict[str, Any]] = {}
        self.old_ranks: Mapping[int, RankState] = state.ranks
        self._lines: dict[int, Lines] = {}
        self._numbers: tuple[int, ...] | None = None

    def state(self) -> RunState:
        """Put together again."""
        ranks = self.old_ranks
        if self.ranks:
            changed = {n: self._changed(n, rank) for n, rank in self.ranks.items()}
            ranks = {**ranks, **changed}
        run = {**self.run, "history": tuple(self.history), "ranks": ranks}
        return RunState(**run | {"recent": tuple(self.recent[-KEPT_RECENT:])})

    def _changed(self, number: int, rank: dict[str, Any]) -> RankState:
        lines = self._lines.get(number)
        return RankState(**rank if lines is None else rank | {"recent": tuple(lines.kept)})

    def next_attempt(self, attempt: int, t: float) -> None:
        """Ranks start anew; what failed before stays as a warning."""
        run, failure = self.run, self.run["failure"]
        if failure is not None:
            who = "launcher" if failure.rank is None else f"rank {failure.rank}"
            text = f"attempt {run['attempt']} ended by {failure.failure} ({who}): {failure.message}"
            self.keep("warnings", Note(t=t, rank=failure.rank, text=text))
        self.old_ranks, self.ranks, self._lines, self._numbers = {}, {}, {}, None
        phases, heard = run["phases"], run["updated"]
        if phases and phases[-1][0] not in ENDINGS and heard is not None:  # nobody told its end
            run["phases"] = (*phases, ("failed", max(heard, phases[-1][1])))
        nothing = dict.fromkeys(("step", "failure", "exit_code"))
        resumed = run["exit_code"] is not None  # the launcher tells one only at its own end
        run.update(nothing, attempt=attempt, resumed=resumed, stale=(), lost=False)

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
            self._numbers = None
        if rank["updated"] is None or t > rank["updated"]:
            rank["updated"] = t
        return rank

    def lines(self, number: int) -> Lines:
        """The last lines of a rank that there is."""
        lines = self._lines.get(number)
        if lines is None:
            known = self.ranks.get(number)
            recent = self.old_ranks[number].recent if known is None else known["recent"]
            lines = self._lines[number] = Lines(recent)
        return lines

    def numbers(self) -> tuple[int, ...]:
        """All ranks, in the order of their numbers: sums come out the same."""
        if self._numbers is None:
            self._numbers = tuple(sorted({*self.old_ranks, *self.ranks}))
        return self._numbers

    def memory_bytes(self, number: int) -> Any:
        """What a rank holds: on its device, or of its process where there is none."""
        rank = self.ranks.get(number)
        if rank is None:
            return self.old_ranks[number].held_bytes
        held = rank["memory_allocated_bytes"]
        return rank["process_memory_bytes"] if held is None else held
