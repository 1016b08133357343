"""The line above the keys: what to do here, what is going on, or what is wrong."""

from __future__ import annotations

import time

from textual.content import Content
from textual.timer import Timer
from textual.widgets import Static

from wizard import wording
from wizard.language import mark, said, said_problem
from wizard.problem import Problem
from wizard.widgets.panel import redraw

NOTICED_SECONDS = 0.1
"""What is answered sooner is not worth a line that flickers."""
KEPT_SECONDS = 1.0
"""What is waited for is told at least as long, once it is told."""
WORDS = {"error": "error", "warning": "warning", "info": "note"}
COLOURS = {"error": "bold $text-error", "warning": "bold $text-warning", "info": "bold"}


def problem_line(problem: Problem) -> Content:
    """A problem as text, its gravity as a word first."""
    return Content.assemble(
        (said(WORDS[problem.severity]) + mark(": "), COLOURS[problem.severity]),
        wording.one_line(said_problem(problem)),
    )


class MessageLine(Static):
    """Shows the hint until something is going on or wrong."""

    DEFAULT_CSS = """
    MessageLine { height: auto; max-height: 40vh; padding: 0 1; }
    """

    def __init__(self, hint: str) -> None:
        super().__init__(said(hint), markup=False)
        self._hint = hint
        self._timer: Timer | None = None
        self._resting = True
        self._awaited: object | None = None
        """Stands for what is waited for now."""
        self._told_since: float | None = None
        """When what is waited for was first on the line; None while something else is there."""
        self.problem: Problem | None = None

    @property
    def lingers(self) -> bool:
        """Whether the line still tells of something that has been answered."""
        return self._resting and self._told_since is not None

    def rest(self) -> None:
        """Back to the hint, after what was waited for could be read."""
        since = self._told_since
        self._end()
        self._resting = True
        left = 0.0 if since is None else since + KEPT_SECONDS - time.monotonic()
        if left > 0:
            self._told_since = since
            self._timer = self.set_timer(left, self.rest)
            return
        redraw(self, Content.styled(wording.many_lines(said(self._hint)), "$foreground-muted"))

    def hint(self, text: str) -> None:
        """Another hint from now on; it shows at once unless something else is told."""
        if text != self._hint:
            self._hint = text
            if self._resting:
                self.rest()

    def say(self, text: str) -> None:
        """Tell something in words."""
        self._end()
        redraw(self, Content(wording.one_line(said(text))))

    def refuse(self, problem: Problem) -> None:
        """Tell what is wrong, where, and how to fix it."""
        self._end()
        self.problem = problem
        redraw(self, problem_line(problem))

    def working(self, subject: str) -> None:
        """Tell what is waited for once that is noticed, and for how long once that is a second."""
        self._end()
        began = time.monotonic()
        self._awaited = awaited = object()

        def tell() -> None:
            if self._awaited is not awaited:  # told something else while this was on its way
                return
            waited = time.monotonic() - began
            self._told_since = self._told_since or time.monotonic()
            told = f" {wording.duration(waited)}" if waited >= 1 else ""
            redraw(self, Content(f"{wording.one_line(said(subject))} ...{told}"))

        def begin() -> None:
            tell()
            if self._awaited is awaited:
                self._timer = self.set_interval(1.0, tell)

        self._timer = self.set_timer(NOTICED_SECONDS, begin)

    def on_mount(self) -> None:
        """Start with the hint, muted."""
        self.rest()

    def _end(self) -> None:
        self.problem = None
        self._resting = False
        self._awaited = None
        self._told_since = None
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
