"""A data file of any type, as chunks of numbered rows in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from engine.rows import tables
from engine.rows.jsontext import json_chunks
from engine.rows.lines import TextLines, after_mark, line_chunks
from engine.rows.sources import Source
from engine.rows.values import Chunk, DataError, Numbered
from engine.theirs import why

PACKED: Mapping[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""First bytes of a compressed file → what opens it."""
FOREIGN: Mapping[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("a ZIP archive, or a spreadsheet", "unpack it, or export it as CSV"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", "unpack it with unzstd"),
    b"%PDF": ("a PDF document", "export its text"),
    b"SQLite format 3\x00": ("an SQLite database", "export it as CSV"),
    b"version https://git-lfs": ("a pointer of Git LFS", "run git lfs pull"),
}
"""First bytes of files that hold no rows → what they are, and what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileType:
    """How files of one kind are read."""

    name: str
    unit: str
    """What its numbers count: `line` or `row`."""


JSON = FileType(name="JSON", unit="line")
CSV = FileType(name="CSV", unit="line")
TEXT = FileType(name="text", unit="line")
PARQUET = FileType(name="Parquet", unit="row")
ARROW = FileType(name="Arrow", unit="row")
FOLDER = FileType(name="Arrow folder", unit="row")
SUFFIXES: Mapping[str, FileType] = {".csv": CSV, ".tsv": CSV, ".txt": TEXT}
"""Suffix → type, for text that could be several; everything else is told by its first bytes."""


def file_type(path: Path) -> FileType:
    """The type of a file or folder.

    Raises DataError for what holds no rows, OSError when it cannot be read.
    """
    if path.is_dir():
        return FOLDER
    with path.open("rb") as file:
        start = file.read(32)
    for magic, (what, fix) in FOREIGN.items():
        if start.startswith(magic):
            raise DataError(f"not data but {what}", fix)
    if start.startswith(b"PAR1"):
        return PARQUET
    if start.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return ARROW
    if path.suffix.lower() == ".parquet":
        raise DataError("not a whole Parquet file: it does not begin as one", "is it complete?")
    packed = next((True for magic in PACKED if start.startswith(magic)), False)
    suffix = Path(path.stem).suffix if packed else path.suffix
    return SUFFIXES.get(suffix.lower(), JSON)


def chunks(path: Path) -> Iterator[Chunk]:
    """Every row of a file, in chunks.

    Raises DataError when it cannot be read from here on, OSError when the disk fails.
    """
    kind = file_type(path)
    if kind is FOLDER:
        yield from tables.folder_chunks(path)
    elif kind is PARQUET:
        yield from tables.parquet_chunks(path)
    elif kind is ARROW:
        yield from tables.arrow_chunks(path)
    else:
        yield from _text_chunks(path, kind)


def _text_chunks(path: Path, kind: FileType) -> Iterator[Chunk]:
    readers: Mapping[str, Callable[[BinaryIO], Iterator[Chunk]]] = {
        CSV.name: tables.csv_chunks,
        TEXT.name: _plain_lines,
        JSON.name: json_chunks,
    }
    with _opened(path) as file:
        try:
            yield from readers[kind.name](file)
        except (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error) as error:
            raise DataError(
                f"not a whole compressed file: {why(error)}", "is it complete?"
            ) from None


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        start = file.read(8)
    for magic, opener in PACKED.items():
        if start.startswith(magic):
            return cast(BinaryIO, opener(path, "rb"))
    return path.open("rb")


def _plain_lines(file: BinaryIO) -> Iterator[Chunk]:
    return line_chunks(after_mark(file), TextLines)


def rows(path: Path) -> Iterator[Numbered]:
    """(number, row) of every row of a file; a row that cannot be read is a RowError.

    Raises DataError when the file cannot be read from here on, OSError when the disk fails.
    """
    for chunk in chunks(path):
        yield from chunk.rows()


def source_bytes(source: Source) -> int:
    """Size of all that a set consists of."""
    return sum(map(disk_bytes, source.parts))


def disk_bytes(path: Path) -> int:
    """Size of a file, or of all that a folder of Arrow files holds."""
    if path.is_dir():
        return sum(file.stat().st_size for file in tables.folder_files(path))
    return path.stat().st_size
