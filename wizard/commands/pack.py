"""`tunewright pack`: one archive of a finished run to hand over."""

from __future__ import annotations

import argparse

from wizard import api
from wizard.commands import output
from wizard.commands.terminal import note, quote

HELP = "one archive of a finished run to hand over"
DESCRIPTION = (
    "model/, the script, the settings and a report, without host names, users, absolute paths, "
    "environment or pickles. The data and the base model are not in it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", nargs="?", help="its name or folder (the newest)")
    output.add_runs(parser, alias=False)
    output.add_file(parser, "the archive (RUN.tar.gz here)", "--to")


def run(args: argparse.Namespace) -> int:
    """Pack."""
    from wizard.runner.folder import check_started, find_run
    from wizard.runner.pack import pack

    folder = find_run(api.runs_root(args.output), args.name)
    check_started(folder)
    target = output.target(args.file or f"{folder.name}.tar.gz", force=args.force)
    names = pack(folder, target, force=args.force)
    for name in names:
        note(name)
    quote(str(target))
    return 0
