"""The table of ranks: one row each, what is not known is blank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from wizard import wording
from wizard.dashboard.state import RankState, RunState
from wizard.widgets.panel import name_box, redraw
from wizard.widgets.table import GAP, SHORTEST, Column, lines

DEVICE_CHARS = 20
MARGIN = 7
"""Cells of the screen's width that border, padding, scrollbar and the mark of a row take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankColumn:
    """A column of the table, and the narrowest screen that shows it."""

    column: Column
    cell: Callable[[RankState, RunState], str]
    from_width: int = 0
    meaning: str = ""
    """What help says of it."""


DROPPED_FIRST = ("W", "W / cap", "°C", "util", "host", "wait s", "own s", "s/step", "device")
"""Columns that give way, in this order, where a row would not fit on its line."""


def _gib(memory_bytes: float | None) -> str:
    return wording.cell(None if memory_bytes is None else memory_bytes / wording.GIB, 1)


def memory_bytes(rank: RankState) -> float | None:
    """What the rank holds now: on its device, or of the process where there is none."""
    if rank.memory_allocated_bytes is not None:
        return rank.memory_allocated_bytes
    return rank.process_memory_bytes


def on_device(state: RunState) -> bool:
    """Whether any rank reports device memory; otherwise memory means that of the process."""
    return any(rank.memory_allocated_bytes is not None for rank in state.ranks.values())


def _state(rank: RankState, state: RunState) -> str:
    if rank.failure is not None:
        return f"FAILED {rank.failure.failure}"
    if rank.rank in state.stale:
        return "SILENT"
    phase = rank.phase or ""
    if phase in ("", "training", "done", "stopped", "failed") or rank.phase_seconds is None:
        return {"training": "ok"}.get(phase, phase)
    return f"{phase} {wording.duration(rank.phase_seconds)}"


def _number(
    title: str, cell: Callable[[RankState], str], from_width: int = 0, meaning: str = ""
) -> RankColumn:
    return RankColumn(
        column=Column(title=title, right=True),
        cell=lambda rank, _: cell(rank),
        from_width=from_width,
        meaning=meaning,
    )


def short_device(name: str) -> str:
    """A device's name without its maker, which all share: `RTX 4090`."""
    for maker in ("NVIDIA ", "GeForce ", "AMD ", "Instinct "):
        name = name.removeprefix(maker)
    return wording.cut(name, DEVICE_CHARS)


def _utilization(rank: RankState) -> str:
    return "" if rank.utilization_percent is None else f"{rank.utilization_percent:.0f}%"


def _power(rank: RankState) -> str:
    cap = wording.cell(rank.power_cap_w)
    return wording.cell(rank.power_w) + (f" / {cap}" if cap else "")


def rank_columns(state: RunState, width: int) -> list[RankColumn]:
    """The columns a screen of this width shows, so many that a row keeps to its line."""
    columns = [column for column in _all_columns(state, width) if width >= column.from_width]
    for title in DROPPED_FIRST:
        if _needed(columns, state) <= width - MARGIN:
            break
        columns = [column for column in columns if column.column.title != title]
    return columns


def _needed(columns: Sequence[RankColumn], state: RunState) -> int:
    """Cells that the longest row takes when what is flexible has given way."""
    widths = [max(cell_len(text) for text in (c.column.title, *_cells(c, state))) for c in columns]
    given = [
        min(width, SHORTEST) if c.column.flexible else width
        for c, width in zip(columns, widths, strict=True)
    ]
    return sum(given) + GAP * (len(given) - 1)


def _cells(column: RankColumn, state: RunState) -> list[str]:
    return [wording.one_line(column.cell(rank, state)) for rank in state.ranks.values()]


def _all_columns(state: RunState, width: int) -> list[RankColumn]:
    if on_device(state):
        memory, held = "mem GiB", "memory it holds on its device"
    else:
        memory, held = "proc GiB", "memory of its process"
    columns = [
        _number("rank", lambda r: str(r.rank)),
        RankColumn(
            column=Column(title="device", flexible=True),
            cell=lambda r, _: short_device(r.device or ""),
        ),
        RankColumn(
            column=Column(title="host", flexible=True),
            cell=lambda r, _: wording.shorten(r.host or "", DEVICE_CHARS),
            from_width=120,
        ),
        _number("step", lambda r: wording.cell(r.step)),
        _number("s/step", lambda r: wording.cell(r.step_seconds, 2), 0, "seconds of a step"),
        _number("own s", lambda r: wording.cell(r.own_seconds, 2), 120, "its own work in a step"),
        _number("wait s", lambda r: wording.cell(r.wait_seconds, 2), 70, "waiting for the others"),
        _number("tok/s", lambda r: wording.cell(r.tokens_per_second), 0, "tokens a second"),
        _number(memory, lambda r: _gib(memory_bytes(r)), 0, held),
        _number("util", _utilization, 76, "how busy its device is"),
        _number("°C", lambda r: wording.cell(r.temperature_c), 76),
        _number("W", lambda r: wording.cell(r.power_w), 76),
        RankColumn(column=Column(title="state"), cell=_state),
    ]
    if width >= 120:
        columns[-2] = _number("W / cap", _power)
    return columns


class RankTable(VerticalScroll):
    """All ranks in order; the picked one is marked by `>`."""

    DEFAULT_CSS = """
    RankTable { border: round; padding: 0 1; height: auto; }
    RankTable > Static { width: 1fr; text-wrap: nowrap; }
    """

    def __init__(self) -> None:
        super().__init__(id="ranks")

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(markup=False)

    def on_mount(self) -> None:
        """Name the box."""
        name_box(self, "Ranks")

    def show(self, state: RunState, picked: int | None, screen_width: int) -> None:
        """Draw the ranks as they are."""
        columns = rank_columns(state, screen_width)
        ranks = [state.ranks[number] for number in sorted(state.ranks)]
        rows = [tuple(c.cell(rank, state) for c in columns) for rank in ranks]
        head, *body = lines([c.column for c in columns], rows, max(screen_width - MARGIN, 40))
        marks = ["> " if rank.rank == picked else "  " for rank in ranks]
        name_box(self, f"Ranks ({len(ranks)} of {state.world_size or '?'})")
        parts = [Content.styled("  " + head, "$foreground-muted")]
        parts += [
            Content.styled(mark + row, "bold" if mark == "> " else "")
            for mark, row in zip(marks, body, strict=True)
        ]
        redraw(self.query_one(Static), Content("\n").join(parts))
