"""What the kernel says of the machine around devices: whether a claim of peer access may hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from wizard.facts import Device
from wizard.probe.surroundings import is_wsl, virtual_machine
from wizard.probe.vendors import pci_folder


@dataclass(frozen=True, slots=True)
class Place:
    """What decides whether peer access that the driver claims works."""

    wsl: bool = False
    virtual: bool = False
    iommu_groups: Mapping[str, str] = field(default_factory=dict)
    """PCI address → group; empty where no IOMMU is on."""


def read_place(devices: Sequence[Device], root: Path) -> Place:
    """What the kernel says of the machine around these devices."""
    return Place(
        wsl=is_wsl(root),
        virtual=virtual_machine(root) is not None,
        iommu_groups=_iommu_groups(devices, root),
    )


def _iommu_groups(devices: Sequence[Device], root: Path) -> dict[str, str]:
    found = {}
    for address in (device.bus.pci_id for device in devices):
        group = pci_folder(root, address) / "iommu_group" if address else None
        if address and group and group.is_symlink():
            found[address] = group.readlink().name
    return found
