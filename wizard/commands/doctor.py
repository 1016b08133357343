"""`tunewright doctor`: what is wrong with this machine, and the commands that put it right."""

from __future__ import annotations

import argparse
import os
from dataclasses import replace

from wizard.commands import choosing, output
from wizard.commands.terminal import print_json, say
from wizard.facts import Facts

HELP = "say what is wrong with this machine, and how to put it right"
DESCRIPTION = (
    "Checks devices, driver, software, host, disks and settings. Nothing is changed. "
    "Ends with 0 when nothing failed, else with 1."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument(
        "--network", action="store_true", help="also ask the model hub for one byte of a file"
    )
    choosing.add_machine(parser)
    output.add_format(parser)


def run(args: argparse.Namespace) -> int:
    """Probe, check and print."""
    from wizard import doctor

    facts = _facts(args.machine)
    if args.network:
        facts = _with_hub(facts)
    if args.json:
        print_json(doctor.as_json(facts))
    else:
        for line in doctor.lines(facts):
            say(line)
    return 0 if doctor.passes(facts) else 1


def _facts(machine: str | None) -> Facts:
    if machine:
        from wizard.probe.machine import find

        return find(machine)
    from wizard.probe import probe_machine

    return probe_machine(torch=True)


def _with_hub(facts: Facts) -> Facts:
    from wizard.probe.network import ask_hub

    around = replace(facts.host.surroundings, hub=ask_hub(os.environ))
    return replace(facts, host=replace(facts.host, surroundings=around))
