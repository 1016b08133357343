"""Traces of NVIDIA hardware in the file system: known without any driver's help."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from wizard.probe.nvml_values import pci_id

NVIDIA = "0x10de"
DISPLAYS = ("0x0300", "0x0302")
"""PCI classes: a card that can drive a screen, and one that only computes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """An NVIDIA card on the PCI bus."""

    address: str
    device: str
    """Its PCI device number, as `0x2204`."""
    driver: str | None
    """Kernel driver that holds it: nvidia, nouveau, vfio-pci, or none."""
    numa_node: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Traces:
    """What speaks for an NVIDIA device on this machine."""

    cards: tuple[Card, ...] = ()
    nodes: bool = False
    """Device files or a loaded kernel module of the driver are there."""
    tegra: bool = False
    """A Jetson, whose GPU is on no bus."""
    wsl: bool = False
    wsl_driver: bool = False
    """Windows hands its NVIDIA driver in."""
    module: str | None = None
    """Version of the kernel module."""
    nouveau: bool = False
    """The free driver, which computes nothing, is loaded."""

    @property
    def any(self) -> bool:
        """Something says that there is, or should be, a device."""
        return bool(self.cards) or self.nodes or self.tegra or self.wsl_driver


def look(root: Path) -> Traces:
    """Every trace below root. Never raises."""
    wsl = "microsoft" in _text(root / "proc/sys/kernel/osrelease").lower()
    wsl = wsl or "microsoft" in _text(root / "proc/version").lower()
    nodes = ("proc/driver/nvidia", "dev/nvidia0", "dev/nvidiactl")
    return Traces(
        cards=tuple(_cards(root)),
        nodes=any(_there(root / node) for node in nodes),
        tegra=_there(root / "etc/nv_tegra_release"),
        wsl=wsl,
        wsl_driver=wsl and _there(root / "usr/lib/wsl/lib/libcuda.so.1"),
        module=_module_version(root),
        nouveau=_there(root / "sys/module/nouveau"),
    )


def numa_node(root: Path, address: str) -> int | None:
    """The NUMA node of a card; sysfs says -1 where there is none to tell."""
    domain, _, rest = address.lower().partition(":")
    return _node(root / "sys/bus/pci/devices" / f"{int(domain, 16):04x}:{rest}")


def _cards(root: Path) -> list[Card]:
    try:
        folders = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return []
    return [card for folder in folders if (card := _card(folder)) is not None]


def _card(folder: Path) -> Card | None:
    address = pci_id(folder.name)
    if address is None or _text(folder / "vendor") != NVIDIA:
        return None
    if not _text(folder / "class").startswith(DISPLAYS):
        return None
    try:
        driver = (folder / "driver").readlink().name
    except OSError:
        driver = None
    return Card(
        address=address,
        device=_text(folder / "device"),
        driver=driver,
        numa_node=_node(folder),
    )


def _node(folder: Path) -> int | None:
    text = _text(folder / "numa_node")
    return int(text) if text.isdigit() else None


def _module_version(root: Path) -> str | None:
    found = re.search(r"Module[^\n]*?\s(\d+\.\d[\d.]*)", _text(root / "proc/driver/nvidia/version"))
    if found:
        return found[1]
    return _text(root / "sys/module/nvidia/version") or None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
