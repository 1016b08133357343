"""Prepare: a data file becomes tokens on disk, once, with a report of what was kept and why not."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.adapter import check_folder
from engine.arrange import HELD_OUT, TRAINED_ON, arrange
from engine.data import ChatTokenizer, RowError, chat_template, format_of, read_rows
from engine.examples import Example, maker, write
from engine.failure import RunError, command
from engine.fetch import read_fetched, read_spec
from engine.methods import STAGE_FORMAT
from engine.record import read_json, tell, write_json
from engine.spec import DataTable, Spec

DROPPED_SHOWN = 100
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "config.json")


@dataclass(kw_only=True, slots=True)
class Counts:
    """What became of the rows so far."""

    rows: int = 0
    dropped_rows: int = 0
    dropped: list[dict[str, Any]] = field(default_factory=list)
    cut_rows: int = 0
    lengths: list[int] = field(default_factory=list)
    total_tokens: int = 0
    trained_tokens: int = 0

    def drop(self, line: int, reason: RowError) -> None:
        """Count a row that is not used; the first hundred are named."""
        self.dropped_rows += 1
        if len(self.dropped) < DROPPED_SHOWN:
            self.dropped.append({"line": line, "reason": str(reason)})

    def keep(self, example: Example) -> None:
        """Count a row that is used."""
        self.cut_rows += example.cut
        self.lengths.append(example.length)
        self.total_tokens += example.total
        self.trained_tokens += example.trained

    def said(self) -> dict[str, Any]:
        """The counts as a report has them."""
        return {
            "rows": self.rows,
            "kept": len(self.lengths),
            "dropped": self.dropped,
            "dropped_rows": self.dropped_rows,
            "cut_rows": self.cut_rows,
            "lengths": percentiles(self.lengths),
            "total_tokens": self.total_tokens,
            "trained_tokens": self.trained_tokens,
        }


def prepare(spec: Spec, run: Path) -> dict[str, Any]:
    """Make `prepared/` unless it is there already; its report.

    Raises RunError: bad_data for a file or too many rows that cannot be used, bad_spec for a
    model without a usable tokenizer or template.
    """
    model = read_fetched(run).path
    check_folder(spec)
    paths = [Path(name).expanduser() for name in (spec.data.data, spec.data.eval_data) if name]
    for path in paths:
        if not path.is_file():
            raise RunError("bad_data", f"{path}: no such data file")
    tokenizer = load_tokenizer(model)
    plain = spec.method.stage == "pretrain"
    template = "" if plain else chat_template(spec.model.template, tokenizer)
    data_hash = _hash(spec, paths, model, template)
    there = _read_report(run)
    if there is not None and there["data_hash"] == data_hash:
        return there
    chat = None if plain else ChatTokenizer(tokenizer, template, spec.data.max_length)
    part = run / "prepared.tmp"
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
    except FileNotFoundError:  # it is not made again: somebody removed it
        raise RunError("disk_full", f"{run}: the run folder is gone") from None
    try:
        report = _write(spec, paths, tokenizer, chat, part)
        report["data_hash"] = data_hash
        write_json(part / "report.json", report)
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
    spec: Spec, paths: Sequence[Path], tokenizer: Any, chat: ChatTokenizer | None, folder: Path
) -> dict[str, Any]:
    """The rows of the data file, and of the file to evaluate on, as tokens; their report."""
    said = []
    for path, name in zip(paths, (TRAINED_ON, HELD_OUT), strict=False):
        counts = Counts()
        data_format, rows = _format(spec, path, read_rows(path))
        make = maker(spec, tokenizer, chat, data_format)
        write(_examples(rows, make, counts), folder / name, spec.method.stage)
        _check(counts, spec.data, path)
        said.append({**counts.said(), "format": data_format})
    return {
        "schema": 1,
        **said[0],
        **arrange(spec, folder),
        "eval": said[1] if len(said) > 1 else None,
        "stage": spec.method.stage,
        "template": "none" if chat is None else spec.model.template or "the model's own",
    }


def _format(
    spec: Spec, path: Path, rows: Iterator[tuple[int, Any]]
) -> tuple[Any, Iterator[tuple[int, Any]]]:
    """The format (the stage's, that asked for, or that of the first row) and all rows."""
    if spec.method.stage in STAGE_FORMAT:
        return STAGE_FORMAT[spec.method.stage], rows
    if spec.data.data_format != "auto":
        return spec.data.data_format, rows
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


def _examples(
    rows: Iterator[tuple[int, Any]], make: Callable[[Any], Example], counts: Counts
) -> Iterator[Example]:
    for line, row in rows:
        counts.rows += 1
        try:
            if isinstance(row, RowError):
                raise row
            example = make(row)
        except RowError as reason:
            counts.drop(line, reason)
            continue
        counts.keep(example)
        yield example


def percentiles(lengths: Sequence[int]) -> dict[str, int]:
    """Smallest, median, 95th percentile (nearest rank) and largest of token counts."""
    ordered = sorted(lengths)

    def rank(share: int) -> int:
        return ordered[max(0, -(-len(ordered) * share // 100) - 1)]

    return {"min": ordered[0], "median": rank(50), "p95": rank(95), "max": ordered[-1]}


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


def _hash(spec: Spec, paths: Sequence[Path], model: Path, template: str) -> str:
    """What the tokens depend on, as one SHA-256."""
    whole = hashlib.sha256()
    settings = spec.data.model_dump(exclude={"data", "eval_data"})
    shuffles = spec.data.eval_split > 0 or spec.method.stage == "kto"
    order = spec.training.seed if shuffles else None
    depends = ["prepared 2", settings, template, spec.method.stage, order, len(paths)]
    whole.update(json.dumps(depends, sort_keys=True).encode())
    for file in [*paths, *(model / name for name in TOKENIZER_FILES)]:
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


def warnings(report: Mapping[str, Any], spec: Spec) -> list[str]:
    """What the user should know of the rows before they are learnt."""
    said = [cut_warning(report, spec.data.max_length)]
    if report["eval"] is not None:
        cut = cut_warning(report["eval"], spec.data.max_length)
        said.append(f"eval_data: {cut}" if cut else "")
    too = report["eval_learnt_too"]
    if too:
        are = "is" if too == 1 else "are"
        said.append(
            f"{too:,} of the {report['eval']['kept']:,} rows of eval_data {are} in the training "
            "data too: the evaluation looks better than the model is"
        )
    return [text for text in said if text]


def held_out_line(report: Mapping[str, Any]) -> str:
    """How many of what was prepared are trained on, where that is not simply all rows."""
    trained, held = report["examples"], report["eval_examples"]
    what = "blocks" if report["stage"] == "pretrain" else "rows"
    if not held and what == "rows":
        return ""
    return f"{trained:,} {what} to train on" + (f", {held:,} to evaluate on" if held else "")


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
        if held_out_line(report):
            print(held_out_line(report))  # noqa: T201
        for warning in warnings(report, spec):
            print(warning, file=sys.stderr)  # noqa: T201
            tell(run, {}, "warn", text=warning)

    return command(body)


if __name__ == "__main__":
    sys.exit(main())
