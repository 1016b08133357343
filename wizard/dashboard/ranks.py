"""The table of ranks: slowest first, by host, or as a map where there are too many to list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from textual.content import Content
from textual.widgets import Static

from wizard import wording
from wizard.dashboard.health_ranks import SLOW_SHARE
from wizard.dashboard.rank_columns import MARGIN, RankColumn, Shown, gib, rank_columns
from wizard.dashboard.state import RankState, RunState
from wizard.language import said
from wizard.widgets.panel import name_box, redraw
from wizard.widgets.table import lines

MAP_FROM = 65
"""Ranks from which a map is drawn over the table."""
RATHER_SLOW = 1.05
ORDERS = ("slowest", "rank", "memory", "host")
MARKS = {
    "X": ("failed", "$text-error"),
    "?": ("silent", "$text-error"),
    "#": (f"over {100 * (SLOW_SHARE - 1):.0f} % slow", "$text-warning"),
    "+": (f"over {100 * (RATHER_SLOW - 1):.0f} %", "$text-accent"),
    "~": ("not training", "$text-secondary"),
    ".": ("ok", "$text-success"),
    " ": ("not heard of", ""),
}
"""Mark of a rank in the map → what it means and its colour; the gravest first."""

Part = tuple[str, str]
"""(text, style)"""


def mark(rank: RankState | None, shown: Shown) -> str:
    """One character for a rank."""
    if rank is None:
        return " "
    if rank.failure is not None:
        return "X"
    if rank.rank in shown.state.stale:
        return "?"
    if rank.phase != "training":
        return "~"
    share = shown.shares.get(rank.rank, 1.0)
    return "#" if share > SLOW_SHARE else "+" if share > RATHER_SLOW else "."


def ordered(shown: Shown, order: str) -> list[RankState]:
    """The ranks as the table lists them; alike ones by number, so that rows stay where they are."""
    ranks = [shown.state.ranks[number] for number in sorted(shown.state.ranks)]
    if order == "memory":
        ranks.sort(key=lambda rank: -round((rank.held_bytes or 0.0) / wording.GIB, 1))
    elif order == "host":
        ranks.sort(key=lambda rank: rank.host or "")
    elif order == "slowest":
        grave = list(MARKS)
        ranks.sort(key=lambda rank: (grave.index(mark(rank, shown)), -_slow(rank, shown)))
    return ranks


def _slow(rank: RankState, shown: Shown) -> float:
    share = shown.shares.get(rank.rank, 1.0)
    return round(share, 2) if share > RATHER_SLOW else 1.0


def rank_map(shown: Shown, width: int, most_lines: int) -> list[list[Part]]:
    """Lines of marks, the number of the first rank before each; a mark may stand for several."""
    state = shown.state
    count = max(state.world_size or 0, max(state.ranks, default=-1) + 1)
    label = len(str(count)) + 1
    wide = max(width - label, 8) // 8 * 8
    each = max(1, math.ceil(count / (wide * max(most_lines, 1))))
    groups = [
        min((mark(state.ranks.get(n), shown) for n in range(at, min(at + each, count))), key=_grave)
        for at in range(0, count, each)
    ]
    found = []
    for at in range(0, len(groups), wide):
        row = "".join(groups[at : at + wide])
        found.append([(f"{at * each:>{label - 1}} ", "$foreground-muted"), *_coloured(row)])
    return found


def _grave(character: str) -> int:
    return list(MARKS).index(character)


def _coloured(row: str) -> list[Part]:
    """The row in pieces of one colour each."""
    pieces: list[Part] = []
    for character in row:
        style = MARKS[character][1]
        if pieces and pieces[-1][1] == style:
            pieces[-1] = (pieces[-1][0] + character, style)
        else:
            pieces.append((character, style))
    return pieces


def legend(shown: Shown) -> str:
    """What the marks in the map mean, of those that are there."""
    state = shown.state
    there = {mark(rank, shown) for rank in state.ranks.values()}
    return "  ".join(f"{m} {said(meaning)}" for m, (meaning, _) in MARKS.items() if m in there)


def summary_line(shown: Shown, ranks: Sequence[RankState]) -> str:
    """Many ranks in one line: `8 ranks, median 1.02 s, spread 4 %, 17.9 GiB at most`."""
    seconds = [rank.own_seconds for rank in ranks if rank.own_seconds is not None]
    seconds = seconds or [rank.step_seconds for rank in ranks if rank.step_seconds is not None]
    held = [rank.held_bytes for rank in ranks if rank.held_bytes is not None]
    parts = [wording.counted(len(ranks), "rank")]
    if seconds:
        middle = median(seconds)
        parts.append(f"median {middle:.2f} s")
        if middle > 0:
            parts.append(f"spread {100 * (max(seconds) - min(seconds)) / middle:.0f} %")
    if held:
        parts.append(f"{gib(max(held))} GiB at most")
    odd = sum(mark(rank, shown) not in ".+" for rank in ranks)
    return ", ".join(parts) + (f", {odd} not ok" if odd else "")


def table(
    shown: Shown, *, width: int, room: int, order: str, first: int, picked: int | None
) -> list[list[Part]]:
    """The box's lines: map, header, rows from the `first` on, and what does not fit in words."""
    found: list[list[Part]] = []
    if len(shown.state.ranks) >= MAP_FROM:
        found += rank_map(shown, width - 4, max(room // 3, 1))
        room -= len(found)
    rows = _rows(shown, ordered(shown, order), order)
    body = room - 1
    over = len(rows) > body
    part = rows[first : first + body - over] if over else rows
    ranks = [row for row in part if isinstance(row, RankState)]
    columns = rank_columns(shown, width, ranks)
    found += _drawn(shown, columns, part, width, picked)
    if over:
        rest = [row for row in rows if isinstance(row, RankState) and row not in ranks]
        more = wording.cut(f"  ... {said(summary_line(shown, rest))}", width - MARGIN - 5)
        found.append([(f"{more}   j/k", "$foreground-muted")])
    return found


def _rows(shown: Shown, ranks: Sequence[RankState], order: str) -> list[RankState | str]:
    """Ranks, and by host a line over each host's."""
    if order != "host":
        return list(ranks)
    rows: list[RankState | str] = []
    hosts: dict[str, list[RankState]] = {}
    for rank in ranks:
        hosts.setdefault(rank.host or "unknown host", []).append(rank)
    for host, of_host in hosts.items():
        rows += [f"{wording.one_line(host)}: {said(summary_line(shown, of_host))}", *of_host]
    return rows


def _drawn(
    shown: Shown,
    columns: Sequence[RankColumn],
    rows: Sequence[RankState | str],
    width: int,
    picked: int | None,
) -> list[list[Part]]:
    ranks = [row for row in rows if isinstance(row, RankState)]
    cells = [tuple(c.cell(rank, shown) for c in columns) for rank in ranks]
    head, *body = lines([c.column for c in columns], cells, max(width - MARGIN, 40))
    found = [[("  " + head, "$foreground-muted")]]
    texts = iter(body)
    for row in rows:
        if isinstance(row, str):
            found.append([(row, "bold")])
            continue
        chosen = row.rank == picked
        style = MARKS[mark(row, shown)][1] if mark(row, shown) in "X?#" else ""
        style = f"bold {style}".strip() if chosen else style
        found.append([(("> " if chosen else "  ") + next(texts), style)])
    return found


class RankTable(Static):
    """All ranks; the picked one is marked by `>`."""

    DEFAULT_CSS = """
    RankTable { border: round; padding: 0 1; text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        super().__init__(id="ranks", markup=False)
        self.order = ORDERS[0]
        self.first = 0
        """The row shown first."""
        self._room = 1

    def rows_wanted(self, state: RunState) -> int:
        """Lines within the border that would show everything."""
        ranks = len(state.ranks)
        heads = len({rank.host for rank in state.ranks.values()}) if self.order == "host" else 0
        return 1 + ranks + heads + (8 if ranks >= MAP_FROM else 0)

    def move(self, rows: int, state: RunState) -> None:
        """Move the first row."""
        last = max(self.rows_wanted(state) - self._room, 0)
        self.first = min(max(self.first + rows, 0), last)

    def show(self, shown: Shown, picked: int | None, width: int, room: int) -> None:
        """Draw the ranks as they are, on `room` lines."""
        state, self._room = shown.state, room
        order = {"slowest": "slowest first", "rank": "by number"}.get(
            self.order, f"by {self.order}"
        )
        many = len(state.ranks) >= MAP_FROM
        name_box(
            self,
            f"Ranks ({len(state.ranks)} of {state.world_size or '?'})   {order}",
            legend(shown) if many else "",
        )
        drawn = table(
            shown, width=width, room=room, order=self.order, first=self.first, picked=picked
        )
        redraw(self, Content("\n").join(Content.assemble(*line) for line in drawn))
