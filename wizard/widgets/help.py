"""Help over a page: what it is about, and every key that works there."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from wizard.widgets.panel import Panel
from wizard.widgets.table import pairs


class Help(ModalScreen[None]):
    """Closed by the keys that close things."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help VerticalScroll { width: 76; max-width: 95%; height: auto; max-height: 90%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,question_mark,f1", "close", "Close", id="help.close"),
    ]

    def __init__(self, title: str, text: str, keys: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self._heading = title
        self._text = text
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One box."""
        text = Content.assemble(self._text, "\n\n", pairs(self._keys)) if self._keys else self._text
        with VerticalScroll():
            yield Panel(self._heading, text)

    def action_close(self) -> None:
        """Back to the page."""
        self.dismiss(None)
