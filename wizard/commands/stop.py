"""`tunewright stop`: ask a run to save a checkpoint and end."""

from __future__ import annotations

import argparse

from wizard import api
from wizard.commands import output
from wizard.commands.terminal import say
from wizard.language import foreign

HELP = "stop a run with a checkpoint"
DESCRIPTION = (
    "The ranks save at the next step boundary and end; the run can be resumed. "
    "With --now the run's processes are ended at once and steps since the last checkpoint are lost."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", help="its name or folder")
    output.add_runs(parser)
    parser.add_argument("--now", action="store_true", help="do not save first")


def run(args: argparse.Namespace) -> int:
    """Stop."""
    from wizard.runner import stop
    from wizard.runner.folder import find_run

    folder = find_run(api.runs_root(args.output), args.name)
    if args.now:
        stop.now(folder)
        say(f"stopped {foreign(folder.name)}")
    else:
        stop.request(folder)
        say(f"{foreign(folder.name)} will save a checkpoint and end")
    return 0
