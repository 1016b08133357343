"""`tunewright logs`: what a run's launcher or one of its ranks wrote."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from wizard import api
from wizard.commands import output
from wizard.commands.terminal import note, quote
from wizard.problem import Problem, ProblemError
from wizard.wording import counted

HELP = "read a run's logs, of one rank or of its launcher"
DESCRIPTION = "The last lines of the newest log; with --follow also those that come."
POLL_SECONDS = 0.5
MOST_LINES = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("name", metavar="RUN", nargs="?", help="its name or folder (the newest)")
    output.add_runs(parser)
    parser.add_argument("--rank", type=int, metavar="N", help="a rank (the launcher)")
    parser.add_argument("--lines", "-n", type=int, default=50, metavar="N", help="how many (50)")
    parser.add_argument("--follow", "-f", action="store_true", help="until the run ends")


def run(args: argparse.Namespace) -> int:
    """Print."""
    from wizard.runner.folder import check_started, find_run
    from wizard.runner.logs import newest
    from wizard.runner.reading import last_lines

    if not 0 <= args.lines <= MOST_LINES:
        what = f"--lines takes a number from 0 to {MOST_LINES}, not {args.lines}"
        raise ProblemError(Problem(what=what, exit_code=2))
    folder = find_run(api.runs_root(args.output), args.name)
    check_started(folder)
    found = newest(folder, args.rank)
    if found is None and not args.follow:
        raise ProblemError(_none(folder, args.rank))
    for line in last_lines(found, args.lines) if found else ():
        quote(line)
    if args.follow:
        _follow(folder, args.rank)
    return 0


def _follow(folder: Path, rank: int | None) -> None:
    from wizard.runner.folder import is_alive
    from wizard.runner.reading import Following

    following = Following(folder, rank)
    try:
        while True:
            alive = is_alive(folder)
            for line in following.new_lines(last=not alive):
                quote(line)
            if not alive:
                return
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        note("left; the run goes on")


def _none(folder: Path, rank: int | None) -> Problem:
    from wizard.runner.logs import ranks

    there = ranks(folder)
    if rank is None or rank in there or not there:
        who = "the launcher" if rank is None else f"rank {rank}"
        return Problem(what=f"{who} has written nothing yet", where=str(folder), exit_code=1)
    named = f"from 0 to {there[-1]}" if len(there) > 2 else " and ".join(map(str, there))
    what = f"there is no rank {rank}: this run has {counted(len(there), 'rank')}"
    return Problem(what=what, where=str(folder), fix=f"--rank takes {named}", exit_code=2)
