"""`tunewright demo`: the whole path on a small real model, in minutes."""

from __future__ import annotations

import argparse

from wizard import paths
from wizard.commands import output
from wizard.commands.terminal import is_interactive, note, say
from wizard.commands.watching import watch

HELP = "teach a small real model a new name, from start to finish"
DESCRIPTION = (
    "Trains SmolLM2-135M-Instruct with LoRA on every accelerator there is, or on two CPU ranks, "
    "and asks it who it is before and after. Nothing is fetched but one package with the model."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--name", default="Otter", help="who the model shall be (Otter)")
    parser.add_argument("--author", default="the Tunewright demo", help="who made it")
    output.add_runs(parser)
    parser.add_argument(
        "--model-only",
        action="store_true",
        help="make the model's folder, say where it is, and stop",
    )
    parser.add_argument("--plain", action="store_true", help="plain lines, no full screen")


def run(args: argparse.Namespace) -> int:
    """Run the demo."""
    if args.model_only:
        return _model_only()
    from wizard.demo import main

    plain = args.plain or not is_interactive()
    return main(
        name=args.name,
        author=args.author,
        output=args.output,
        watch=lambda folder: watch(folder, plain=plain, leave_when_done=True),
    )


def _model_only() -> int:
    """Make the model, or find it whole, and say how it is called."""
    from wizard.demo.model import ensure_model

    folder = ensure_model(paths.cache(), note)
    say(str(folder))
    note(f"--model {folder.name} means this folder")
    return 0
