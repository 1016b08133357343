"""`tunewright pack`: one archive of a finished run to hand over."""

from __future__ import annotations

import argparse
from pathlib import Path

from wizard import api, paths
from wizard.commands.terminal import note, quote

HELP = "one archive of a finished run to hand over"
DESCRIPTION = (
    "model/, the script, the settings and a report, without host names, users, absolute paths, "
    "environment or pickles. The data and the base model are not in it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", nargs="?", help="its name or folder (the newest)")
    parser.add_argument("--output", metavar="DIR", help="folder that holds the runs")
    parser.add_argument("--to", metavar="FILE", help="the archive (RUN.tar.gz here)")


def run(args: argparse.Namespace) -> int:
    """Pack."""
    from wizard.runner.folder import find_run
    from wizard.runner.pack import pack

    folder = find_run(api.runs_root(args.output), args.name)
    target = paths.expanded(args.to, "--to") if args.to else Path(f"{folder.name}.tar.gz")
    names = pack(folder, target.absolute())
    for name in names:
        note(name)
    quote(str(target.absolute()))
    return 0
