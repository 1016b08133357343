"""Faults of NVIDIA devices that the kernel noted since it started, where its log may be read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from wizard.facts import Device
from wizard.probe.nvml_values import pci_id
from wizard.probe.running import Run
from wizard.problem import Problem

TIME_LIMIT_SECONDS = 3.0
NUMBERED = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d{1,4})\b")
FALLEN = re.compile(r"NVRM: GPU ([0-9A-Fa-f:.]+): GPU has fallen off the bus")
"""Newer drivers say it without a number."""
OFF_THE_BUS = 79
FAULTS = {
    48: "a memory error that could not be corrected",
    63: "a faulty memory row that waits to be replaced",
    64: "a faulty memory row that could not be replaced",
    74: "an NVLink error",
    OFF_THE_BUS: "it fell off the bus",
    92: "many corrected memory errors",
    94: "a memory error that ended one program",
    95: "a memory error that was not contained",
    119: "its system processor did not answer",
    120: "its system processor failed",
    140: "an error in its memory controller",
}
"""Numbers that speak of the card; the others are mostly faults of programs."""


def read(run: Run, devices: Sequence[Device]) -> list[Problem]:
    """A warning for each card and fault in the kernel's log; none where it may not be read."""
    ran = run(["dmesg"], TIME_LIMIT_SECONDS)
    return [_problem(address, number, devices) for address, number in faults(ran.out)]


def faults(log: str) -> list[tuple[str, int]]:
    """(PCI address, number) of every fault of a card, each once, in the order of the log."""
    found: dict[tuple[str, int], None] = {}
    for line in log.splitlines():
        if numbered := NUMBERED.search(line):
            place, number = numbered[1], int(numbered[2])
        elif fallen := FALLEN.search(line):
            place, number = fallen[1], OFF_THE_BUS
        else:
            continue
        address = pci_id(place if "." in place else f"{place}.0")
        if address is not None and number in FAULTS:
            found[address, number] = None
    return list(found)


def _problem(address: str, number: int, devices: Sequence[Device]) -> Problem:
    index = next((d.index for d in devices if d.bus.pci_id == address), None)
    return Problem(
        what=f"the kernel noted {FAULTS[number]} (Xid {number}) since the machine started",
        where=f"card {address}" if index is None else f"device {index} ({address})",
        fix="reset the card or reboot; if it comes back, have the card exchanged",
        severity="warning",
        exit_code=6,
    )
