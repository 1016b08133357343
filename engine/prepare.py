"""Prepare: a data file becomes tokens on disk, once, with a report of what was kept and why not."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.data import (
    IGNORED,
    ChatTokenizer,
    Format,
    RowError,
    Tokens,
    chat_template,
    conversation,
    format_of,
    read_rows,
)
from engine.failure import RunError, command
from engine.fetch import read_fetched, read_spec
from engine.record import read_json, tell, write_json
from engine.spec import DataTable, Spec

DROPPED_SHOWN = 100
ROWS_PER_BATCH = 1000
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "config.json")


@dataclass(kw_only=True, slots=True)
class Counts:
    """What became of the rows so far."""

    rows: int = 0
    dropped_rows: int = 0
    dropped: list[dict[str, Any]] = field(default_factory=list)
    cut_rows: int = 0
    lengths: list[int] = field(default_factory=list)
    trained_tokens: int = 0

    def drop(self, line: int, reason: RowError) -> None:
        """Count a row that is not used; the first hundred are named."""
        self.dropped_rows += 1
        if len(self.dropped) < DROPPED_SHOWN:
            self.dropped.append({"line": line, "reason": str(reason)})

    def keep(self, tokens: Tokens) -> None:
        """Count a row that is used."""
        self.cut_rows += tokens.cut
        self.lengths.append(len(tokens.input_ids))
        self.trained_tokens += sum(label != IGNORED for label in tokens.labels[1:])


def prepare(spec: Spec, run: Path) -> dict[str, Any]:
    """Make `prepared/` unless it is there already; its report.

    Raises RunError: bad_data for a file or too many rows that cannot be used, bad_spec for a
    model without a usable tokenizer or template.
    """
    model = read_fetched(run).path
    path = Path(spec.data.data).expanduser()
    if not path.is_file():
        raise RunError("bad_data", f"{path}: no such data file")
    tokenizer = load_tokenizer(model)
    template = chat_template(spec.model.template, tokenizer)
    data_hash = _hash(spec.data, path, model, template)
    there = _read_report(run)
    if there is not None and there["data_hash"] == data_hash:
        return there
    chat = ChatTokenizer(tokenizer, template, spec.data.max_length)
    part = run / "prepared.tmp"
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
    except FileNotFoundError:  # it is not made again: somebody removed it
        raise RunError("disk_full", f"{run}: the run folder is gone") from None
    try:
        report = _write(spec, path, chat, part, data_hash)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    shutil.rmtree(run / "prepared", ignore_errors=True)
    os.replace(part, run / "prepared")
    return report


def load_tokenizer(model: Path) -> Any:
    """The tokenizer of a model folder, run by no code of the model's.

    Raises RunError (bad_spec) when there is none that can say where its tokens come from.
    """
    from transformers import AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(model), trust_remote_code=False)
    except Exception as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise RunError("bad_spec", f"{model}: its tokenizer cannot be loaded ({first})") from None
    if not tokenizer.is_fast:
        raise RunError("bad_spec", f"{model}: needs a tokenizer.json")
    return tokenizer


def _write(
    spec: Spec, path: Path, chat: ChatTokenizer, folder: Path, data_hash: str
) -> dict[str, Any]:
    counts = Counts()
    rows = read_rows(path)
    data_format, rows = _format(spec.data, path, rows)
    _write_arrow(_tokens(rows, data_format, spec.data, chat, counts), folder / "rows.arrow")
    _check(counts, spec.data, path)
    report = {
        "schema": 1,
        "rows": counts.rows,
        "kept": len(counts.lengths),
        "dropped": counts.dropped,
        "dropped_rows": counts.dropped_rows,
        "cut_rows": counts.cut_rows,
        "lengths": percentiles(counts.lengths),
        "total_tokens": sum(counts.lengths),
        "trained_tokens": counts.trained_tokens,
        "data_hash": data_hash,
        "format": data_format,
        "template": spec.model.template or "the model's own",
    }
    write_json(folder / "report.json", report)
    return report


def _format(
    table: DataTable, path: Path, rows: Iterator[tuple[int, Any]]
) -> tuple[Format, Iterator[tuple[int, Any]]]:
    """The format asked for or told by the first row that can be read, and all rows."""
    if table.data_format != "auto":
        return table.data_format, rows
    seen: list[tuple[int, Any]] = []
    for line, row in rows:
        seen.append((line, row))
        if isinstance(row, RowError):
            continue
        try:
            found = format_of(row)
        except RowError as error:
            raise RunError("bad_data", f"{path}: line {line}: {error}") from None
        return found, _chain(seen, rows)
    if seen:
        line, reason = seen[0]
        raise RunError("bad_data", f"{path}: line {line}: {reason}; no row can be read")
    raise RunError("bad_data", f"{path}: has no rows")


def _chain(
    seen: list[tuple[int, Any]], rest: Iterator[tuple[int, Any]]
) -> Iterator[tuple[int, Any]]:
    yield from seen
    yield from rest


def _tokens(
    rows: Iterator[tuple[int, Any]],
    data_format: Format,
    table: DataTable,
    chat: ChatTokenizer,
    counts: Counts,
) -> Iterator[Tokens]:
    for line, row in rows:
        counts.rows += 1
        try:
            if isinstance(row, RowError):
                raise row
            tokens = chat.tokens(conversation(row, data_format, table.system))
        except RowError as reason:
            counts.drop(line, reason)
            continue
        counts.keep(tokens)
        yield tokens


def _write_arrow(rows: Iterator[Tokens], path: Path) -> None:
    import pyarrow as pa  # type: ignore[import-untyped]

    columns = {"input_ids": pa.list_(pa.int32()), "labels": pa.list_(pa.int32())}
    schema = pa.schema(columns)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        for batch in batches(rows, ROWS_PER_BATCH):
            arrays = [
                pa.array([getattr(t, name) for t in batch], columns[name]) for name in columns
            ]
            stream.write_batch(pa.record_batch(arrays, schema=schema))


def percentiles(lengths: Sequence[int]) -> dict[str, int]:
    """Smallest, median, 95th percentile (nearest rank) and largest of token counts."""
    ordered = sorted(lengths)

    def rank(share: int) -> int:
        return ordered[max(0, -(-len(ordered) * share // 100) - 1)]

    return {"min": ordered[0], "median": rank(50), "p95": rank(95), "max": ordered[-1]}


def batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Lists of at most `size` items."""
    while batch := list(itertools.islice(items, size)):
        yield batch


def _check(counts: Counts, table: DataTable, path: Path) -> None:
    if counts.rows == 0:
        raise RunError("bad_data", f"{path}: has no rows")
    percent = 100 * counts.dropped_rows / counts.rows
    if counts.lengths and percent <= table.max_dropped_percent:
        return
    first = counts.dropped[0]
    raise RunError(
        "bad_data",
        f"{path}: {counts.dropped_rows} of {counts.rows} rows cannot be used ({percent:.1f} %, "
        f"{table.max_dropped_percent:g} % allowed); the first is line {first['line']}: "
        f"{first['reason']}",
    )


def _hash(table: DataTable, path: Path, model: Path, template: str) -> str:
    """What the tokens depend on, as one SHA-256."""
    whole = hashlib.sha256()
    settings = table.model_dump(exclude={"data"})
    whole.update(json.dumps(["prepared 1", settings, template], sort_keys=True).encode())
    for file in [path, *(model / name for name in TOKENIZER_FILES)]:
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
    cut, kept = report["cut_rows"], report["kept"]
    if not cut:
        return ""
    whose, be = ("its", "is") if cut == 1 else ("their", "are")
    return (
        f"{cut:,} of {kept:,} rows {be} longer than max_length={max_length} and cut at the end: "
        f"{whose} last answer does not end"
    )


def main() -> int:
    """Prepare the data of a spec; the exit code."""
    parser = argparse.ArgumentParser(prog="engine.prepare", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--run", type=Path, default=Path())
    options = parser.parse_args()

    def body() -> None:
        run = options.run.absolute()
        spec = read_spec(options.spec)
        report = prepare(spec, run)
        print(  # noqa: T201
            f"{report['kept']} of {report['rows']} rows kept, "
            f"{report['trained_tokens']} of {report['total_tokens']} tokens learnt"
        )
        warning = cut_warning(report, spec.data.max_length)
        if warning:
            print(warning, file=sys.stderr)  # noqa: T201
            tell(run, {}, "warn", text=warning)

    return command(body)


if __name__ == "__main__":
    sys.exit(main())
