"""Bordered boxes with a title, which show text as it is."""

from __future__ import annotations

from textual.containers import VerticalGroup
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from wizard import wording


def name_box(box: Widget, title: str, note: str = "") -> None:
    """Title a box, and note something at its lower edge, as plain text."""
    box.border_title = Content(wording.one_line(title))
    box.border_subtitle = Content(wording.one_line(note))


class Box(VerticalGroup):
    """A bordered box of widgets with a title."""

    DEFAULT_CSS = """
    Box { border: round; padding: 0 1; }
    """

    def __init__(self, title: str, *, id: str) -> None:  # noqa: A002 – Textual's own name
        super().__init__(id=id)
        name_box(self, title)


class Panel(Static):
    """Shows text as it is: nothing in it is markup."""

    DEFAULT_CSS = """
    Panel { height: auto; border: round; padding: 0 1; }
    """

    def __init__(
        self,
        title: str,
        content: Content | str = "",
        *,
        id: str | None = None,  # noqa: A002 – Textual's own name
        classes: str | None = None,
    ) -> None:
        super().__init__(content, id=id, classes=classes, markup=False)
        name_box(self, title)

    def show(self, content: Content | str) -> None:
        """Replace the text."""
        self.update(content)
