"""NVIDIA devices of this machine: asks NVML, then nvidia-smi, then torch, and says what failed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import wizard.probe.running
from wizard.facts import Device, Link
from wizard.probe import nvidia_problems as say
from wizard.probe import pci, smi, torchview, unified, xid
from wizard.probe.nvml_decode import Said, decode
from wizard.probe.running import Ran, Run
from wizard.probe.topology import ask_nvidia_smi
from wizard.problem import Problem

TIME_LIMIT_SECONDS = 20.0
"""Loading the driver on eight cards without persistence mode takes several seconds."""
CHILD = (sys.executable, "-m", "wizard.probe.nvidia")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerators:
    """The devices of one vendor, and what was found wrong with them."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    problems: tuple[Problem, ...] = field(default=())
    links: tuple[Mapping[str, Any], ...] = ()
    """Link lines of the NVML child; they name devices by UUID."""
    known_links: tuple[Link, ...] = ()
    """Links that a vendor's own tool tells; positions are those in `devices`."""


Tell = Callable[[Accelerators], None]


def read_nvidia(root: Path, run: Run, tell: Tell | None = None) -> Accelerators:
    """Every NVIDIA device of this machine, visible or not. Never raises, never waits long.

    tell: hears of the devices as soon as their names and memory are known.
    """
    traces = pci.look(root)
    ran = _hearing(root, run, traces, tell)(CHILD, TIME_LIMIT_SECONDS)
    said = decode(ran.out)
    found = _complete(root, said, traces)
    problems = [*found.problems, *_ending(ran, said, traces)]
    if traces.any or said.devices:
        problems += xid.read(run, said.devices)
    if found.devices or ran.timed_out:
        return replace(found, problems=tuple(problems))
    return _other_ways(root, run, said, traces, problems)


def _hearing(root: Path, run: Run, traces: pci.Traces, tell: Tell | None) -> Run:
    """A run that tells of devices while the child still speaks, where that can be heard."""
    if tell is None or run is not wizard.probe.running.run:
        return run

    told: tuple[Device, ...] = ()

    def hear(text: str) -> None:
        nonlocal told
        found = _complete(root, decode(text), traces)
        if found.devices != told:
            told = found.devices
            tell(replace(found, problems=()))

    return functools.partial(wizard.probe.running.run, heard=hear)


def _complete(root: Path, said: Said, traces: pci.Traces) -> Accelerators:
    """What the child said, with what the file system adds, and without what cannot be used."""
    devices = [unified.completed(_placed(root, device), root) for device in said.devices]
    problems = [say.lost(line, said.devices, traces.cards) for line in said.failed]
    problems += [say.unlisted(index) for index in said.unlisted]
    problems += [problem for device in devices if (problem := say.unusable(device)) is not None]
    kept = tuple(device for device in devices if say.unusable(device) is None)
    return Accelerators(
        devices=kept,
        driver=said.driver,
        cuda=said.cuda,
        links=said.links,
        problems=tuple(problems if kept else map(_stopping, problems)),
    )


def _stopping(problem: Problem) -> Problem:
    """A warning about a device that is left out is an error when no other device is left."""
    return replace(problem, severity="error") if "left out" in problem.what else problem


def _outlived(problem: Problem) -> Problem:
    """An error is a warning where devices were found all the same."""
    return replace(problem, severity="warning") if problem.severity == "error" else problem


def _placed(root: Path, device: Device) -> Device:
    """With the NUMA node that sysfs tells, where NVML does not."""
    if device.bus.numa_node is not None or device.bus.pci_id is None:
        return device
    node = pci.numa_node(root, device.bus.pci_id)
    if node is None:
        return device
    return replace(
        device,
        bus=replace(device.bus, numa_node=node),
        sources={**device.sources, "numa_node": "sysfs"},
        unknown={name: why for name, why in device.unknown.items() if name != "numa_node"},
    )


def _ending(ran: Ran, said: Said, traces: pci.Traces) -> list[Problem]:
    """How the child ended, where that is not as it should."""
    if ran.timed_out:
        late = {d.index for d in said.devices if "compute_capability" in d.unknown}
        return [say.hung(TIME_LIMIT_SECONDS, said.devices, sorted(late))]
    if said.ended or said.error is not None:
        return []
    if said.devices or traces.any:
        return [say.died(ran.code, bool(said.devices))]
    return []


def _other_ways(
    root: Path, run: Run, said: Said, traces: pci.Traces, problems: Sequence[Problem]
) -> Accelerators:
    """Devices by nvidia-smi, then by torch; else the reason why there are none."""
    code = said.error.get("code") if said.error is not None else None
    if not traces.any and code in (say.NO_LIBRARY, say.DRIVER_NOT_LOADED, None):
        return Accelerators(driver=said.driver, cuda=said.cuda, problems=tuple(problems))
    listed = smi.read(run)
    devices, way = listed.devices, "nvidia-smi"
    if not devices and code not in (say.DRIVER_NOT_LOADED, say.VERSION_MISMATCH):
        devices, way = torchview.devices(torchview.ask_now(run)), "torch"
    if devices:
        return Accelerators(
            devices=tuple(unified.completed(device, root) for device in devices),
            driver=listed.driver or said.driver or traces.module,
            cuda=said.cuda,
            links=ask_nvidia_smi(run) if way == "nvidia-smi" and len(devices) > 1 else (),
            problems=(*map(_outlived, problems), say.by_other_way(said.error, way)),
        )
    if not said.failed and not any(problem.severity == "error" for problem in problems):
        reason = say.without_devices(said.error, traces, listed.library)
        problems = [*problems, *([reason] if reason is not None else [])]
    return Accelerators(driver=said.driver, cuda=said.cuda, problems=tuple(problems))
