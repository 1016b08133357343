"""`tunewright watch`: see a run; leaving or killing this never touches it."""

from __future__ import annotations

import argparse

from wizard import api
from wizard.commands.watching import snapshot, watch

HELP = "see a run live; leaving does not touch it"
DESCRIPTION = "Shows every rank of a run, until it ends; ends with the run's own exit code."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", nargs="?", help="its name or folder (the newest)")
    parser.add_argument("--output", metavar="DIR", help="folder that holds the runs")
    parser.add_argument("--plain", action="store_true", help="plain lines, no full screen")
    parser.add_argument("--once", action="store_true", help="the present state, then leave")
    parser.add_argument("--json", action="store_true", help="with --once: as JSON")


def run(args: argparse.Namespace) -> int:
    """Watch."""
    from wizard.runner.folder import find_run

    folder = find_run(api.runs_root(args.output), args.name)
    if args.once or args.json:
        return snapshot(folder, as_json=args.json)
    return watch(folder, plain=args.plain)
