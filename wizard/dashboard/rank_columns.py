"""The columns of the table of ranks; what is not known is blank, never 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from wizard import wording
from wizard.dashboard.health_ranks import SLOW_SHARE, waited_seconds
from wizard.dashboard.state import RankState, RunState
from wizard.language import said, said_value
from wizard.widgets.table import GAP, SHORTEST, Column
from wizard.wording import cells as cell_len

DEVICE_CHARS = 20
MARGIN = 7
"""Cells of the screen's width that border, padding and the mark of a row take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shown:
    """What the table shows: the ranks of a run, and how slow each is beside the others."""

    state: RunState
    shares: Mapping[int, float] = field(default_factory=dict)
    """Rank → its own work as a multiple of the median of all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RankColumn:
    """A column of the table, and the narrowest screen that shows it."""

    column: Column
    cell: Callable[[RankState, Shown], str]
    from_width: int = 0
    meaning: str = ""
    """What help says of it."""


DROPPED_FIRST = (
    "xid", "W", "W / cap", "°C", "MHz", "util", "host", "wait s", "own s", "s/step", "device"
)  # fmt: skip
"""Columns that give way, in this order, where a row would not fit on its line."""


def gib(memory_bytes: float | None) -> str:
    """Memory in a cell."""
    return wording.cell(None if memory_bytes is None else memory_bytes / wording.GIB, 1)


def on_device(state: RunState) -> bool:
    """Whether any rank reports device memory; otherwise memory means that of the process."""
    return any(rank.memory_allocated_bytes is not None for rank in state.ranks.values())


def state_word(rank: RankState, shown: Shown) -> str:
    """How a rank is, in words."""
    if rank.failure is not None:
        return f"FAILED {rank.failure.failure}"
    if rank.rank in shown.state.stale:
        return "SILENT"
    if rank.xid:
        return f"XID {rank.xid:.0f}"
    phase = rank.phase or ""
    share = shown.shares.get(rank.rank, 1.0)
    if phase == "training" and share > SLOW_SHARE:
        return f"SLOW +{100 * (share - 1):.0f}%"
    if phase in ("", "training", "done", "stopped", "failed") or rank.phase_seconds is None:
        return {"training": "ok"}.get(phase, phase)
    return f"{phase} {wording.duration(rank.phase_seconds)}"


def short_device(name: str) -> str:
    """A device's name without its maker, which all share: `RTX 4090`."""
    for maker in ("NVIDIA ", "GeForce ", "AMD ", "Instinct "):
        name = name.removeprefix(maker)
    return wording.cut(name, DEVICE_CHARS)


def rank_columns(shown: Shown, width: int, ranks: Sequence[RankState]) -> list[RankColumn]:
    """The columns a screen of this width shows, so many that a row keeps to its line."""
    columns = [column for column in _all_columns(shown.state, width) if width >= column.from_width]
    for title in DROPPED_FIRST:
        if _needed(columns, shown, ranks) <= width - MARGIN:
            break
        columns = [column for column in columns if column.column.title != title]
    return columns


def _needed(columns: Sequence[RankColumn], shown: Shown, ranks: Sequence[RankState]) -> int:
    """Cells that the longest row takes when what is flexible has given way."""
    widths = [
        max(cell_len(text) for text in (said(c.column.title), *_cells(c, shown, ranks)))
        for c in columns
    ]
    given = [
        min(width, SHORTEST) if c.column.flexible else width
        for c, width in zip(columns, widths, strict=True)
    ]
    return sum(given) + GAP * (len(given) - 1)


def _cells(column: RankColumn, shown: Shown, ranks: Sequence[RankState]) -> list[str]:
    return [wording.one_line(said_value(column.cell(rank, shown))) for rank in ranks]


def _number(
    title: str, cell: Callable[[RankState], str], from_width: int = 0, meaning: str = ""
) -> RankColumn:
    return RankColumn(
        column=Column(title=title, right=True),
        cell=lambda rank, _: cell(rank),
        from_width=from_width,
        meaning=meaning,
    )


def _text(title: str, cell: Callable[[RankState], str], from_width: int = 0) -> RankColumn:
    column = Column(title=title, flexible=True, names=True)
    return RankColumn(column=column, cell=lambda rank, _: cell(rank), from_width=from_width)


def _utilization(rank: RankState) -> str:
    return "" if rank.utilization_percent is None else f"{rank.utilization_percent:.0f}%"


def _waited(rank: RankState) -> str:
    return wording.cell(waited_seconds(rank), 2)


def _power(rank: RankState) -> str:
    cap = wording.cell(rank.power_cap_w)
    return wording.cell(rank.power_w) + (f" / {cap}" if cap else "")


def _memory(rank: RankState) -> str:
    parts = (rank.memory_allocated_bytes, rank.memory_reserved_bytes, rank.memory_total_bytes)
    cells = [gib(part) or "-" for part in parts]
    return "" if rank.memory_allocated_bytes is None else " / ".join(cells)


def _memory_column(state: RunState, width: int) -> RankColumn:
    if not on_device(state):
        return _number("proc GiB", lambda r: gib(r.held_bytes), 0, "memory of its process")
    reserved = any(rank.memory_reserved_bytes is not None for rank in state.ranks.values())
    if width < 140 or not reserved:
        return _number("mem GiB", lambda r: gib(r.held_bytes), 0, "memory it holds on its device")
    meaning = "tensors, what the allocator holds for them, and what the device has"
    return _number("alloc / resv / total GiB", _memory, 0, meaning)


def _all_columns(state: RunState, width: int) -> list[RankColumn]:
    power = _number("W", lambda r: wording.cell(r.power_w), 76)
    if width >= 120:
        power = _number("W / cap", _power, 0, "power it takes, and may take")
    return [
        _number("rank", lambda r: str(r.rank)),
        _text("device", lambda r: short_device(r.device or "")),
        _text("host", lambda r: wording.shorten(r.host or "", DEVICE_CHARS), 120),
        _number("step", lambda r: wording.cell(r.step)),
        _number("s/step", lambda r: wording.cell(r.step_seconds, 2), 0, "seconds of a step"),
        _number("own s", lambda r: wording.cell(r.own_seconds, 2), 120, "its own work in a step"),
        _number("wait s", _waited, 70, "waiting for the others"),
        _number("tok/s", lambda r: wording.cell(r.tokens_per_second), 0, "tokens a second"),
        _memory_column(state, width),
        _number("util", _utilization, 76, "how busy its device is"),
        _number("MHz", lambda r: wording.cell(r.sm_clock_mhz), 120, "clock of its device"),
        _number("°C", lambda r: wording.cell(r.temperature_c), 76),
        power,
        _number(
            "xid",
            lambda r: wording.cell(r.xid),
            140,
            "number of the newest error that its driver told",
        ),
        RankColumn(column=Column(title="state"), cell=state_word),
    ]
