"""Something to read over a page, until a key that closes things."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widgets import Static

from wizard.language import said
from wizard.widgets.folding import folded
from wizard.widgets.frames import OneFrame
from wizard.widgets.panel import name_box, redraw

MORE = "Up, Down and Page Down show the rest; Esc closes"


class Prose(Static):
    """A long text, which is not wrapped anew each time that the toolkit asks how high it is."""

    def __init__(self, content: Content) -> None:
        super().__init__(content, markup=False)
        self._lines: tuple[object, dict[int, Content]] = (None, {})
        """The text, and width → its lines; a box is measured with a scrollbar as well."""
        self._heights: dict[int, int] = {}
        """Width → number of lines."""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Lines of the text at a width."""
        lines = self._at(width)
        if width not in self._heights:
            self._heights[width] = lines.get_height(self.styles.get_rules(), width)
        return self._heights[width]

    def render(self) -> Content:
        """The text in lines of the box."""
        return self._at(self.content_size.width)

    def _at(self, width: int) -> Content:
        text = self.content
        if self._lines[0] is not text:
            self._lines = (text, {})
            self._heights.clear()
        known = self._lines[1]
        if width not in known:
            known[width] = folded(text if isinstance(text, Content) else Content(str(text)), width)
        return known[width]


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

    def compose(self) -> ComposeResult:
        """One box."""
        with VerticalScroll():
            yield Prose(self._text())

    def on_mount(self) -> None:
        """What came while the box was being made."""
        self._draw_text()

    def on_resize(self) -> None:
        """The room changed."""
        self.call_after_refresh(self._tell_more)

    def show(self, content: Content | str) -> None:
        """Replace the text; before the box is there, it will have this one."""
        self._content = content
        if self.is_mounted:
            self._draw_text()

    def _draw_text(self) -> None:
        redraw(self.query_one(Prose), self._text())
        self.call_after_refresh(self._tell_more)

    def _text(self) -> Content:
        content = self._content
        return Content(said(content)) if isinstance(content, str) else content

    def _tell_more(self) -> None:
        """Say at the lower edge which keys show the rest, where there is more."""
        box = self.query_one(VerticalScroll)
        name_box(box, self._heading, MORE if box.max_scroll_y else "")

    def action_close(self) -> None:
        """Back to the page."""
        self.dismiss(None)
