"""Bordered boxes with a title, which show text as it is."""

from __future__ import annotations

from textual.containers import VerticalGroup
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from wizard import wording
from wizard.language import said
from wizard.wording import cells as cell_len


def name_box(box: Widget, title: str, note: str = "") -> None:
    """Title a box, and note something at its lower edge, as plain text."""
    upper, lower = (Content(wording.one_line(said(text))) for text in (title, note))
    if upper.markup != box.border_title:
        box.border_title = upper
    if lower.markup != (box.border_subtitle or ""):
        box.border_subtitle = lower


def redraw(static: Static, content: Content | str) -> None:
    """Replace the text of a Static, and draw it only when text or style changed."""
    new = Content(content) if isinstance(content, str) else content
    before = static.content
    if not isinstance(before, Content):
        static.update(new)
    elif not before.is_same(new):
        static.update(new, layout=not _takes_the_same_room(static, before, new))
        if not static.display:
            static.clear_cached_dimensions()  # its room is asked for when it is shown


def _takes_the_same_room(static: Static, before: Content, new: Content) -> bool:
    """Whether nothing moves: it is not shown, or its room does not depend on its text.

    Else as many lines as before, and none of them was or will be wrapped.
    """
    width, height = static.styles.width, static.styles.height
    if not static.display:
        return True
    if width is not None and not width.is_auto and height is not None and not height.is_auto:
        return True
    old_lines, new_lines = before.plain.split("\n"), new.plain.split("\n")
    if len(old_lines) != len(new_lines) or (width is not None and width.is_auto):
        return False
    return max(map(cell_len, [*old_lines, *new_lines])) <= static.content_size.width


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
        shown = said(content) if isinstance(content, str) else content
        super().__init__(shown, id=id, classes=classes, markup=False)
        name_box(self, title)

    def show(self, content: Content | str) -> None:
        """Replace the text, if it changed; a text that others wrote comes as Content."""
        redraw(self, said(content) if isinstance(content, str) else content)
