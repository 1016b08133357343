"""`tunewright watch`: see a run; leaving or killing this never touches it."""

from __future__ import annotations

import argparse
import math

from wizard import api
from wizard.commands import output
from wizard.commands.watching import snapshot, speak, stream_json, watch

HELP = "see a run live; leaving does not touch it"
DESCRIPTION = (
    "Shows every rank of a run, until it ends; ends with the run's own exit code. "
    "After the end r replays it."
)
JSON_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", nargs="?", help="its name or folder (the newest)")
    output.add_runs(parser)
    parser.add_argument("--plain", action="store_true", help="plain lines, no full screen")
    parser.add_argument("--once", action="store_true", help="the present state, then leave")
    output.add_format(parser, "a line of JSON at each change; with --once: one")
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=_seconds,
        help="a sentence (with --json: a line) at most every so many seconds",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds, as 60")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Watch."""
    from wizard.runner.folder import check_started, find_run

    folder = find_run(api.runs_root(args.output), args.name)
    check_started(folder)
    if args.once:
        return snapshot(folder, as_json_document=args.json)
    if args.json:
        return stream_json(folder, args.every or JSON_SECONDS)
    if args.every is not None:
        return speak(folder, args.every)
    return watch(folder, plain=args.plain)
