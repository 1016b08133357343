"""Aligned text tables: values in, lines of plain text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import VerticalGroup
from textual.content import Content
from textual.events import Click
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from wizard import wording
from wizard.language import said, said_title, said_value
from wizard.widgets.panel import redraw
from wizard.wording import cells as cell_len

GAP = 2
NAMED = frozenset({"name", "run", "folder", "model", "architecture", "system"})
"""Labels of what others named: one word there is a name, whatever it means elsewhere."""
SHORTEST = 8
"""Cells that a flexible column keeps at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column; a flexible one gives way when the line is too long."""

    title: str
    right: bool = False
    flexible: bool = False
    keep_end: bool = False
    """Shortened in the middle, because what tells rows apart stands at the end."""
    names: bool = False
    """Its cells are names that others gave: they are in no language of ours."""
    optional: bool = False
    """Left out whole where there is no room for it, the last one first."""


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The header line and one line per row, cells aligned.

    Optional columns are left out where there is no room, then flexible cells shortened: no number
    is ever cut.
    """
    table = [
        [said_title(column.title) for column in columns],
        *([_cell(c, cell) for c, cell in zip(columns, row, strict=True)] for row in rows),
    ]
    widths = [max(cell_len(row[i]) for row in table) for i in range(len(columns))]
    shown = list(range(len(columns)))
    optional = [i for i in shown if columns[i].optional]
    while (over := sum(widths[i] + GAP for i in shown) - GAP - width) > 0 and optional:
        shown.remove(optional.pop())
    for i in shown:
        if columns[i].flexible and over > 0:
            kept = max(widths[i] - over, cell_len(said_title(columns[i].title)), SHORTEST)
            over -= widths[i] - kept
            widths[i] = kept
    return [_line([(columns[i], row[i], widths[i]) for i in shown]) for row in table]


def _cell(column: Column, text: str) -> str:
    return wording.one_line(text if column.names else said_value(text))


def _line(row: Sequence[tuple[Column, str, int]]) -> str:
    """(column, cell, width) of each cell → the line."""
    cells = []
    for column, cell, width in row:
        shorten = wording.shorten if column.keep_end else wording.cut
        text = cell if cell_len(cell) <= width else shorten(cell, width)
        padding = " " * (width - cell_len(text))
        cells.append(padding + text if column.right else text + padding)
    return (" " * GAP).join(cells).rstrip()


def counted(number: int | None, thing: str) -> str:
    """A number of things: `1 device`, `2 devices`."""
    return f"{wording.count(number)} {thing}" + ("" if number == 1 else "s")


def pairs(rows: Sequence[tuple[str, object]]) -> Content:
    """Labels and values, one pair a line, the values aligned."""
    labels = [said(label) for label, _ in rows]
    width = max(map(cell_len, labels), default=0)
    parts: list[Content] = []
    for label, (key, value) in zip(labels, rows, strict=True):
        named = key in NAMED and " " not in str(value) and value != wording.UNKNOWN
        shown = Content(wording.one_line(str(value) if named else said_value(str(value))))
        head = f"{wording.padded(label, width)}  "
        parts.append(Content.assemble((head, "$foreground-muted"), shown))
    return Content("\n").join(parts)


class Rows(OptionList):
    """A table whose rows can be picked; the marked row is told by a `>` as well."""

    DEFAULT_CSS = """
    Rows { height: auto; border: none; padding: 0; background: transparent; }
    Rows { scrollbar-size-vertical: 1; }
    """

    @dataclass
    class Clicked(Message):
        """A row was clicked and is marked now; `again` when it was marked before."""

        again: bool

    def on_click(self, event: Click) -> None:
        """Mark the row under the pointer."""
        event.prevent_default()
        row = event.style.meta.get("option")
        if isinstance(row, int):
            again = row == self.highlighted
            self.highlighted = row
            self.post_message(self.Clicked(again))

    def show(self, rows: Sequence[str], highlighted: int | None = 0) -> None:
        """Replace all rows by these lines of plain text."""
        self.clear_options()
        self.add_options(Option(Content("  " + wording.one_line(row))) for row in rows)
        self.highlighted = highlighted if rows else None

    def watch_highlighted(self, highlighted: int | None) -> None:
        """Move the `>` with the cursor."""
        for index in range(self.option_count):
            prompt = self.get_option_at_index(index).prompt
            mark = "> " if index == highlighted else "  "
            text = prompt.plain if isinstance(prompt, Content) else str(prompt)
            if not text.startswith(mark):
                self.replace_option_prompt_at_index(index, Content(mark + text[2:]))
        super().watch_highlighted(highlighted)


class Table(VerticalGroup):
    """Rows that can be picked under a line of titles, laid out anew when the room changes."""

    DEFAULT_CSS = """
    Table > Static { text-wrap: nowrap; color: $foreground-muted; }
    Table > Rows { text-wrap: nowrap; }
    """
    BESIDE = 3
    """Cells of a line for the mark and the scrollbar."""

    def __init__(self) -> None:
        super().__init__()
        self._columns: Sequence[Column] = ()
        self._cells: Sequence[Sequence[str]] = ()
        self._laid_out_for = 0

    def compose(self) -> ComposeResult:
        """Titles and rows."""
        yield Static(id="head", markup=False)
        yield Rows(id="rows")

    @property
    def rows(self) -> Rows:
        """The rows, to be asked for the marked one."""
        return self.query_one(Rows)

    def show(
        self, columns: Sequence[Column], rows: Sequence[Sequence[str]], marked: int | None = 0
    ) -> None:
        """Replace all rows by these cells."""
        self._columns, self._cells = columns, rows
        self._lay_out(marked)

    def on_resize(self) -> None:
        """Columns are as wide as there is room."""
        if self._columns and self.size.width != self._laid_out_for:
            self._lay_out(self.rows.highlighted)

    def _lay_out(self, marked: int | None) -> None:
        self._laid_out_for = self.size.width
        room = (self.size.width or self.screen.size.width) - self.BESIDE
        head, *body = lines(self._columns, self._cells, max(room, 30))
        redraw(self.query_one("#head", Static), "  " + head)
        self.rows.show(body, marked)
