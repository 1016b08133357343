"""Something to read over a page, until a key that closes things."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from wizard.widgets.frames import OneFrame
from wizard.widgets.panel import Panel


class Sheet(ModalScreen[None], OneFrame):
    """A box of text as long as it needs to be; arrows scroll it."""

    DEFAULT_CSS = """
    Sheet { align: center middle; }
    Sheet VerticalScroll { width: 112; max-width: 98%; height: auto; max-height: 94%; }
    Sheet VerticalScroll { scrollbar-size-vertical: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "escape,enter,q,question_mark,f1",
            "close",
            "Close",
            id="sheet.close",
            tooltip="Back to the page",
        ),
    ]

    def __init__(self, title: str, content: Content | str) -> None:
        super().__init__()
        self._heading = title
        self._content = content

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll():
            yield Panel(self._heading, self._content)

    def on_mount(self) -> None:
        """What came while the box was being made."""
        self.query_one(Panel).show(self._content)

    def show(self, content: Content | str) -> None:
        """Replace the text; before the box is there, it will have this one."""
        self._content = content
        if self.is_mounted:
            self.query_one(Panel).show(content)

    def action_close(self) -> None:
        """Back to the page."""
        self.dismiss(None)
