"""Recorded answers of the other commands the probe of NVIDIA devices asks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from wizard.probe.running import Ran, Run

GIB = 1024**3

SMI_HEADER = (
    "index, name, uuid, driver_version, memory.total [MiB], memory.used [MiB], "
    "memory.free [MiB], pci.bus_id, pcie.link.gen.max, pcie.link.width.max, "
    "utilization.gpu [%], temperature.gpu, power.draw [W], power.limit [W], clocks.current.sm "
    "[MHz], ecc.errors.uncorrected.volatile.total, compute_mode, persistence_mode, "
    "display_active, compute_cap, memory.reserved [MiB], mig.mode.current"
)
MISMATCH = Ran(
    18,
    "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n",
)
NO_DRIVER = Ran(
    9,
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that "
    "the latest NVIDIA driver is installed and running.\n",
)


def smi_row(index: int, name: str, **cells: str) -> str:
    """One line of nvidia-smi's CSV; cells: field with `_` for `.` → text."""
    row = {
        "index": str(index),
        "name": name,
        "uuid": f"GPU-{index:08d}-0000-4000-8000-000000000000",
        "driver_version": "550.127.05",
        "memory_total": "24564",
        "memory_used": "2",
        "memory_free": "24206",
        "pci_bus_id": f"00000000:{index + 1:02X}:00.0",
        "gen": "4",
        "width": "16",
        "utilization": "0",
        "temperature": "31",
        "power_draw": "18.50",
        "power_limit": "450.00",
        "clocks": "210",
        "ecc": "[N/A]",
        "compute_mode": "Default",
        "persistence": "Disabled",
        "display": "Disabled",
        "compute_cap": "8.9",
        "reserved": "356",
        "mig": "[N/A]",
        **cells,
    }
    return ", ".join(row.values())


def smi(*rows: str) -> Ran:
    """What nvidia-smi prints for these rows."""
    return Ran(0, "\n".join((SMI_HEADER, *rows)) + "\n")


def torch_sees(
    *devices: Mapping[str, Any],
    version: str = "2.13.0+cu130",
    cuda: str | None = "13.0",
    arch_list: Sequence[str] = ("sm_80", "sm_90", "sm_100", "sm_120"),
    error: str | None = None,
    bnb: bool | None = True,
) -> Ran:
    """What the child that imports torch prints."""
    told = [{"index": index, "uuid": None, **device} for index, device in enumerate(devices)]
    line = {
        "version": version,
        "cuda": cuda,
        "hip": None,
        "arch_list": list(arch_list),
        "devices": told,
        "peer_access": [],
        "error": error,
    }
    lines = [line, {"bnb_4bit": bnb, "bnb_error": None}]
    return Ran(0, "".join(json.dumps(one) + "\n" for one in lines))


def card(name: str, gib: float, capability: tuple[int, int], **more: Any) -> dict[str, Any]:
    """A device as torch tells of it."""
    return {
        "name": name,
        "memory_total_bytes": int(gib * GIB),
        "compute_capability": list(capability),
        "integrated": False,
        **more,
    }


def answering(**answers: Ran) -> Run:
    """A Run that knows `smi`, `torch` and `dmesg`; every other command is missing."""

    def run(command: Sequence[str], limit_seconds: float) -> Ran:
        if command[0] == "nvidia-smi" and "smi" in answers:
            return answers["smi"]
        if command[0] == "dmesg" and "dmesg" in answers:
            return answers["dmesg"]
        if "engine.sees" in command and "torch" in answers:
            return answers["torch"]
        return Ran(None, "", "not found")

    return run


def on_the_bus(root: Path, *addresses: str, driver: str | None = None, number: str = "-1") -> Path:
    """Put NVIDIA cards on the PCI bus below root, held by a kernel driver; returns root."""
    for address in addresses:
        folder = root / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        for name, text in (
            ("vendor", "0x10de"),
            ("class", "0x030200"),
            ("device", "0x2330"),
            ("numa_node", number),
        ):
            (folder / name).write_text(f"{text}\n")
        if driver is not None:
            target = root / "sys/bus/pci/drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(target)
    return root
