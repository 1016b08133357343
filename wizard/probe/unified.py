"""Machines whose GPU and CPU share one memory: its size and what is free are the host's to tell."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from wizard.facts import Bus, Device
from wizard.probe import catalog

NAMES = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra)\b", re.IGNORECASE)
NOT_SUPPORTED = "not supported by this device"


def completed(device: Device, root: Path) -> Device:
    """A device with one pool of memory, with the host's numbers; any other as it is.

    The driver of such a device refuses the question for memory, or answers wrongly: its name
    decides, and where the name is not known, the refusal.
    """
    if not _is_unified(device):
        return device
    total, free = _pool(root)
    used = None if total is None or free is None else total - free
    known = {
        "memory_total_bytes": total,
        "memory_free_bytes": free,
        "memory_used_bytes": used,
    }
    told = {name for name, value in known.items() if value is not None}
    gone = told | {"pcie_generation", "pcie_width"}
    return replace(
        device,
        unified_memory=True,
        memory_total_bytes=total,
        memory_free_bytes=free,
        memory_used_bytes=used,
        memory_reserved_bytes=None,
        # Inside one chip there is no PCIe whose speed could matter.
        bus=Bus(
            pci_id=device.bus.pci_id,
            numa_node=device.bus.numa_node,
            cpu_affinity=device.bus.cpu_affinity,
        ),
        sources={**device.sources, **dict.fromkeys(told, "host")},
        unknown={name: why for name, why in device.unknown.items() if name not in gone},
    )


def _is_unified(device: Device) -> bool:
    if device.mig_parent_uuid is not None:
        return False
    if NAMES.search(device.name):
        return True
    refused = device.unknown.get("memory_total_bytes") == NOT_SUPPORTED
    return refused and catalog.accelerator(device.name) is None


def _pool(root: Path) -> tuple[int | None, int | None]:
    """(total, available) bytes of the host's memory."""
    try:
        text = (root / "proc/meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None, None
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d{1,15}) kB", text, re.MULTILINE))
    total, free = (found.get(name) for name in ("MemTotal", "MemAvailable"))
    return (int(total) * 1024 if total else None), (int(free) * 1024 if free else None)
