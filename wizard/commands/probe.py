"""`tunewright probe`: what this machine can train with."""

from __future__ import annotations

import argparse
import dataclasses

from wizard.commands.terminal import print_json, say
from wizard.facts import Device, Facts, Host
from wizard.wording import gib

HELP = "show what this machine can train with"
DESCRIPTION = "Devices, host and installed software. Nothing is changed."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: argparse.Namespace) -> int:
    """Probe and print."""
    from wizard.probe import probe_machine

    facts = probe_machine()
    if args.json:
        print_json({"schema": 1, **as_json(facts)})
    else:
        for line in lines(facts):
            say(line)
    return 0


def as_json(facts: Facts) -> dict[str, object]:
    """Facts as plain values; unknown is null."""
    return dataclasses.asdict(facts)


def lines(facts: Facts) -> list[str]:
    """Facts as text, one fact per line."""
    found = [_device(d) for d in facts.devices]
    versions = [f"{name} {v or 'not installed'}" for name, v in facts.software.versions.items()]
    problems = [f"({p.severity}) {p}" for p in facts.problems]
    return [
        "Devices",
        *(f"  {line}" for line in found),
        "Host",
        *(f"  {line}" for line in _host(facts.host)),
        "Software",
        f"  python {facts.software.python}",
        *(f"  {line}" for line in versions),
        *(["Problems", *(f"  {line}" for line in problems)] if problems else []),
    ]


def _device(device: Device) -> str:
    capability = device.compute_capability
    parts = [
        f"{device.kind} {device.index}: {device.name}",
        f"{gib(device.memory_free_bytes)} free of {gib(device.memory_total_bytes)}",
        f"capability {capability[0]}.{capability[1]}" if capability else "",
        f"uuid {device.uuid}" if device.uuid else "",
    ]
    return ", ".join(part for part in parts if part)


def _host(host: Host) -> list[str]:
    limit = f" (limit of the {host.memory_limit_source})" if host.memory_limit_source else ""
    return [
        f"{host.hostname}, {host.system}",
        f"CPU {host.cpu_name or 'unknown'}, {host.cpu_cores or 'unknown'} cores usable",
        f"memory {gib(host.memory_available_bytes)} available of "
        f"{gib(host.memory_total_bytes)}{limit}",
        f"disk {gib(host.disk_free_bytes)} free at {host.disk_path or 'unknown'}",
    ]
