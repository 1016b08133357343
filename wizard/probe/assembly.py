"""The parts of the probe put together: read at once, the facts told as they come in."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from wizard.facts import Device, Facts, Host, Software, TorchView
from wizard.probe import amd, apple, ascend, checks, intel, links, rates
from wizard.probe.accelerators import Accelerators, read_nvidia
from wizard.probe.host import read_host
from wizard.probe.parts import Part, failed, together
from wizard.probe.running import Run, run
from wizard.probe.software import read_software
from wizard.probe.torchview import joined, read_torch
from wizard.probe.visibility import visible
from wizard.problem import Problem

Say: TypeAlias = Callable[[Facts], None]
"""Told the facts known so far, each time more has come in; called in the probing thread."""

VENDORS: Mapping[str, Callable[[Path, Run], Accelerators]] = {
    "Ascend": ascend.read,
    "AMD": amd.read,
    "Intel": intel.read,
    "Apple": apple.read,
}
NVIDIA = "NVIDIA"
EVERYWHERE = Path("/")


def assemble(
    *, torch: bool = False, say: Say | None = None, root: Path = EVERYWHERE, run: Run = run
) -> Facts:
    """Facts of the machine below root, whose commands `run` runs. Never raises."""
    seen: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, value, problem in together(_parts(torch, root, run)):
        if problem is not None:
            problems.append(problem)
        else:
            seen[name] = value
        if say is not None:
            say(assembled(seen, problems, root))
    return assembled(seen, problems, root)


def _parts(torch: bool, root: Path, run: Run) -> tuple[Part, ...]:
    vendors = (
        Part(name, lambda read=read: read(root, run), limit_seconds=30.0)
        for name, read in VENDORS.items()
    )
    return (
        Part(NVIDIA, lambda tell: read_nvidia(root, run, tell), limit_seconds=120.0, tells=True),
        *vendors,
        Part("host", lambda: read_host(root), limit_seconds=10.0),
        Part("software", lambda: read_software(run=run), limit_seconds=20.0),
        Part("torch", lambda: read_torch(ask=torch, run=run, root=root), limit_seconds=90.0),
    )


def assembled(seen: Mapping[str, Any], problems: Sequence[Problem], root: Path) -> Facts:
    """Facts of the parts that have come in."""
    view: TorchView | None = seen.get("torch")
    found = _one_vendor([seen[name] for name in (NVIDIA, *VENDORS) if name in seen])
    found = visible(found, os.environ, view)
    host = seen.get("host") or Host(hostname=socket.gethostname(), system=platform.system())
    software = seen.get("software") or Software(python=platform.python_version())
    facts = Facts(
        devices=joined(found.devices, view) or (cpu_device(host),),
        host=host,
        software=replace(software, driver=found.driver, cuda=found.cuda),
        torch=_with_cpu_adam(view, software),
        problems=(*problems, *found.problems),
    )
    facts = _safely("links", lambda: _with_links(facts, found, root), facts)
    facts = _safely("measured rates", lambda: rates.with_remembered(facts), facts)
    return _safely("checks", lambda: _checked(facts), facts)


def _with_cpu_adam(view: TorchView | None, software: Software) -> TorchView | None:
    if view is None or software.cpu_adam_lacks is None:
        return view
    return replace(view, cpu_adam=not software.cpu_adam_lacks)


def _safely(name: str, make: Callable[[], Facts], otherwise: Facts) -> Facts:
    """What is made, or the facts as they were with a problem that says why."""
    try:
        return make()
    except Exception as error:
        return replace(otherwise, problems=(*otherwise.problems, failed(name, error)))


def _one_vendor(found: Sequence[Accelerators]) -> Accelerators:
    """The accelerators of the first vendor that has any: one torch serves one vendor."""
    first = next((one for one in found if one.devices), Accelerators())
    left_out = [one.devices[0] for one in found if one.devices and one is not first]
    problems = tuple(problem for one in found for problem in one.problems)
    return replace(first, problems=(*problems, *map(_left_out, left_out)))


def _left_out(device: Device) -> Problem:
    return Problem(
        what="left out: one torch serves the devices of one vendor",
        where=device.name,
        severity="info",
        exit_code=6,
    )


def _with_links(facts: Facts, found: Accelerators, root: Path) -> Facts:
    if found.known_links or len(found.devices) < 2:
        return replace(facts, links=found.known_links)
    return replace(facts, links=links.read_links(found.devices, found.links, root=root))


def _checked(facts: Facts) -> Facts:
    """With what does not fit together, each problem said once."""
    said = (*facts.problems, *checks.check(facts))
    return replace(facts, problems=tuple(dict.fromkeys(said)))


def cpu_device(host: Host) -> Device:
    """The CPU as a device: its memory is the host's."""
    return Device(
        kind="cpu",
        index=0,
        name=host.cpu_name or "CPU",
        memory_total_bytes=host.memory_total_bytes,
        memory_free_bytes=host.memory_available_bytes,
        source="host",
    )
