"""Aligned text tables: values in, lines of plain text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from wizard import wording
from wizard.language import said, said_value
from wizard.wording import cells as cell_len

GAP = 2
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


def lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """The header line and one line per row, cells aligned; flexible cells are shortened to fit."""
    table = [
        [said(column.title) for column in columns],
        *([_cell(c, cell) for c, cell in zip(columns, row, strict=True)] for row in rows),
    ]
    widths = [max(cell_len(row[i]) for row in table) for i in range(len(columns))]
    over = sum(widths) + GAP * (len(columns) - 1) - width
    for i, column in enumerate(columns):
        if column.flexible and over > 0:
            kept = max(widths[i] - over, cell_len(said(column.title)), SHORTEST)
            over -= widths[i] - kept
            widths[i] = kept
    return [_line(columns, row, widths) for row in table]


def _cell(column: Column, text: str) -> str:
    return wording.one_line(text if column.names else said_value(text))


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = []
    for column, cell, width in zip(columns, row, widths, strict=True):
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
    for label, (_, value) in zip(labels, rows, strict=True):
        shown = Content(wording.one_line(said_value(str(value))))
        head = f"{wording.padded(label, width)}  "
        parts.append(Content.assemble((head, "$foreground-muted"), shown))
    return Content("\n").join(parts)


class Rows(OptionList):
    """A table whose rows can be picked; the marked row is told by a `>` as well."""

    DEFAULT_CSS = """
    Rows { height: auto; border: none; padding: 0; background: transparent; }
    """

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
