"""nvidia-smi as a second way to the same facts, where NVML cannot be asked."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wizard.facts import Bus, Device, Readings
from wizard.probe import catalog
from wizard.probe import nvml_values as values
from wizard.probe.running import Ran, Run

TIME_LIMIT_SECONDS = 15.0
MIB = 1024**2

FIELDS = (
    "index",
    "name",
    "uuid",
    "driver_version",
    "memory.total",
    "memory.used",
    "memory.free",
    "pci.bus_id",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "power.limit",
    "clocks.sm",
    "ecc.errors.uncorrected.volatile.total",
    "compute_mode",
    "persistence_mode",
    "display_active",
)
"""Fields that drivers of the last ten years know; one unknown field fails the whole query."""
LATER_FIELDS = ("compute_cap", "memory.reserved", "mig.mode.current")
"""Known since driver 510."""
DIVIDED = "divided"
REASONS = {
    DIVIDED: "the card is divided (MIG), and its slices are not listed",
    "[N/A]": "not supported by this device",
    "N/A": "not supported by this device",
    "[Not Supported]": "not supported by this device",
    "[Unknown Error]": "the driver reports an unknown error",
    "[GPU is lost]": "the device is lost",
    "[GPU requires reset]": "the device needs a reset",
    "ERR!": "the driver reports an error",
    "Insufficient Permissions": "no permission to ask",
    "[Insufficient Permissions]": "no permission to ask",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """What nvidia-smi said."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    library: str | None = None
    """Version of the library, which it names where that does not match the kernel module."""


def read(run: Run) -> Listed:
    """Devices as nvidia-smi lists them; none where it is missing or fails."""
    ran = _query(run, (*FIELDS, *LATER_FIELDS))
    if ran.code == 2 or "not a valid field" in ran.out + ran.err:
        ran = _query(run, FIELDS)
    said = ran.out + ran.err
    library = re.search(r"NVML library version:\s*(\d[\d.]*\d)", said)
    rows = decode(ran.out) if ran.ok else ()
    driver = next((row.get("driver_version") for row in _rows(ran.out)), None) if ran.ok else None
    return Listed(
        devices=rows,
        driver=values.words(driver),
        library=library[1].rstrip(".") if library else None,
    )


def _query(run: Run, fields: Sequence[str]) -> Ran:
    wanted = f"--query-gpu={','.join(fields)}"
    return run(["nvidia-smi", wanted, "--format=csv,nounits"], TIME_LIMIT_SECONDS)


def _rows(text: str) -> list[Mapping[str, str]]:
    """Rows by field name; the header names the field, then its unit: `memory.total [MiB]`."""
    lines = [line for line in text.splitlines() if "," in line]
    table = list(csv.reader(lines, skipinitialspace=True))
    if not table:
        return []
    names = [cell.split(" [")[0].strip() for cell in table[0]]
    return [
        {name: cell.strip() for name, cell in zip(names, row, strict=True)}
        for row in table[1:]
        if len(row) == len(names)
    ]


def decode(text: str) -> tuple[Device, ...]:
    """Devices of the CSV that nvidia-smi printed. Never raises."""
    return tuple(_device(row) for row in _rows(text) if row.get("index", "").isdigit())


def _device(row: Mapping[str, str]) -> Device:
    unknown: dict[str, str] = {}

    def get(field: str, name: str, check: Callable[[str], Any]) -> Any:
        cell = row.get(field, "")
        if field.startswith("memory.") and row.get("mig.mode.current") == "Enabled":
            cell = DIVIDED
        value = None if cell in REASONS else check(cell)
        if value is None:
            unknown[name] = REASONS.get(cell, "nvidia-smi does not tell")
        return value

    name = get("name", "name", values.words) or "NVIDIA device"
    table = catalog.accelerator(name) or {}
    rates = catalog.rates(table)
    capability = get("compute_cap", "compute_capability", _capability) or _capability(
        table.get("compute_capability", "")
    )
    return Device(
        kind="cuda",
        index=int(row["index"]),
        name=name,
        uuid=get("uuid", "uuid", values.words),
        memory_total_bytes=get("memory.total", "memory_total_bytes", _mebibytes) or None,
        memory_free_bytes=get("memory.free", "memory_free_bytes", _mebibytes),
        memory_used_bytes=get("memory.used", "memory_used_bytes", _mebibytes),
        memory_reserved_bytes=get("memory.reserved", "memory_reserved_bytes", _mebibytes),
        compute_capability=capability,
        bf16_native=None if capability is None else capability[0] >= 8,
        memory_bandwidth_gbs=rates.get("memory_bandwidth_gbs"),
        bf16_tflops=rates.get("bf16_tflops"),
        sources=dict.fromkeys(rates, "table"),
        bus=Bus(
            pci_id=get("pci.bus_id", "pci_id", values.pci_id),
            pcie_generation=get("pcie.link.gen.max", "pcie_generation", _whole),
            pcie_width=get("pcie.link.width.max", "pcie_width", _whole),
        ),
        readings=Readings(
            utilization_percent=get("utilization.gpu", "utilization_percent", _number),
            temperature_c=get("temperature.gpu", "temperature_c", _number),
            power_w=get("power.draw", "power_w", _number),
            power_cap_w=get("power.limit", "power_cap_w", _number),
            sm_clock_mhz=get("clocks.sm", "sm_clock_mhz", _number),
            ecc_uncorrected=get("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected", _whole),
            compute_mode=get("compute_mode", "compute_mode", _mode),
            persistence_mode=get("persistence_mode", "persistence_mode", _switch),
            display_active=get("display_active", "display_active", _switch),
        ),
        source="nvidia-smi, table" if table else "nvidia-smi",
        unknown=unknown,
    )


def _number(cell: str) -> float | None:
    found = re.fullmatch(r"(\d{1,15}(?:\.\d+)?)(?: ?(?:MiB|W|MHz|C|%))?", cell)
    return float(found[1]) if found else None


def _whole(cell: str) -> int | None:
    return int(cell) if re.fullmatch(r"\d{1,15}", cell) else None


def _mebibytes(cell: str) -> int | None:
    number = _number(cell)
    return None if number is None else values.whole(round(number * MIB), 0, values.MOST_BYTES)


def _capability(cell: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(\d{1,2})\.(\d)", cell)
    return (int(found[1]), int(found[2])) if found else None


def _mode(cell: str) -> str | None:
    mode = cell.lower().replace(" ", "_").replace("e._process", "exclusive_process")
    return mode if mode in values.COMPUTE_MODES else None


def _switch(cell: str) -> bool | None:
    return {"enabled": True, "on": True, "disabled": False, "off": False}.get(cell.lower())
