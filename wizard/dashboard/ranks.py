"""The table of ranks: one row each, what is not known is blank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from wizard import wording
from wizard.dashboard.state import RankState, RunState
from wizard.widgets.panel import name_box
from wizard.widgets.table import Column, lines

DEVICE_CHARS = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RankColumn:
    """A column of the table, and the narrowest screen that shows it."""

    column: Column
    cell: Callable[[RankState, RunState], str]
    from_width: int = 0


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


def _number(title: str, cell: Callable[[RankState], str], from_width: int = 0) -> RankColumn:
    return RankColumn(
        column=Column(title=title, right=True),
        cell=lambda rank, _: cell(rank),
        from_width=from_width,
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
    """The columns a screen of this width shows."""
    memory = "mem GiB" if on_device(state) else "proc GiB"
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
        _number("s/step", lambda r: wording.cell(r.step_seconds, 2)),
        _number("own s", lambda r: wording.cell(r.own_seconds, 2), 120),
        _number("wait s", lambda r: wording.cell(r.wait_seconds, 2), 70),
        _number("tok/s", lambda r: wording.cell(r.tokens_per_second)),
        _number(memory, lambda r: _gib(memory_bytes(r))),
        _number("util", _utilization, 76),
        _number("°C", lambda r: wording.cell(r.temperature_c), 76),
        _number("W", lambda r: wording.cell(r.power_w), 76),
        RankColumn(column=Column(title="state"), cell=_state),
    ]
    if width >= 120:
        columns[-2] = _number("W / cap", _power)
    return [column for column in columns if width >= column.from_width]


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
        head, *body = lines([c.column for c in columns], rows, max(screen_width - 6, 40))
        marks = ["> " if rank.rank == picked else "  " for rank in ranks]
        name_box(self, f"Ranks ({len(ranks)} of {state.world_size or '?'})")
        parts = [Content.styled("  " + head, "$foreground-muted")]
        parts += [
            Content.styled(mark + row, "bold" if mark == "> " else "")
            for mark, row in zip(marks, body, strict=True)
        ]
        self.query_one(Static).update(Content("\n").join(parts))
