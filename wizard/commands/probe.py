"""`tunewright probe`: what this machine, or another one, can train with."""

from __future__ import annotations

import argparse
import dataclasses

from wizard import overview
from wizard.commands import choosing, output
from wizard.commands.terminal import note, print_json, say
from wizard.facts import Facts
from wizard.problem import Problem, ProblemError

HELP = "show what this machine can train with"
DESCRIPTION = (
    "Devices, links, host, software and checks, each value with its source. Nothing is changed."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    output.add_format(parser)
    output.add_file(parser, "save it for --machine FILE")
    choosing.add_machine(parser)
    parser.add_argument("--torch", action="store_true", help="ask torch as well: some seconds")
    parser.add_argument(
        "--test-links", action="store_true", help="really move data between the devices"
    )
    parser.add_argument("--bench", action="store_true", help="measure rates, 20 seconds at most")


def run(args: argparse.Namespace) -> int:
    """Probe, or look up another machine, and print."""
    into = None if args.file is None else output.target(args.file, force=args.force)
    facts = _facts(args)
    if into is not None:
        from wizard.probe.machine import save

        note(f"saved: {save(facts, into)}")
    if args.json:
        print_json(as_json(facts))
    else:
        for line in overview.text(facts):
            say(line)
    return 0


def _facts(args: argparse.Namespace) -> Facts:
    if args.machine:
        _only_here(args)
        from wizard.probe.machine import find

        return find(args.machine)
    from wizard.probe import probe_machine

    facts = probe_machine(torch=args.torch)
    if args.bench:
        facts = _measured(facts)
    return _tested(facts) if args.test_links else facts


def _only_here(args: argparse.Namespace) -> None:
    asked = [f"--{name}" for name in ("torch", "test-links", "bench")]
    given = [option for option in asked if getattr(args, option[2:].replace("-", "_"))]
    if given:
        raise ProblemError(
            Problem(
                what=f"{given[0]} asks the machine itself, and --machine names another one",
                fix="give one of them",
                exit_code=2,
            )
        )


def _measured(facts: Facts) -> Facts:
    from wizard.probe import rates

    note("measuring, 20 seconds at most")
    measured = rates.measure(note)
    rates.remember(rates.machine_key(facts), measured)
    return rates.with_measured(facts, measured)


def _tested(facts: Facts) -> Facts:
    from wizard.probe import rates
    from wizard.probe.linktest import test_links

    note("moving data between the devices")
    tested = test_links(facts.accelerators, facts.links)
    if tested.links:
        rates.remember_links(rates.machine_key(facts), facts.accelerators, tested.links)
    return dataclasses.replace(
        facts, links=tested.links or facts.links, problems=(*facts.problems, *tested.problems)
    )


def as_json(facts: Facts) -> dict[str, object]:
    """The versioned document that `--machine` reads: docs/probe-schema.md."""
    from wizard.probe.document import to_document

    return to_document(facts)
