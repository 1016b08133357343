"""Prepare: data sets become tokens on disk, once, with a report of what was kept and why not.

`python -m engine.prepare spec.toml --run RUN` is the stage of a run. With `--preview` it shows
instead what a data set would become, as JSON lines, and writes nothing: see `engine.preview`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import sys
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine import lengths, tokenise
from engine.data import ChatTokenizer, chat_template
from engine.failure import RunError, command
from engine.fetch import read_fetched, read_spec
from engine.record import read_json, tell, write_json
from engine.rows import files, sources, tables
from engine.rows.formats import format_named
from engine.rows.sources import Source
from engine.rows.values import Chunk, DataError
from engine.spec import DataTable, Spec
from engine.tokenise import NAMED_ROWS, Batch, Counts, Work

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "config.json")
DROPPED_TOLD = 20
PREPARED_VERSION = 2
"""Counts up when the same data and settings make other tokens than before."""


def prepare(spec: Spec, run: Path) -> dict[str, Any]:
    """Make `prepared/` unless it is there already; its report.

    Raises RunError: bad_data for a file or too many rows that cannot be used, bad_spec for a
    model without a usable tokenizer or template.
    """
    model = read_fetched(run).path
    found = find_sources(spec.data)
    tokenizer = load_tokenizer(model)
    template = chat_template(spec.model.template, tokenizer)
    data_hash = _hash(spec, found, model, template)
    there = _read_report(run)
    if there is not None and there["data_hash"] == data_hash:
        return there
    work = work_for(spec.data, ChatTokenizer(tokenizer, template, spec.data.max_length))
    part = run / "prepared.tmp"
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
    except FileNotFoundError:  # it is not made again: somebody removed it
        raise RunError("disk_full", f"{run}: the run folder is gone") from None
    try:
        report = _taken_over(run, part, data_hash, found) or _write(spec, found, work, part)
        report = {**report, "data_hash": data_hash, "template": _template_name(spec)}
        write_json(part / "report.json", report)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    shutil.rmtree(run / "prepared", ignore_errors=True)
    os.replace(part, run / "prepared")
    return report


def find_sources(table: DataTable) -> tuple[Source, ...]:
    """The data sets of a run.

    Raises RunError (bad_data) when one is not there.
    """
    try:
        found = sources.sources(table.data)
    except DataError as error:
        raise RunError("bad_data", f"{error.what}; {error.fix}") from None
    for source in found:
        if not source.path.exists():
            raise RunError("bad_data", f"{source.path}: no such data file")
    return found


def work_for(table: DataTable, maker: tokenise.Maker) -> Work:
    """What is done with each row.

    Raises RunError (bad_data) for columns that no format has.
    """
    try:
        reading = sources.reading(table.columns, table.model_name, table.model_author)
    except DataError as error:
        raise RunError("bad_data", f"{error.what}; {error.fix}") from None
    return Work(maker=maker, reading=reading, system=table.system)


def load_tokenizer(model: Path) -> Any:
    """The tokenizer of a model folder, run by no code of the model's.

    Raises RunError (bad_spec) when there is none that can say where its tokens come from.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(str(model), trust_remote_code=False)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RunError("bad_spec", f"{model}: its tokenizer cannot be loaded ({first})") from None
    if not tokenizer.is_fast:
        raise RunError("bad_spec", f"{model}: needs a tokenizer.json")
    return tokenizer


def _template_name(spec: Spec) -> str:
    return spec.model.template or "the model's own"


def _taken_over(
    run: Path, part: Path, data_hash: str, found: Sequence[Source]
) -> dict[str, Any] | None:
    """What another run beside this one prepared of the same rows by the same settings."""
    for file in sorted(run.parent.glob("*/prepared/report.json")):
        other, rows = file.parent.parent, file.parent / "rows.arrow"
        report = _read_report(other)
        if other == run or report is None or report["data_hash"] != data_hash or not _is_own(other):
            continue
        with suppress(OSError):
            _link(rows, part / "rows.arrow")
            return _under_names(report, [str(source.path) for source in found])
        (part / "rows.arrow").unlink(missing_ok=True)
    return None


def _link(there: Path, here: Path) -> None:
    """Prepared rows are never changed, so two runs can share them; a copy where links end."""
    try:
        os.link(there, here)
    except OSError:
        shutil.copyfile(there, here)


def _is_own(run: Path) -> bool:
    """Whether nobody else can have written into what a run prepared."""
    folder = run.stat()
    private = folder.st_uid == os.getuid() and not folder.st_mode & 0o077
    inside = [run, run / "prepared", run / "prepared/rows.arrow"]
    mine = (path.stat() for path in inside)
    return private or all(f.st_uid == os.getuid() and not f.st_mode & 0o022 for f in mine)


def _under_names(report: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """A report of the same rows in files that may be called otherwise."""
    renamed = {part["file"]: name for part, name in zip(report["sets"], names, strict=True)}
    return {
        **report,
        "sets": [{**part, "file": renamed[part["file"]]} for part in report["sets"]],
        "dropped": [{**row, "file": renamed[row["file"]]} for row in report["dropped"]],
    }


def _write(spec: Spec, found: Sequence[Source], work: Work, folder: Path) -> dict[str, Any]:
    whole, sets, ranges = Counts(), [], []
    columns = tokenise.schema(work.maker.columns)
    named: list[dict[str, Any]] = []
    with _Arrow(folder / "rows.arrow", columns) as out:
        for source in found:
            counts, row_format = _write_set(source, spec.data, work, out)
            ranges.append((whole.kept, whole.kept + counts.kept))
            named += dropped_rows(source, counts)
            sets.append(set_report(source, counts, row_format))
            whole.add(counts)
    reason = refusal(whole, spec.data, found, named)
    if reason is not None:
        raise RunError("bad_data", reason)
    taken = _taken(found, ranges, spec.training.seed)
    if taken is not None:
        _rewrite(folder / "rows.arrow", taken)
    return {
        **summary(whole, spec.data.max_length),
        "schema": 1,
        "kept": whole.kept if taken is None else len(taken),
        "usable": whole.kept,
        "dropped": named[:NAMED_ROWS],
        "sets": sets,
        "format": ", ".join(sorted({str(part["format"]) for part in sets})),
    }


def summary(counts: Counts, max_length: int) -> dict[str, Any]:
    """Counts of rows and tokens as plain values; tokens are those of one pass over every set."""
    kept = lengths.cut(counts.lengths, max_length)
    return {
        "rows": counts.rows,
        "kept": counts.kept,
        "dropped_rows": counts.dropped_rows,
        "cut_rows": counts.cut_rows,
        "unfilled_rows": counts.unfilled_rows,
        "lengths": lengths.percentiles(kept) if kept else {},
        "whole_lengths": lengths.percentiles(counts.lengths) if counts.lengths else {},
        "histogram": lengths.histogram(counts.lengths),
        "total_tokens": counts.total_tokens,
        "trained_tokens": counts.trained_tokens,
    }


def _write_set(
    source: Source, table: DataTable, work: Work, out: _Arrow
) -> tuple[Counts, str | None]:
    """Append the usable rows of one set; what became of its rows, and their format."""
    counts, said = Counts(), None
    for batch in set_batches(source, table, work):
        counts.add(batch.counts)
        said = said or batch.format
        out.write(batch.content)
    return counts, said


def set_batches(source: Source, table: DataTable, work: Work) -> Iterator[Batch]:
    """The rows of one set, done.

    Raises RunError (bad_data) where its file cannot be read from there on.
    """
    expected = None if table.data_format == "auto" else format_named(table.data_format)
    try:
        processes = tokenise.processes_for(files.disk_bytes(source.path))
        chunks = _readable(source)
        yield from tokenise.batches(chunks, work, expected, processes)
    except DataError as error:
        raise unreadable(source, error) from None


def _readable(source: Source) -> Iterator[Chunk]:
    try:
        yield from files.chunks(source.path)
    except OSError as error:
        raise RunError("bad_data", f"{source.path}: {error.strerror or error}") from None


def unreadable(source: Source, error: DataError) -> RunError:
    """A file that cannot be used, in one sentence."""
    unit = files.file_type(source.path).unit if error.line else ""
    place = f"{unit} {error.line}: " if error.line else ""
    return RunError("bad_data", f"{source.path}: {place}{error.what}; {error.fix}")


def dropped_rows(source: Source, counts: Counts) -> list[dict[str, Any]]:
    """The first bad rows of a set: where they are, and why they are not used."""
    unit = files.file_type(source.path).unit
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
    }


def _taken(
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


class _Arrow:
    """An Arrow stream that is written batch by batch."""

    def __init__(self, path: Path, schema: Any) -> None:
        import pyarrow as pa  # type: ignore[import-untyped]

        self._schema = schema
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, schema)

    def write(self, content: bytes) -> None:
        """Add a record batch."""
        import pyarrow as pa

        batch = pa.ipc.read_record_batch(pa.py_buffer(content), self._schema)
        if batch.num_rows:
            self._stream.write_batch(batch)

    def __enter__(self) -> _Arrow:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()
        self._file.close()


def _rewrite(path: Path, taken: Sequence[int]) -> None:
    """Keep the rows at these positions, which are in order."""
    import pyarrow as pa

    whole = path.with_name("usable.arrow")
    os.replace(path, whole)
    with (
        pa.memory_map(str(whole)) as source,
        pa.ipc.open_stream(source) as stream,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, stream.schema) as out,
    ):
        for batch, positions in _positions(stream, taken):
            out.write_batch(batch.take(pa.array(positions, pa.int64())))
    whole.unlink()


def _positions(stream: Any, taken: Sequence[int]) -> Iterator[tuple[Any, list[int]]]:
    first = 0
    for batch in stream:
        after = first + batch.num_rows
        inside = taken[bisect_left(taken, first) : bisect_left(taken, after)]
        if inside:
            yield batch, [place - first for place in inside]
        first = after


def refusal(
    counts: Counts,
    table: DataTable,
    found: Sequence[Source],
    named: Sequence[Mapping[str, Any]],
) -> str | None:
    """Why a run would not start with what became of these rows; None when it would."""
    if counts.rows == 0:
        return ", ".join(str(source.path) for source in found) + ": has no rows"
    percent = 100 * counts.dropped_rows / counts.rows
    if counts.kept and percent <= table.max_dropped_percent:
        return None
    first = named[0]
    return (
        f"{first['file']}: {counts.dropped_rows} of {counts.rows} rows cannot be used "
        f"({percent:.1f} %, {table.max_dropped_percent:g} % allowed); the first is "
        f"{first['unit']} {first['line']}: {first['reason']}"
    )


def _hash(spec: Spec, found: Sequence[Source], model: Path, template: str) -> str:
    """What the tokens depend on, as one SHA-256."""
    whole = hashlib.sha256()
    settings = spec.data.model_dump(exclude={"data", "max_dropped_percent"})
    sets = [[source.rows, source.weight] for source in found]
    depends = ["prepared", PREPARED_VERSION, settings, sets, spec.training.seed, template]
    whole.update(json.dumps(depends, sort_keys=True).encode())
    data = [
        file
        for source in found
        for file in (tables.folder_files(source.path) if source.path.is_dir() else [source.path])
    ]
    for file in [*data, *(model / name for name in TOKENIZER_FILES)]:
        if file.is_file():
            with file.open("rb") as content:
                whole.update(hashlib.file_digest(content, "sha256").digest())
    return whole.hexdigest()


def _read_report(run: Path) -> dict[str, Any] | None:
    report = read_json(run / "prepared/report.json")
    whole = isinstance(report.get("data_hash"), str) and (run / "prepared/rows.arrow").is_file()
    return report if whole else None


def read_report(run: Path) -> dict[str, Any]:
    """The report of what was prepared for this run.

    Raises RunError (bad_data) when nothing was.
    """
    report = _read_report(run)
    if report is None:
        raise RunError("bad_data", f"{run}: no prepared data; run `engine.prepare` first")
    return report


def cut_warning(report: Mapping[str, Any], max_length: int) -> str:
    """What a run with rows that did not fit has to say; empty when all did."""
    cut, kept = report["cut_rows"], report.get("usable", report["kept"])
    if not cut:
        return ""
    whose, be = ("its", "is") if cut == 1 else ("their", "are")
    return (
        f"{cut:,} of {kept:,} rows {be} longer than max_length={max_length} and cut at the end: "
        f"{whose} last answer does not end"
    )


def main() -> int:
    """Prepare the data of a spec; the exit code."""
    if "--preview" in sys.argv[1:]:
        from engine import preview

        return preview.main([word for word in sys.argv[1:] if word != "--preview"])
    parser = argparse.ArgumentParser(prog="engine.prepare", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--run", type=Path, default=Path())
    options = parser.parse_args()

    def body() -> None:
        run = options.run.absolute()
        spec = read_spec(options.spec)
        report = prepare(spec, run)
        for line in told(report):
            print(line)  # noqa: T201
        for warning in warnings(report, spec.data.max_length):
            print(warning, file=sys.stderr)  # noqa: T201
            tell(run, {}, "warn", text=warning)

    return command(body)


def told(report: Mapping[str, Any]) -> list[str]:
    """A report in a few lines."""
    share = 100 * report["trained_tokens"] / report["total_tokens"]
    spread = ", ".join(f"{name} {value:,}" for name, value in report["lengths"].items())
    lines = [
        f"{report['usable']:,} of {report['rows']:,} rows can be used, {report['cut_rows']:,} of "
        f"them cut; an epoch has {report['kept']:,}",
        f"tokens in a row: {spread}",
        f"{report['trained_tokens']:,} of {report['total_tokens']:,} tokens are learnt "
        f"({share:.1f} %)",
    ]
    for row in report["dropped"][:DROPPED_TOLD]:
        lines.append(f"dropped: {row['file']}, {row['unit']} {row['line']}: {row['reason']}")
    more = report["dropped_rows"] - len(lines[3:])
    return [*lines, f"dropped: {more:,} more"] if more > 0 else lines


def warnings(report: Mapping[str, Any], max_length: int) -> list[str]:
    """What the user of a run should know of its data."""
    said = [cut_warning(report, max_length)]
    if report["unfilled_rows"]:
        said.append(
            f"{report['unfilled_rows']:,} rows have {{{{NAME}}}} or {{{{AUTHOR}}}} in them: set "
            "model_name and model_author, or they are learnt as they stand"
        )
    for part in report["sets"]:
        if part["taken"] > part["usable"]:
            said.append(
                f"{part['file']}: {part['usable']:,} usable rows, seen {part['taken']:,} times "
                "in an epoch: some repeat"
            )
    return [text for text in said if text]


if __name__ == "__main__":
    sys.exit(main())
