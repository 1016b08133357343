"""`tunewright runs`: the runs there are, running ones first; rename, delete or prune one."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import sys

from wizard import api
from wizard.commands import output
from wizard.commands.terminal import is_interactive, note, print_json, quote, say
from wizard.language import foreign, said
from wizard.problem import Problem, ProblemError
from wizard.wording import counted, gib

HELP = "list, rename, delete or prune runs"
DESCRIPTION = "Without an action: the runs in the runs folder, running ones first."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    output.add_runs(parser)
    output.add_format(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    rename = actions.add_parser("rename", help="give a run another name")
    rename.add_argument("name", metavar="RUN")
    rename.add_argument("new_name", metavar="NAME")
    delete = actions.add_parser("delete", help="remove a run with all it made; asks first")
    prune = actions.add_parser("prune", help="remove a run's old checkpoints; asks first")
    for action in (delete, prune):
        action.add_argument("name", metavar="RUN")
        action.add_argument("--yes", action="store_true", help="do not ask")
    for action in (rename, delete, prune):  # also after the action, where it is looked for
        output.add_runs(action, inner=True)
    prune.add_argument(
        "--keep", type=int, default=1, metavar="N", help="newest checkpoints that stay (1)"
    )


def run(args: argparse.Namespace) -> int:
    """Dispatch on the action."""
    actions = {"rename": _rename, "delete": _delete, "prune": _prune, None: _list}
    return actions[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from wizard.runner.folder import list_runs

    root = api.runs_root(args.output)
    found = list_runs(root)
    if args.json:
        rows = [{**dataclasses.asdict(r), "folder": str(r.folder)} for r in found]
        print_json({"schema": 1, "runs": rows})
        return 0
    if not found:
        note(f"no runs in {foreign(root)}; `tunewright run --model M --data D` starts one")
    for summary in found:
        say(f"{foreign(summary.name)}  {summary.state}  {foreign(summary.folder)}")
    for summary in found:
        if summary.lost:
            note(f"to go on with it: tunewright resume {shlex.quote(_name(args, summary.name))}")
    return 0


def _name(args: argparse.Namespace, name: str) -> str:
    return name if args.output is None else str(api.runs_root(args.output) / name)


def _rename(args: argparse.Namespace) -> int:
    from wizard.runner.care import rename
    from wizard.runner.folder import find_run

    quote(str(rename(find_run(api.runs_root(args.output), args.name), args.new_name)))
    return 0


def _delete(args: argparse.Namespace) -> int:
    from wizard.runner.care import delete, size_bytes
    from wizard.runner.folder import find_run, is_alive

    folder = find_run(api.runs_root(args.output), args.name)
    if not is_alive(folder):  # a run that runs is refused by `delete` itself, unasked
        size = gib(size_bytes(folder))
        if not _agreed(f"delete {folder} with its model and checkpoints, {size}", args):
            return 1
    delete(folder)
    note(f"deleted {foreign(folder)}")
    return 0


def _prune(args: argparse.Namespace) -> int:
    from wizard.runner.care import prunable, prune, size_bytes
    from wizard.runner.folder import find_run

    if args.keep < 0:
        what = f"--keep takes 0 or more, not {args.keep}"
        raise ProblemError(Problem(what=what, exit_code=2))
    folder = find_run(api.runs_root(args.output), args.name)
    found = prunable(folder, args.keep)
    if not found:
        note(f"{foreign(folder.name)} has no checkpoint to remove")
        return 0
    size = gib(sum(map(size_bytes, found)))
    names = ", ".join(path.name for path in found)
    if not _agreed(f"delete {counted(len(found), 'checkpoint')} ({names}), {size}", args):
        return 1
    prune(found)
    note(f"deleted {size}")
    return 0


def _agreed(what: str, args: argparse.Namespace) -> bool:
    if args.yes:
        return True
    if not is_interactive():
        again = shlex.join(["tunewright", *sys.argv[1:], "--yes"])
        raise ProblemError(
            Problem(
                what=f"unable to ask whether to {what}: this is not an interactive terminal",
                fix=f"say it on the command line: {again}",
                exit_code=2,
            )
        )
    answer = input(said(f"Really {what}? [y/N] ")).strip().lower()
    if answer in ("y", "yes"):
        return True
    note("nothing was deleted")
    return False
