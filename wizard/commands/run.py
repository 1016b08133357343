"""`tunewright run`: make the run folder and start it; it goes on without this terminal."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.events import EXIT_OK
from wizard import api
from wizard.answers import Answers
from wizard.commands import choosing, output, plan, planned
from wizard.commands.terminal import is_interactive, note, print_json, quote, say
from wizard.commands.watching import POLL_SECONDS, exit_code, views, watch
from wizard.dashboard.words import tested
from wizard.language import said
from wizard.problem import Problem, ProblemError

HELP = "train: write the run folder, start its script, leave it running"
DESCRIPTION = (
    "Plans as `plan` does, writes the run folder and starts its run.sh in a session of its own: "
    "closing this terminal does not stop it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    choosing.add_arguments(parser)
    add_starting(parser)


def add_starting(parser: argparse.ArgumentParser) -> None:
    """Options that say how a run is started."""
    choosing.add_order(parser)
    parser.add_argument("--yes", action="store_true", help="start without asking")
    parser.add_argument("--follow", action="store_true", help="stay and show the run")
    parser.add_argument("--plain", action="store_true", help="follow with plain lines")
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="only a few steps with the longest rows, then the memory measured and predicted",
    )
    parser.add_argument("--write-only", action="store_true", help="write the folder, start nothing")
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, write, start."""
    answers = choosing.answers_from(args)
    return plan_and_start(answers, args)


def plan_and_start(answers: Answers, args: argparse.Namespace) -> int:
    """What is left when the answers are known; `args` say how to start."""
    options = choosing.order_options(args)
    if args.smoke and (args.follow or args.then):
        what = (
            f"--smoke ends by itself: it does not go with {'--follow' if args.follow else '--then'}"
        )
        raise ProblemError(Problem(what=what, fix="leave one of them out", exit_code=2))
    if args.machine and not (args.dry_run or args.write_only):
        raise ProblemError(api.elsewhere(args.machine))
    if not (args.yes or args.dry_run or args.write_only or is_interactive()):
        raise ProblemError(_needs_yes())
    facts = api.facts_for(
        answers.model, answers.data, machine=args.machine, settings=answers.fixed, hub=args.hub
    )
    plans = api.make_plans(facts, answers)
    if args.dry_run:
        plan.print_script(plans, facts, answers, as_json=args.json)
        return 0
    chosen = api.best(plans)
    if args.yes or args.write_only:
        for line in planned.warnings(chosen):
            note(line)
    elif not _agreed(planned.summary(chosen, facts)):
        note("nothing was started or written")
        return 1
    root = api.runs_root(answers.output)
    name = answers.run_name or api.run_name(chosen, root)
    folder = api.write_run(plans, chosen, facts, name, root, answers.policy)
    if args.smoke and not args.write_only:
        return smoke(folder, args, options)
    if not args.write_only:
        api.start(folder, *options)
    return tell(folder, args, options)


def tell(folder: Path, args: argparse.Namespace, options: Sequence[str] = ()) -> int:
    """Say where a run is and how to see it, or show it; the exit code."""
    if args.json:
        print_json({"schema": 1, "run": folder.name, "folder": str(folder)})
    else:
        quote(str(folder))
    if args.write_only:
        note(f"not started: {shlex.join(['bash', str(folder / 'run.sh'), *options])}")
    elif args.follow:
        return watch(folder, plain=args.plain)
    else:
        note(f"running; see it with: tunewright watch {shlex.quote(str(folder))}")
    return 0


def smoke(folder: Path, args: argparse.Namespace, options: Sequence[str] = ()) -> int:
    """Try a run with a few steps of the longest rows, and say what they took; its exit code."""
    from wizard.runner.folder import read_json

    api.start(folder, "--smoke", *options)
    if args.json:
        *_, view = views(folder, POLL_SECONDS)
        code = exit_code(view.state)
    else:
        code = watch(folder, plain=True)
    found = read_json(folder / "smoke.json") if code == EXIT_OK else {}
    if args.json:
        end = {"exit_code": code, "smoke": found or None}
        print_json({"schema": 1, "run": folder.name, "folder": str(folder), **end})
    elif code == EXIT_OK:
        say(f"smoke test passed: {tested(found)}")
    return code


def _agreed(summary: list[str]) -> bool:
    for line in summary:
        note(line)
    answer = input(said("Start this run? [Y/n] ")).strip().lower()
    return answer in ("", "y", "yes")


def _needs_yes() -> Problem:
    again = shlex.join(["tunewright", *sys.argv[1:], "--yes"])
    return Problem(
        what="unable to ask whether to start: this is not an interactive terminal",
        fix=f"say it on the command line: {again}",
        exit_code=2,
    )
