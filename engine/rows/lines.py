"""Files with a row in each line, cut into blocks of whole lines."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from engine.rows.values import Chunk, Numbered, Parsed, RowError
from engine.theirs import why

BLOCK_BYTES = 1024**2
ROW_LIMIT_BYTES = 64 * 1024**2
"""A longer row is no training example; reading it would fill the memory."""
TOO_LONG = f"longer than {ROW_LIMIT_BYTES // 1024**2} MiB"


@dataclass(frozen=True, slots=True)
class JsonLines:
    """Whole lines with a JSON value each."""

    first: int
    content: bytes

    def rows(self) -> Iterator[Numbered]:
        """A row for each line that is not blank."""
        for number, line in _lines(self.first, self.content):
            yield number, json_value(line)


@dataclass(frozen=True, slots=True)
class TextLines:
    """Whole lines of plain text."""

    first: int
    content: bytes

    def rows(self) -> Iterator[Numbered]:
        """A row with only `text` for each line that is not blank."""
        for number, line in _lines(self.first, self.content):
            try:
                yield number, {"text": line.removesuffix(b"\r").decode("utf-8")}
            except UnicodeDecodeError:
                yield number, RowError("not UTF-8")


def _lines(first: int, content: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(content.split(b"\n"), start=first):
        if line and not line.isspace():
            yield number, line


def json_value(line: bytes) -> object:
    """The JSON value in a line, or the RowError it is."""
    try:
        return json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return RowError("not UTF-8")
    except (ValueError, RecursionError) as error:
        return RowError(f"broken JSON: {reason(error)}")


def reason(error: Exception) -> str:
    """Why a text is no JSON, in words that hold for one row."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else why(error)


def after_mark(file: BinaryIO) -> BinaryIO:
    """The file at its first character: behind the mark some editors put before UTF-8."""
    start = file.read(len(codecs.BOM_UTF8))
    file.seek(len(start) if start == codecs.BOM_UTF8 else 0)
    return file


def line_chunks(file: BinaryIO, make: Callable[[int, bytes], Chunk]) -> Iterator[Chunk]:
    """Blocks of whole lines; a line that is too long is one bad row."""
    line, rest = 1, b""
    while block := file.read(BLOCK_BYTES):
        whole, newline, after = block.rpartition(b"\n")
        if newline:
            content = rest + whole
            yield make(line, content)
            line += content.count(b"\n") + 1
            rest = after
            continue
        rest += after
        if len(rest) > ROW_LIMIT_BYTES:
            yield Parsed([(line, RowError(TOO_LONG))])
            rest = b""
            line += 1
            _skip_line(file)
    if rest:
        yield make(line, rest)


def _skip_line(file: BinaryIO) -> None:
    while block := file.read(BLOCK_BYTES):
        _, newline, after = block.partition(b"\n")
        if newline:
            file.seek(-len(after), 1)
            return
