"""What happened last, and the last lines of a log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.widgets import Static

from wizard import wording
from wizard.dashboard.state import RunState
from wizard.language import said
from wizard.widgets.panel import name_box, redraw

SHOWN_EVENTS = 50
PINNED = 3
"""Lines that look like an error and stay in sight."""
ERROR = re.compile(
    r"\b(?:[A-Za-z_.]*Error|Exception|CRITICAL|FATAL|Traceback|Xid|Segmentation fault|Killed)\b"
    r"|\b(?i:error|out of memory|nccl warn)\b"
)
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
    return [
        f"{wording.time_of_day(t)}  {wording.one_line(said(text))}"
        for t, text in found[:SHOWN_EVENTS]
    ]


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


def error_lines(lines: Iterable[str], let_go: frozenset[str]) -> list[str]:
    """The newest lines that look like an error, each once, without those that were let go."""
    found = [line for line in lines if ERROR.search(line) and line not in let_go]
    return list(dict.fromkeys(reversed(found)))[:PINNED][::-1]


def matching(lines: Iterable[str], wanted: str) -> list[str]:
    """Lines that contain a text, whatever its case."""
    return [line for line in lines if wanted.casefold() in line.casefold()]


class TextBox(VerticalScroll):
    """A titled box of plain lines that can be scrolled; it redraws only what changed."""

    DEFAULT_CSS = """
    TextBox { border: round; padding: 0 1; }
    """

    def __init__(self, title: str, *, id: str, newest_last: bool = False) -> None:  # noqa: A002
        super().__init__(id=id, can_focus=True)
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


class LogBox(TextBox):
    """A log that can be held still and filtered; lines that look like errors stay in sight."""

    def __init__(self) -> None:
        super().__init__("Log", id="log", newest_last=True)
        self._newest: tuple[str, ...] = ()
        self._held: tuple[str, ...] | None = None
        self._wanted = ""
        self._let_go: frozenset[str] = frozenset()
        self._whose = "the launcher"

    def show_log(self, lines: tuple[str, ...], whose: str) -> None:
        """Draw what is newest, unless it is held still."""
        self._newest, self._whose = lines, whose
        self._draw_log()

    def hold(self) -> None:
        """Hold the lines still, or follow them again."""
        self._held = self._newest if self._held is None else None
        self._draw_log()

    def only(self, wanted: str) -> None:
        """Show lines that contain a text; all when it is empty."""
        self._wanted = wanted
        self._draw_log()

    def let_go(self) -> None:
        """No longer keep the error lines that are shown."""
        self._let_go |= frozenset(error_lines(self._lines_shown, self._let_go))
        self._draw_log()

    @property
    def _lines_shown(self) -> tuple[str, ...]:
        return self._newest if self._held is None else self._held

    def _draw_log(self) -> None:
        pinned = [f"(!) {line}" for line in error_lines(self._lines_shown, self._let_go)]
        chosen = matching(self._lines_shown, self._wanted)
        title = f"Log of {self._whose}"
        title += f"   only {self._wanted!r}: {len(chosen)}" if self._wanted else ""
        title += "   PAUSED" if self._held is not None else ""
        title += "   (!) stays until u" if pinned else ""
        self.show([*chosen, *pinned], title)
