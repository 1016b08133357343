"""`tunewright metrics`: everything that a run measured, as one table."""

from __future__ import annotations

import argparse
import contextlib
import csv
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from engine.theirs import why
from wizard import api
from wizard.commands import output
from wizard.commands.terminal import say
from wizard.dashboard.metrics import WHERE, Cell, columns, rows
from wizard.problem import Problem, ProblemError

HELP = "write what a run measured as CSV or Parquet"
DESCRIPTION = (
    "One row for each line that a rank wrote while it trained: its steps, losses, evaluations and "
    "sensors, of every attempt, in the order of time. What is not known is empty, never 0."
)
BATCH_ROWS = 20_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", nargs="?", help="its name or folder (the newest)")
    output.add_runs(parser, alias=False)
    output.add_file(parser, "NAME.csv or NAME.parquet (RUN-metrics.csv)", "--file")


def run(args: argparse.Namespace) -> int:
    """Write the table."""
    from wizard.runner.folder import check_started, find_run
    from wizard.runner.streams import Streams

    folder = find_run(api.runs_root(args.output), args.name)
    check_started(folder)
    path = output.target(args.file or f"{folder.name}-metrics.csv", force=args.force)
    write = {".csv": _write_csv, ".parquet": _write_parquet}.get(path.suffix)
    if write is None:
        raise ProblemError(
            Problem(
                what=f"no table format is named {path.suffix or 'by a name without an ending'}",
                where=str(path),
                fix="end the file's name with .csv or .parquet",
                exit_code=2,
            )
        )
    wanted = columns(event for event in Streams(folder).merged() if event["kind"] == "eval")
    table = rows(Streams(folder).merged(), wanted)
    count = 0

    def counted() -> Iterator[dict[str, Cell]]:
        nonlocal count
        for row in table:
            count += 1
            yield row

    with replacing(path) as part:
        write(part, wanted, counted())
    say(f"{path}: {count:,} rows, {len(wanted)} columns")
    return 0


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A private file beside `path` that becomes it once it is whole.

    Raises ProblemError when none can be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        try:
            yield part
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        what = f"cannot write it: {why(error)}"
        raise ProblemError(Problem(what=what, where=str(path))) from None


def _write_csv(path: Path, wanted: tuple[str, ...], table: Iterator[dict[str, Cell]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, wanted, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)


def _write_parquet(path: Path, wanted: tuple[str, ...], table: Iterator[dict[str, Cell]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ProblemError(
            Problem(
                what="unable to write Parquet: pyarrow is not installed here",
                fix="pip install pyarrow, or name a .csv file",
                exit_code=2,
            )
        ) from None
    whole = frozenset(WHERE) - {"t", "kind"}
    types = {"kind": pyarrow.string(), **dict.fromkeys(whole, pyarrow.int64())}
    schema = pyarrow.schema([(name, types.get(name, pyarrow.float64())) for name in wanted])
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while part := [_numbers(row) for row in islice(table, BATCH_ROWS)]:
            writer.write_table(pyarrow.Table.from_pylist(part, schema=schema))


def _numbers(row: dict[str, Cell]) -> dict[str, Any]:
    """Parquet knows numbers that are not finite."""
    return {
        name: float(value) if isinstance(value, str) and name != "kind" else value
        for name, value in row.items()
    }
