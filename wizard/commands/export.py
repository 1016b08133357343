"""`tunewright export`: a plan as a job for a scheduler, or as another trainer's configuration."""

from __future__ import annotations

import argparse

from wizard import api, machines
from wizard.commands import choosing, output
from wizard.commands.terminal import note, print_exactly, print_json

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
        choosing.answers_from(args),
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
