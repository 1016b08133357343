"""A question over a screen, answered by one of a few choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from wizard import wording
from wizard.language import said
from wizard.widgets.frames import OneFrame
from wizard.widgets.table import Rows


class Question(ModalScreen[int | None], OneFrame):
    """Leaves with the number of the choice, or None for Escape; the last choice changes nothing."""

    DEFAULT_CSS = """
    Question { align: center middle; }
    Question > Vertical { width: 64; max-width: 95%; height: auto; border: round; padding: 1 2; }
    Question Static { margin-bottom: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Choose", id="question.take", priority=True, tooltip="Take it"),
        Binding(
            "escape", "cancel", "Cancel", id="question.cancel", tooltip="Back without choosing"
        ),
    ]

    def __init__(self, text: str, choices: Sequence[str]) -> None:
        super().__init__()
        self._text = text
        self._choices = tuple(choices)

    def compose(self) -> ComposeResult:
        """Text and choices."""
        with Vertical():
            yield Static(Content(wording.one_line(said(self._text))), markup=False)
            yield Rows()

    def on_mount(self) -> None:
        """Fill in the choices and start on the first."""
        rows = self.query_one(Rows)
        rows.show([said(choice) for choice in self._choices])
        rows.focus()

    def on_rows_clicked(self) -> None:
        """A click chooses."""
        self.action_take()

    def action_take(self) -> None:
        """Leave with the marked choice."""
        self.dismiss(self.query_one(Rows).highlighted)

    def action_cancel(self) -> None:
        """Leave as if nothing had been asked."""
        self.dismiss(None)
