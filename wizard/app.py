"""The app: theme, global keys and the page loop; what it does to the world comes in as Verbs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType

from wizard.answers import Answers
from wizard.facts import Facts
from wizard.problem import ProblemError
from wizard.screens.pages import Look, page_for
from wizard.screens.start import NEW, StartPage
from wizard.screens.verbs import RunSummary, Verbs
from wizard.steps import Step, Walk, answered, back, begin
from wizard.widgets.aside import aside
from wizard.widgets.theme import CALM

__all__ = ["TunewrightApp", "Verbs"]


class TunewrightApp(App[Path]):
    """Returns the folder of the run that was last seen, or None when there was none."""

    TITLE = "tunewright"
    CSS_PATH = Path(__file__).with_suffix(".tcss")
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 – Textual's own annotation forbids ClassVar
        (0, "-tiny"),
        (60, "-narrow"),
        (80, "-std"),
        (120, "-wide"),
        (140, "-full"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"),
        (16, "-low"),
        (24, "-mid"),
        (36, "-tall"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+q", "quit", "Quit", id="app.quit", priority=True, tooltip="Quit; a run goes on"
        ),
    ]

    def __init__(
        self,
        verbs: Verbs,
        *,
        attach: Path | None = None,
        facts: Facts | None = None,
        answers: Answers | None = None,
        leave_when_done: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self._verbs = verbs
        self._look = Look(clock=clock, leave_when_done=leave_when_done, in_wizard=attach is None)
        self._walk = begin(facts, answers or Answers(), attach)

    def on_mount(self) -> None:
        """Theme, then the first page."""
        self.register_theme(CALM)
        if "TEXTUAL_THEME" not in os.environ:
            self.theme = CALM.name
        self.walk_pages()

    @work(name="walk")
    async def walk_pages(self) -> None:
        """Ask the pages that are still to ask, one after the other, then leave."""
        walk = self._walk if self._walk.run else await self._start(self._walk)
        while walk is not None and walk.pending:
            step = walk.pending[0]
            page = page_for(step, walk, self._verbs, self._look)
            answer = await self.push_screen_wait(page)
            walk = self._turn(walk, step, answer)
        self.exit(walk.run if walk else None)

    async def _start(self, walk: Walk) -> Walk | None:
        """The walk after the start page; None when it was left."""
        if walk.facts is not None or walk.answers != Answers():
            return walk
        runs = await self._runs()
        if not runs:
            return walk
        choice = await self.push_screen_wait(StartPage(runs))
        if choice is None:
            return None
        return walk if choice == NEW else replace(walk, run=choice)

    async def _runs(self) -> tuple[RunSummary, ...]:
        try:
            return await aside(self._verbs.list_runs)
        except ProblemError as error:
            self.notify(str(error), severity="warning", markup=False)
            return ()

    def _turn(self, walk: Walk, step: Step, answer: Any) -> Walk:
        """The walk after a page was left, by its answer or by going back."""
        match step, answer:
            case Step.RUN, None:
                return replace(walk, done=frozenset(Step))
            case Step.RUN, _ if self._look.leave_when_done:
                return replace(walk, done=frozenset(Step))
            case Step.FINISH, "new":
                return begin(walk.facts, replace(walk.answers, run_name=None))
            case _, None:
                return back(walk, step)
        return answered(walk, step, answer)
