"""`tunewright retry`: plan a run again with changes, as a new run."""

from __future__ import annotations

import argparse
import dataclasses
from typing import get_args

from wizard import api
from wizard.answers import Goal
from wizard.commands import choosing, output
from wizard.commands.run import add_starting, plan_and_start

HELP = "train a run again with changes, as a new run"
DESCRIPTION = (
    "Takes the model, the data and what you, a preset or an edited spec.toml fixed in a run; plans "
    "the rest anew for this machine as it is now, and starts that as a new run."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("run_again", metavar="RUN", help="its name or folder")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="pairs",
        help="change one setting (repeatable)",
    )
    parser.add_argument(
        "--goal", choices=get_args(Goal), default=None, help="what a better plan is (quality)"
    )
    parser.add_argument("--devices", metavar="0,1", help="indices of the devices to use")
    parser.add_argument("--name", metavar="NAME", help="name of the new run")
    output.add_runs(parser)
    parser.add_argument("--dry-run", action="store_true", help="print the script, and stop")
    choosing.add_hub(parser)
    choosing.add_history(parser)
    choosing.add_policy(parser)
    add_starting(parser)


def run(args: argparse.Namespace) -> int:
    """Plan the run again and start it."""
    from wizard.runner.again import answers_of
    from wizard.runner.folder import check_name, find_run

    if args.name is not None:
        check_name(args.name)
    changes = api.parse_settings(args.pairs)
    before = answers_of(find_run(api.runs_root(args.output), args.run_again))
    answers = dataclasses.replace(
        before,
        model=changes.pop("model", before.model),
        data=changes.pop("data", before.data),
        output=args.output,
        run_name=args.name,
        goal=args.goal or before.goal,
        devices=choosing.indices(args.devices),
        settings={**before.settings, **changes},
        policy=choosing.policy_from(args),
        history=not args.no_history,
    )
    args.machine = None
    return plan_and_start(api.absolute(answers), args)
