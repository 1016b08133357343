"""What happened last, and the last lines of a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import PurePath

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from wizard import wording
from wizard.dashboard.state import RunState
from wizard.widgets.panel import name_box, redraw

SHOWN_EVENTS = 50
PAUSES = ("saving", "evaluating")
"""Phases in the midst of training whose outcome is an event itself."""


def last_events(state: RunState) -> list[str]:
    """Warnings, checkpoints, evaluations and changes of phase, newest first, each with its time.

    A checkpoint is one line: that training paused for it and went on goes without saying.
    """
    found = [(note.t, f"(!) {_who(note.rank)}{note.text}") for note in state.warnings]
    found += [
        (saved.t, f"saved {PurePath(saved.path).name} ({wording.gib(saved.bytes)})")
        for saved in state.saved
    ]
    found += [
        (e.t, "eval " + ", ".join(f"{name} {value:.4g}" for name, value in e.metrics.items()))
        for e in state.evals
    ]
    found += [(t, phase) for phase, t in _telling(state.phases)]
    found.sort(key=lambda event: event[0], reverse=True)
    return [f"{_clock(t)}  {wording.one_line(text)}" for t, text in found[:SHOWN_EVENTS]]


def _telling(phases: Sequence[tuple[str, float]]) -> list[tuple[str, float]]:
    """Changes of phase without the pauses that have a line of their own, and their ends."""
    kept = []
    for index, (phase, t) in enumerate(phases):
        newest = index == len(phases) - 1
        resumed = phase == "training" and index > 0 and phases[index - 1][0] in PAUSES
        if not resumed and (newest or phase not in PAUSES):
            kept.append((phase, t))
    return kept


def _who(rank: int | None) -> str:
    return "" if rank is None else f"rank {rank}: "


def _clock(t: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(t))


class TextBox(VerticalScroll):
    """A titled box of plain lines that can be scrolled; it redraws only what changed."""

    DEFAULT_CSS = """
    TextBox { border: round; padding: 0 1; }
    """

    def __init__(self, title: str, *, id: str, newest_last: bool = False) -> None:  # noqa: A002
        super().__init__(id=id)
        self._title = title
        self._newest_last = newest_last
        self._lines: tuple[str, ...] | None = None

    def compose(self) -> ComposeResult:
        """One text."""
        yield Static(markup=False)

    def on_mount(self) -> None:
        """Name the box."""
        name_box(self, self._title)

    def show(self, lines: Sequence[str], title: str | None = None) -> None:
        """Replace the lines; a log that was at its end stays there."""
        if title is not None:
            name_box(self, title)
        if tuple(lines) == self._lines:
            return
        at_end = self.max_scroll_y - self.scroll_y <= 1
        self._lines = tuple(lines)
        text = "\n".join(wording.one_line(line) for line in lines)
        redraw(self.query_one(Static), text)
        if self._newest_last and at_end:
            self.scroll_end(animate=False)
