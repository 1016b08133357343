"""`tunewright compare`: two runs beside each other."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import Any

from wizard import api, wording
from wizard.commands import output
from wizard.commands.terminal import note, print_json, quote
from wizard.language import said

HELP = "two runs beside each other: settings that differ, and results"
DESCRIPTION = "Of the settings only those that differ are shown."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("first", metavar="RUN", help="its name or folder")
    parser.add_argument("second", metavar="RUN", help="its name or folder")
    output.add_runs(parser)
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Compare."""
    from wizard.runner.compare import compare
    from wizard.runner.folder import find_run

    root = api.runs_root(args.output)
    first, second = find_run(root, args.first), find_run(root, args.second)
    found = compare(first, second)
    if args.json:
        print_json({"schema": 1, "runs": [first.name, second.name], **dataclasses.asdict(found)})
        return 0
    if not found.settings:
        note("no setting differs")
    head = ("", first.name, second.name)
    rows = [(row.name, *_cells(row.name, row.first, row.second)) for row in found.settings]
    results = [(row.name, *_cells(row.name, row.first, row.second)) for row in found.measured]
    for line in _table([head, *rows, *results]):
        quote(line)
    return 0


def _cells(name: str, first: Any, second: Any) -> tuple[str, str]:
    return _cell(name, first), _cell(name, second)


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "state":
        return said(str(value))
    if name.endswith("_bytes"):
        return wording.gib(value)
    if name in ("seconds", "step_seconds"):
        return wording.duration(value)
    if name == "tokens_per_second":
        return wording.speed(value)
    return f"{value:.4g}" if isinstance(value, float) else wording.one_line(str(value))


def _table(rows: Sequence[tuple[str, str, str]]) -> list[str]:
    name, first = (max(wording.cells(row[column]) for row in rows) for column in (0, 1))
    padded = wording.padded
    return [f"{padded(a, name)}  {padded(b, first)}  {c}".rstrip() for a, b, c in rows]
