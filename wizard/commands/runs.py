"""`tunewright runs`: the runs there are, running ones first."""

from __future__ import annotations

import argparse
import dataclasses

from wizard import api
from wizard.commands.terminal import note, print_json, say

HELP = "list runs"
DESCRIPTION = "Runs in the runs folder, running ones first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--output", metavar="DIR", help="folder that holds the runs")
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: argparse.Namespace) -> int:
    """List."""
    from wizard.runner.folder import list_runs

    root = api.runs_root(args.output)
    found = list_runs(root)
    if args.json:
        rows = [{**dataclasses.asdict(r), "folder": str(r.folder)} for r in found]
        print_json({"schema": 1, "runs": rows})
        return 0
    if not found:
        note(f"no runs in {root}; `tunewright run --model M --data D` starts one")
    for summary in found:
        say(f"{summary.line()}  {summary.folder}")
    return 0
