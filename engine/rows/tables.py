"""Rows of tables: CSV text, Parquet and Arrow files, and folders written by `save_to_disk`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from engine.rows.lines import ROW_LIMIT_BYTES, TOO_LONG
from engine.rows.values import Chunk, DataError, Numbered, Parsed, RowError
from engine.theirs import why

CHUNK_ROWS = 1000
DELIMITERS = ",\t;|"


def csv_chunks(file: BinaryIO) -> Iterator[Chunk]:
    """Rows of delimited text under a header.

    Raises DataError without a usable header, or where a quote is never closed.
    """
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    first = text.readline(ROW_LIMIT_BYTES)
    if not first.strip():
        raise DataError("the first line is empty", "the first line of a CSV file names columns")
    text.seek(0)
    csv.field_size_limit(ROW_LIMIT_BYTES)
    delimiter = max(DELIMITERS, key=first.count)
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    header = _header(reader)
    content: list[Numbered] = []
    for numbered in _records(reader, header):
        content.append(numbered)
        if len(content) == CHUNK_ROWS:
            yield Parsed(content)
            content = []
    if content:
        yield Parsed(content)


def _header(reader: Any) -> list[str]:
    try:
        header = [name.strip() for name in next(reader)]
    except csv.Error as error:
        raise DataError(f"broken CSV: {why(error)}", "repair the header", line=1) from None
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise DataError(f"the header names `{twice[0]}` twice", "rename one column", line=1)
    if "" in header:
        raise DataError("a column has no name", "name every column in the header", line=1)
    return header


def _records(reader: Any, header: list[str]) -> Iterator[Numbered]:
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                what = "broken CSV: a quote is opened and never closed"
                raise DataError(what, "close the quote that opens in this row", line=line) from None
            long = "field larger" in str(error)
            yield line, RowError(TOO_LONG if long else f"broken CSV: {why(error)}")
            continue
        if values:
            yield line, _record(values, header)


def _record(values: list[str], header: list[str]) -> object:
    if len(values) != len(header):
        return RowError(f"has {len(values)} fields where the header has {len(header)}")
    for value in values:
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            return RowError("not UTF-8")
    return dict(zip(header, values, strict=True))


def parquet_chunks(path: Path) -> Iterator[Chunk]:
    """Rows of a Parquet file, numbered from 1.

    Raises DataError for a damaged file.
    """
    pyarrow = _pyarrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield from _batches(file.iter_batches(batch_size=CHUNK_ROWS, use_threads=False), 1)
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        raise _damaged("Parquet", error) from None


def arrow_chunks(path: Path) -> Iterator[Chunk]:
    """Rows of an Arrow file or stream, numbered from 1.

    Raises DataError for a damaged file.
    """
    for chunk, _ in _arrow(path, 1):
        yield chunk


def _arrow(path: Path, first: int) -> Iterator[tuple[Chunk, int]]:
    """Chunks, each with the number of the row after it."""
    pyarrow = _pyarrow()
    try:
        with pyarrow.memory_map(str(path)) as source:
            if source.read(6) == b"ARROW1":
                reader = pyarrow.ipc.open_file(source)
                batches = (reader.get_batch(n) for n in range(reader.num_record_batches))
            else:
                source.seek(0)
                batches = iter(pyarrow.ipc.open_stream(source))
            for chunk in _batches(batches, first):
                first += len(chunk.content)
                yield chunk, first
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        raise _damaged("Arrow", error) from None


def _batches(batches: Iterator[Any], first: int) -> Iterator[Parsed]:
    for batch in batches:
        batch.validate(full=True)  # else a damaged file would be read from outside of it
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            rows = batch.slice(start, CHUNK_ROWS).to_pylist()
            yield Parsed([(first + n, _without_nulls(row)) for n, row in enumerate(rows)])
            first += len(rows)


def _without_nulls(value: Any) -> Any:
    """A column that a row does not use is null in it; in JSON it would not be there."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        fix = "pip install pyarrow, or give JSON Lines"
        raise DataError("pyarrow, which reads this file, is not installed", fix) from None
    return pyarrow


def _damaged(kind: str, error: Exception) -> DataError:
    return DataError(f"not a whole {kind} file: {why(error)}", "is the file complete?")


def folder_files(folder: Path) -> list[Path]:
    """The Arrow files of a folder that `datasets` saved, in their order.

    Raises DataError for a folder that is none, or holds several splits.
    """
    splits = _json(folder / "dataset_dict.json").get("splits")
    if isinstance(splits, list) and splits:
        names = ", ".join(map(str, splits))
        raise DataError(f"holds the splits {names}", f"give one of them: {folder / str(splits[0])}")
    listed = _json(folder / "state.json").get("_data_files")
    if not isinstance(listed, list) or not listed:
        raise DataError(
            "a folder, and not one that `datasets` saved with save_to_disk", _inside(folder)
        )
    files = [folder / str(entry.get("filename")) for entry in listed if isinstance(entry, dict)]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise DataError(f"{missing[0]} is missing in it", "copy the whole folder")
    return files


def folder_chunks(folder: Path) -> Iterator[Chunk]:
    """Rows of such a folder, numbered from 1 over all its files."""
    first = 1
    for path in folder_files(folder):
        for chunk, after in _arrow(path, first):
            first = after
            yield chunk


def _inside(folder: Path) -> str:
    try:
        files = sorted(p for p in folder.iterdir() if p.is_file() and p.suffix in SUFFIXES)
    except OSError:
        files = []
    if len(files) > 1:
        return f"name each of its {len(files)} data files with a --data of its own, or join them"
    return f"did you mean {files[0]}?" if files else "give a file"


SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".txt", ".gz")


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
