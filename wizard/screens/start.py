"""Page 0: the runs there are; attach to one, or begin a new one."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from wizard.screens.verbs import RunSummary
from wizard.widgets.page import Page
from wizard.widgets.table import Rows

NEW: Literal["new"] = "new"


class StartPage(Page[Path | Literal["new"]]):
    """Leaves with a run folder, or NEW."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    PLACE = "runs"
    QUESTION = "Your runs, running ones first."
    HINT = "Enter opens the marked run. n begins a new one."
    HELP_TEXT = (
        "A run is a folder. Opening one shows it live when it runs, and how it ended when it "
        "does not. Opening, leaving and closing never touch the run."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "New run", id="start.new", tooltip="Begin a new run"),
    ]

    def __init__(self, runs: tuple[RunSummary, ...]) -> None:
        super().__init__(first=True)
        self._runs = runs

    def body(self) -> ComposeResult:
        """One row per run."""
        yield Rows(id="runs")

    def on_mount(self) -> None:
        """Fill in the runs."""
        rows = self.query_one(Rows)
        rows.show([run.line() for run in self._runs])
        rows.focus()

    def action_next(self) -> None:
        """Open the marked run."""
        marked = self.query_one(Rows).highlighted
        if marked is not None:
            self.dismiss(self._runs[marked].folder)

    def action_new(self) -> None:
        """Begin a new run."""
        self.dismiss(NEW)
