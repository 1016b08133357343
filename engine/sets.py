"""The data sets of a run: how each is read, what became of its rows, and whether that will do."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import lengths, tokenise
from engine.examples import READS
from engine.failure import RunError
from engine.methods import STAGE_FORMAT, Stage
from engine.plugins import Preprocessor
from engine.rows import files, sources, tables
from engine.rows.formats import format_named
from engine.rows.sources import Reading, Source
from engine.rows.values import Chunk, DataError
from engine.spec import DataTable
from engine.theirs import why
from engine.tokenise import Batch, Counts, Work

Sources = tuple[Source, ...]


def find_sources(named: str, fetched: Mapping[str, Sequence[str]] | None = None) -> Sources:
    """The data sets that a setting names; `fetched` has the files of those on a hub, by name.

    Without `fetched` a set on a hub is taken from there, or from what was fetched of it before.
    Raises RunError (bad_data) when one is not there.
    """
    try:
        found = sources.sources(named)
        return tuple(_with_files(source, fetched) for source in found)
    except DataError as error:
        raise RunError("bad_data", f"{error.what}; {error.fix}") from None


def _with_files(source: Source, fetched: Mapping[str, Sequence[str]] | None) -> Source:
    wanted = source.hub
    if wanted is None:
        if not sources.exists(source.path):
            raise RunError("bad_data", f"{source.path}: no such data file")
        return source
    if fetched is None:
        from engine.hub.sets import fetch_set

        return replace(source, files=fetch_set(wanted).files)
    files_here = tuple(map(Path, fetched.get(str(source.path), ())))
    if not files_here or not all(map(sources.exists, files_here)):
        raise RunError("bad_data", f"{source.path}: not fetched; run `engine.fetch` first")
    return replace(source, files=files_here)


def work_for(
    table: DataTable,
    stage: Stage,
    maker: tokenise.Maker,
    preprocessor: Preprocessor | None = None,
) -> Work:
    """What is done with each row.

    Raises RunError (bad_data) for columns that no format has.
    """
    try:
        reading = sources.reading(table.columns, table.model_name, table.model_author)
    except DataError as error:
        raise RunError("bad_data", f"{error.what}; {error.fix}") from None
    wanted = STAGE_FORMAT.get(stage, table.data_format)
    return Work(
        maker=maker,
        reading=reading,
        system=table.system,
        expected=None if wanted == "auto" else format_named(wanted),
        stage=stage,
        reads=READS[stage],
        preprocessor=preprocessor,
    )


def set_batches(source: Source, work: Work) -> Iterator[Batch]:
    """The rows of one set, done.

    Raises RunError (bad_data) where a file of it cannot be read from there on.
    """
    several = len(source.parts) > 1
    expected = work.expected
    for path in source.parts:
        try:
            processes = tokenise.processes_for(files.disk_bytes(path))
            for batch in tokenise.batches(_readable(path), work, expected, processes):
                if expected is None and batch.format is not None:
                    expected = format_named(batch.format)
                if several:
                    _name_file(batch.counts, path)
                yield batch
        except DataError as error:
            raise unreadable(path, error) from None


def _name_file(counts: Counts, path: Path) -> None:
    """A dropped row of a set of several files says which of them it is in."""
    counts.dropped = [(line, f"in {path.name}: {reason}") for line, reason in counts.dropped]


def files_of(source: Source) -> Sequence[Path]:
    """The files that a set consists of, each of which can be read.

    Raises RunError (bad_data) where one cannot.
    """
    found: list[Path] = []
    for path in source.parts:
        try:
            inside = tables.folder_files(path) if path.is_dir() else [path]
            for file in inside:
                with file.open("rb"):
                    found.append(file)
        except DataError as error:
            raise unreadable(path, error) from None
        except OSError as error:
            raise RunError("bad_data", f"{path}: {why(error)}") from None
    return found


def check_all_give_rows(parts: Sequence[Mapping[str, Any]]) -> None:
    """Raises RunError (bad_data) for a set that was asked for and gives nothing."""
    for part in parts:
        if not part["taken"]:
            raise RunError(
                "bad_data",
                f"{part['file']}: gives no row ({part['usable']:,} of its {part['rows']:,} can be "
                "used): raise its weight, or leave it out",
            )


def _readable(path: Path) -> Iterator[Chunk]:
    try:
        yield from files.chunks(path)
    except OSError as error:
        raise RunError("bad_data", f"{path}: {why(error)}") from None


def unreadable(path: Path, error: DataError) -> RunError:
    """A file that cannot be used, in one sentence."""
    unit = files.file_type(path).unit if error.line else ""
    place = f"{unit} {error.line}: " if error.line else ""
    return RunError("bad_data", f"{path}: {place}{error.what}; {error.fix}")


def unit_of(source: Source) -> str:
    """What the numbers of its rows count: `line` or `row`."""
    return files.file_type(source.parts[0]).unit


def dropped_rows(source: Source, counts: Counts) -> list[dict[str, Any]]:
    """The first bad rows of a set: where they are, and why they are not used."""
    unit = unit_of(source)
    return [
        {"file": str(source.path), "unit": unit, "line": line, "reason": reason}
        for line, reason in counts.dropped
    ]


def set_report(source: Source, counts: Counts, row_format: str | None) -> dict[str, Any]:
    """What became of one set, as plain values."""
    taken = source.rows_of(counts.kept)
    return {
        "file": str(source.path),
        "format": row_format,
        "rows": counts.rows,
        "usable": counts.kept,
        "dropped_rows": counts.dropped_rows,
        "taken": taken,
        "repeats": source.rows is not None and source.rows > counts.kept,
    }


def rows_taken(
    found: Sequence[Source], ranges: Sequence[tuple[int, int]], seed: int
) -> list[int] | None:
    """Positions of the rows that an epoch has, in order; None when it has each row once."""
    if all(source.rows is None and source.weight == 1 for source in found):
        return None
    taken: list[int] = []
    for number, (source, (first, after)) in enumerate(zip(found, ranges, strict=True)):
        usable = after - first
        passes, rest = divmod(source.rows_of(usable), usable) if usable else (0, 0)
        chosen = random.Random(f"{seed} {number}").sample(range(first, after), rest)
        taken += sorted([*range(first, after)] * passes + chosen)
    return taken


def refusal(
    counts: Counts,
    table: DataTable,
    found: Sequence[Source],
    named: Sequence[Mapping[str, Any]],
    reading: Reading,
) -> str | None:
    """Why a run would not start with what became of these rows; None when it would."""
    if counts.rows == 0:
        return ", ".join(str(source.path) for source in found) + ": has no rows"
    percent = 100 * counts.dropped_rows / counts.rows
    if counts.kept and reading.columns and not counts.renamed_rows:
        return reading.unused()
    if counts.kept and percent <= table.max_dropped_percent:
        return None
    first = named[0]
    allow = (
        f"; max_dropped_percent={math.ceil(percent)} goes on without them" if counts.kept else ""
    )
    share = (
        f"{counts.dropped_rows} of {counts.rows} rows cannot be used "
        f"({percent:.1f} %, {table.max_dropped_percent:g} % allowed)"
    )
    named_first = f"the first is {first['unit']} {first['line']}: {first['reason']}"
    return f"{first['file']}: {share}; {named_first}{allow}"


def cut_length(stage: Stage, table: DataTable) -> int | None:
    """Tokens at which a row is cut."""
    return None if stage == "pretrain" else table.max_length


def summary(counts: Counts, max_length: int | None) -> dict[str, Any]:
    """Counts of rows and tokens as plain values; tokens are those of one pass over every set.

    Without a `max_length` nothing is cut: text goes on in the next block.
    """
    kept = counts.lengths if max_length is None else lengths.cut(counts.lengths, max_length)
    return {
        "rows": counts.rows,
        "kept": counts.kept,
        "dropped_rows": counts.dropped_rows,
        "cut_rows": counts.cut_rows,
        "left_out_rows": counts.left_out_rows,
        "unfilled_rows": counts.unfilled_rows,
        "skipped_answers": counts.skipped_answers,
        "lengths": lengths.percentiles(kept) if kept else {},
        "whole_lengths": lengths.percentiles(counts.lengths) if counts.lengths else {},
        "histogram": lengths.histogram(counts.lengths),
        "total_tokens": counts.total_tokens,
        "trained_tokens": counts.trained_tokens,
    }
