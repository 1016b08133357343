"""Something to read over a page, until a key that closes things."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from wizard.language import said
from wizard.widgets.folding import folded
from wizard.widgets.frames import OneFrame
from wizard.widgets.panel import name_box, redraw

MORE = "Up, Down and Page Down show the rest; Esc closes"


class Sheet(ModalScreen[None], OneFrame):
    """A box of text as long as it needs to be; keys scroll what the screen is too short for."""

    DEFAULT_CSS = """
    Sheet { align: center middle; }
    Sheet VerticalScroll { width: 112; max-width: 98%; height: auto; max-height: 94%; }
    Sheet VerticalScroll { scrollbar-size-vertical: 1; border: round; padding: 0 1; }
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
        self._width = 0
        """Cells of a line for which the text is folded; 0 before it is known."""

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll():
            yield Static(markup=False)

    def on_mount(self) -> None:
        """What came while the box was being made."""
        self._draw_text()

    def on_resize(self) -> None:
        """The room changed."""
        self.call_after_refresh(self._fit)

    def show(self, content: Content | str) -> None:
        """Replace the text; before the box is there, it will have this one."""
        self._content = content
        if self.is_mounted:
            self._draw_text()

    def _draw_text(self) -> None:
        text = self._content
        shown = Content(said(text)) if isinstance(text, str) else text
        redraw(self.query_one(Static), folded(shown, self._width))
        self.call_after_refresh(self._fit)

    def _fit(self) -> None:
        width = self.query_one(VerticalScroll).scrollable_content_region.width
        if width != self._width:
            self._width = width
            self._draw_text()
        else:
            self._tell_more()

    def _tell_more(self) -> None:
        """Say at the lower edge which keys show the rest, where there is more."""
        box = self.query_one(VerticalScroll)
        name_box(box, self._heading, MORE if box.max_scroll_y else "")

    def action_close(self) -> None:
        """Back to the page."""
        self.dismiss(None)
