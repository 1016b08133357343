"""`tunewright export`: a plan as a job for a scheduler, or as another trainer's configuration."""

from __future__ import annotations

import argparse
import dataclasses
from typing import TYPE_CHECKING

from wizard import api, machines
from wizard.answers import Answers
from wizard.commands import choosing, output
from wizard.commands.terminal import note, print_exactly, print_json
from wizard.problem import Problem, ProblemError

if TYPE_CHECKING:
    from engine.spec import Spec

HELP = "a plan as an sbatch script, a Kubernetes manifest, another trainer's YAML …"
DESCRIPTION = (
    "Plans as `plan` does, and prints the first plan that fits in another form. What that form "
    "cannot say is listed in its comments and on stderr. Nothing is started."
)

RUNS = ("bash", "torchrun", "sbatch", "kubernetes", "skypilot")
FORMATS = (*RUNS, "swift", "llamafactory", "axolotl", "accelerate")
"""Written out: a command line is known before anything is loaded that makes plans."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--format", required=True, choices=FORMATS, help="bash, a scheduler, or another trainer"
    )
    parser.add_argument(
        "--run",
        metavar="RUN",
        dest="of_run",
        help="the plan of this run, every setting as it was; --set changes one",
    )
    output.add_file(parser, "a file, or a folder where there are several", "--out")
    choosing.add_nodes(parser)
    parser.add_argument("--python", metavar="P", help="tunewright's python where the run starts")
    parser.add_argument("--image", metavar="I", help="kubernetes: an image with tunewright in it")
    parser.add_argument("--claim", metavar="C", help="kubernetes: the volume claim for runs")
    parser.add_argument("--mount", metavar="DIR", default="/runs", help="kubernetes: its place")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    choosing.add_arguments(parser, dry_run=False)


def run(args: argparse.Namespace) -> int:
    """Plan and print, or write."""
    from wizard.formats.exporting import Target
    from wizard.formats.values import told

    machines.check_count(args.nodes)
    target = Target(
        format=args.format,
        nodes=args.nodes,
        network_gbs=machines.bandwidth_gbs(args.network),
        image=args.image,
        claim=args.claim,
        mount=args.mount,
        source=api.checkout(),
    )
    exported = api.export(
        choosing.answers_from(args) if args.of_run is None else _of_run(args),
        target,
        machine=args.machine,
        python=args.python,
        policy=choosing.policy_from(args),
        hub=args.hub,
    )
    for line in told(exported.left):
        note(f"not carried over: {line}")
    if args.file is not None:
        into = output.target(args.file, force=args.force, folder=True)
        for path in api.write_export(exported, into, force=args.force):
            note(f"written: {path}")
    elif args.json:
        left = [{"key": one.key, "value": one.value, "why": one.why} for one in exported.left]
        print_json({"schema": 1, "files": dict(exported.files), "left": left})
    else:
        print_exactly(exported.files[exported.main])
        for name in list(exported.files)[1:]:
            note(f"{name} belongs beside it: -o FOLDER writes both")
    return 0


def _of_run(args: argparse.Namespace) -> Answers:
    """What a run was trained with, and the changes that were asked for.

    Raises ProblemError for an option that the run answers itself.
    """
    from wizard.runner.again import answers_of, read_spec
    from wizard.runner.folder import find_run

    for option in ("model", "data", "preset", "goal", "system", "template"):
        if getattr(args, option) is not None:
            what = f"--{option} and --run contradict each other"
            fix = f"leave one out; --set changes a setting of the run, as in --set {option}=…"
            fix = "leave one out" if option in ("preset", "goal") else fix
            raise ProblemError(Problem(what=what, fix=fix, exit_code=2))
    folder = find_run(api.runs_root(args.output), args.of_run)
    answers = dataclasses.replace(
        answers_of(folder),
        output=args.output,
        run_name=args.name or folder.name,
        devices=choosing.indices(args.devices),
        policy=choosing.policy_from(args),
        history=not args.no_history,
    )
    answers = _as_it_was(api.absolute(answers), read_spec(folder), args.machine)
    changes = api.parse_settings(args.pairs)
    changed = dataclasses.replace(
        answers,
        model=changes.pop("model", answers.model),
        data=changes.pop("data", answers.data),
        settings={**answers.settings, **changes},
    )
    return api.absolute(changed)


def _as_it_was(answers: Answers, spec: Spec, machine: str | None) -> Answers:
    """Answers whose plan is that of a run: what would be planned otherwise today is fixed."""
    from wizard.runner.again import differing

    facts = api.facts_for(answers.model, answers.data, machine=machine, settings=answers.fixed)
    changed = differing(spec, api.make_plans(facts, answers)[0].spec)
    return dataclasses.replace(answers, settings={**answers.settings, **changed})
