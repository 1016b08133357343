"""Page 0: the runs there are; attach to one, or begin a new one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from wizard.answers import Answers
from wizard.language import said
from wizard.screens.verbs import RunSummary
from wizard.widgets.page import Page
from wizard.widgets.table import Rows

NEW: Literal["new"] = "new"
CONTINUE: Literal["continue"] = "continue"


class StartPage(Page[Path | Literal["new", "continue"]]):
    """Leaves with a run folder, NEW or CONTINUE."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    PLACE = "runs"
    QUESTION = "Your runs, running ones first."
    HINT = "Enter opens the marked row. n begins a new run."
    HELP_TEXT = (
        "A run is a folder. Opening one shows it live when it runs, and how it ended when it "
        "does not. Opening, leaving and closing never touch the run. Answers of a wizard that was "
        "left are kept until a run is started from them; n begins without them."
    )
    HELP_ON: ClassVar[Mapping[str, str]] = {
        "runs": "One row per run: its name and how it is. Up and Down mark a row; Enter, or a "
        "click on the marked one, opens it.",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "Leave", id="page.back", tooltip="Leave the wizard"),
        Binding("n", "new", "New run", id="start.new", tooltip="Begin a new run"),
    ]

    def __init__(self, runs: tuple[RunSummary, ...], kept: Answers | None = None) -> None:
        super().__init__()
        self._runs = runs
        self._kept = kept

    def body(self) -> ComposeResult:
        """One row per run, before them what was left unfinished."""
        yield Rows(id="runs")

    def on_mount(self) -> None:
        """Fill in the rows."""
        rows = self.query_one(Rows)
        kept = [said(f"continue: {in_short(self._kept)}")] if self._kept else []
        rows.show([*kept, *(said(run.line()) for run in self._runs)])
        rows.focus()

    def action_next(self) -> None:
        """Open the marked run, or go on with the answers that were kept."""
        marked = self.query_one(Rows).highlighted
        if marked is None:
            return
        if self._kept is not None and marked == 0:
            self.dismiss(CONTINUE)
        else:
            self.dismiss(self._runs[marked - (self._kept is not None)].folder)

    def action_new(self) -> None:
        """Begin a new run."""
        self.dismiss(NEW)


def in_short(answers: Answers) -> str:
    """Answers on one line."""
    data = Path(answers.data).name if answers.data else "no data yet"
    number = len(answers.settings)
    settings = f", {number} setting{'s' * (number != 1)}" if number else ""
    return f"{answers.model or 'no model yet'} on {data}, {answers.goal}{settings}"
