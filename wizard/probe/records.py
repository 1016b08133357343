"""JSON values of a file, one after another, each with its line, in bounded memory."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

CHUNK_BYTES = 1024**2
RECORD_LIMIT_CHARS = 64 * 1024**2
"""A longer row is no training example; reading it would fill the memory."""
SPACE = " \t\r\n"
OTHER_FORMATS = {
    b"\x1f\x8b": ("compressed with gzip", "unpack it with gunzip"),
    b"PK\x03\x04": ("a ZIP archive", "unpack it"),
    b"PAR1": ("a Parquet file", "export it as JSON Lines"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One JSON value and the line it begins on."""

    line: int
    value: object


@dataclass(frozen=True, kw_only=True, slots=True)
class BadRecord:
    """A line that is not JSON."""

    line: int
    what: str


class UnreadableError(Exception):
    """The file cannot be read past this line."""

    def __init__(self, line: int, what: str, fix: str) -> None:
        super().__init__(what)
        self.line, self.what, self.fix = line, what, fix


def read_records(path: Path) -> Iterator[Record | BadRecord]:
    """Every value of a JSON array or of JSON Lines; the first character that is not space decides.

    Raises UnreadableError for a file in another format, OSError when the disk fails.
    """
    with path.open("rb") as file:
        start = file.read(CHUNK_BYTES)
        for magic, (what, fix) in OTHER_FORMATS.items():
            if start.startswith(magic):
                raise UnreadableError(1, f"not JSON but {what}", fix)
        first = start.removeprefix(codecs.BOM_UTF8).lstrip()[:1]
        file.seek(len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0)
        yield from _array(file) if first == b"[" else _lines(file)


def _lines(file: BinaryIO) -> Iterator[Record | BadRecord]:
    line = 0
    while raw := file.readline(RECORD_LIMIT_CHARS):
        line += 1
        if len(raw) == RECORD_LIMIT_CHARS and not raw.endswith(b"\n"):
            raise UnreadableError(line, _too_long(), "split the file into one row per line")
        if not raw.strip():
            continue
        try:
            yield Record(line=line, value=json.loads(raw.decode("utf-8")))
        except UnicodeDecodeError:
            yield BadRecord(line=line, what="not UTF-8 text")
        except (ValueError, RecursionError) as error:
            yield BadRecord(line=line, what=f"not valid JSON: {_reason(error)}")


def _array(file: BinaryIO) -> Iterator[Record]:
    text = _Text(file)
    text.skip(SPACE)
    text.skip("[", once=True)
    text.skip(SPACE)
    if text.peek() == "]":
        return
    while True:
        line = text.line
        yield Record(line=line, value=text.value())
        text.skip(SPACE)
        mark = text.peek()
        if mark == "]":
            return
        if mark != ",":
            raise UnreadableError(
                text.line,
                "the list ends without `]`" if not mark else "rows are not separated by commas",
                "is the file complete?",
            )
        text.skip(",", once=True)
        text.skip(SPACE)


class _Text:
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
        """The JSON value that begins here."""
        size = CHUNK_BYTES
        while True:
            try:
                value, end = self._json.raw_decode(self._buffer, self._position)
                if end < len(self._buffer) or not self._grow(size):
                    break
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._grow(size):
                    what = f"not valid JSON: {_reason(error)}"
                    raise UnreadableError(self.line, what, "repair this row") from None
            size *= 2
        self.line += self._buffer.count("\n", self._position, end)
        self._position = end
        return value

    def _grow(self, size: int) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        if len(self._buffer) - self._position > RECORD_LIMIT_CHARS:
            raise UnreadableError(self.line, _too_long(), "is a quote or a bracket missing?")
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
            raise _not_utf8(line + raw[: error.start].count(b"\n")) from None


def _not_utf8(line: int) -> UnreadableError:
    return UnreadableError(line, "not UTF-8 text", "save the file as UTF-8")


def _too_long() -> str:
    return f"a row longer than {RECORD_LIMIT_CHARS // 1024**2} MiB"


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at column {error.colno}"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
