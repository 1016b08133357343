"""JSON values of a file, one after another, each with its line, in bounded memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import BinaryIO

from engine.rows.lines import (
    ROW_LIMIT_BYTES,
    TOO_LONG,
    JsonLines,
    after_mark,
    json_value,
    line_chunks,
    reason,
)
from engine.rows.values import Chunk, DataError, Numbered, Parsed, RowError

CHUNK_BYTES = 1024**2
CHUNK_ROWS = 1000
LONGEST_WORD = 16
"""Characters at the end that may be half a literal or an escape."""
SPACE = " \t\r\n"


def json_chunks(file: BinaryIO) -> Iterator[Chunk]:
    """Rows of a JSON array, of JSON Lines, or of JSON objects written over several lines.

    Raises DataError where an array or such an object breaks, since what follows has no beginning.
    """
    begin = after_mark(file).tell()
    text = file.read(CHUNK_BYTES).lstrip()
    file.seek(begin)
    if text.startswith(b"[") and not _is_first_of_lines(text):
        yield from _parsed(_array(Text(file)))
    elif _spans_lines(text):
        yield from _parsed(_values(Text(file)))
    else:
        yield from line_chunks(file, JsonLines)


def _is_first_of_lines(text: bytes) -> bool:
    """Whether a list is whole in its line and more lines follow: each line is a row then."""
    first, _, rest = text.partition(b"\n")
    return bool(rest.strip()) and not isinstance(json_value(first), RowError)


def _spans_lines(text: bytes) -> bool:
    """Whether the first object is whole, but not in its first line."""
    first = text.partition(b"\n")[0].strip()
    if first != b"{" and not first.endswith((b",", b":", b"{", b"[")):
        return False
    try:
        json.JSONDecoder().raw_decode(text.decode("utf-8", "ignore"))
    except (ValueError, RecursionError):
        return False
    return True


def _parsed(rows: Iterator[Numbered]) -> Iterator[Chunk]:
    """Chunks of rows; a break in the middle comes after the rows before it."""
    content: list[Numbered] = []
    try:
        for row in rows:
            content.append(row)
            if len(content) == CHUNK_ROWS:
                yield Parsed(content)
                content = []
    except DataError:
        if content:
            yield Parsed(content)
        raise
    if content:
        yield Parsed(content)


def _array(text: Text) -> Iterator[Numbered]:
    text.skip(SPACE)
    text.skip("[", once=True)
    text.skip(SPACE)
    if text.peek() == "]":
        _nothing_after(text)
        return
    while True:
        line = text.line
        yield line, text.value()
        text.skip(SPACE)
        mark = text.peek()
        if mark == "]":
            _nothing_after(text)
            return
        if mark != ",":
            what = "the list ends without `]`" if not mark else "rows are not separated by commas"
            raise DataError(f"broken JSON: {what}", "is the file complete?", line=text.line)
        text.skip(",", once=True)
        text.skip(SPACE)


def _nothing_after(text: Text) -> None:
    text.skip("]", once=True)
    text.skip(SPACE)
    if text.peek():
        what = "broken JSON: more text after the end of the list"
        raise DataError(what, "write all rows into one list, or one to a line", line=text.line)


def _values(text: Text) -> Iterator[Numbered]:
    text.skip(SPACE)
    while text.peek():
        line = text.line
        yield line, text.value()
        text.skip(SPACE)


class Text:
    """A window over the file's text: grows until a value is whole, drops what was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._json = json.JSONDecoder()
        self._buffer = ""
        self._position = 0
        self._ended = False
        self.line = 1

    def peek(self) -> str:
        """The next character; empty at the end."""
        while self._position >= len(self._buffer) and self._grow(CHUNK_BYTES):
            pass
        return self._buffer[self._position : self._position + 1]

    def skip(self, characters: str, *, once: bool = False) -> None:
        """Move past these characters."""
        while (character := self.peek()) and character in characters:
            self.line += character == "\n"
            self._position += 1
            if once:
                return

    def value(self) -> object:
        """The JSON value that begins here.

        Raises DataError when there is none.
        """
        size = CHUNK_BYTES
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._position)
                if end < len(self._buffer) or not self._grow(size):
                    break
            except (ValueError, RecursionError) as error:
                line = self.line + _lines_before(error, self._position)
                if not self._may_be_cut(error) or not self._grow(size):
                    what = f"broken JSON: {reason(error)}"
                    raise DataError(what, "repair this row", line=line) from None
            size *= 2
        self.line += self._buffer.count("\n", self._position, end)
        self._position = end
        return value

    def _may_be_cut(self, error: Exception) -> bool:
        """Whether the value may only be longer than what was read of it."""
        if not isinstance(error, json.JSONDecodeError):
            return False
        near_end = error.pos >= len(self._buffer) - LONGEST_WORD
        return near_end or error.msg.startswith("Unterminated string")

    def _grow(self, size: int) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        if len(self._buffer) - self._position > ROW_LIMIT_BYTES:
            raise DataError(f"a row {TOO_LONG}", "is a quote or a bracket missing?", line=self.line)
        raw = self._file.read(size)
        self._ended = not raw
        self._buffer = self._buffer[self._position :] + self._decode(raw)
        self._position = 0
        return bool(raw)

    def _decode(self, raw: bytes) -> str:
        try:
            return self._decoder.decode(raw, final=self._ended)
        except UnicodeDecodeError as error:
            line = self.line + self._buffer.count("\n", self._position)
            line += raw[: error.start].count(b"\n")
            raise DataError("not UTF-8", "save the file as UTF-8", line=line) from None


def _lines_before(error: Exception, start: int) -> int:
    """Lines between where a value begins and where it breaks."""
    if not isinstance(error, json.JSONDecodeError):
        return 0
    return error.doc.count("\n", start, error.pos)
