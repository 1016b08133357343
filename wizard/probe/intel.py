"""Intel devices: what xpu-smi says, else what the PCI ids of the cards say."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from wizard.facts import Bus, Device, Readings
from wizard.probe import catalog
from wizard.probe.accelerators import Accelerators
from wizard.probe.running import Run
from wizard.probe.vendors import (
    first_number,
    hidden,
    hung,
    json_in,
    not_trained_on,
    numa_node,
    pci_folder,
    pci_id,
    read_text,
    whole,
)
from wizard.problem import Problem

TIME_LIMIT_SECONDS = 10.0
VENDOR = "0x8086"
MIB = 1024**2
CARDS = {
    "0x0bd5": ("Intel(R) Data Center GPU Max 1550", 2),
    "0x56a0": ("Intel(R) Arc(TM) A770 Graphics", 1),
    "0xe20b": ("Intel(R) Arc(TM) B580 Graphics", 1),
    "0xe211": ("Intel(R) Arc(TM) Pro B60 Graphics", 1),
}
"""PCI id → (name, tiles), for machines without xpu-smi; graphics inside a processor is not here."""


def read(root: Path, run: Run, environment: Mapping[str, str] | None = None) -> Accelerators:
    """Every Intel device this process may use, as torch counts them. Never raises."""
    folders = _folders(root)
    if not folders:
        return Accelerators()
    environment = os.environ if environment is None else environment
    tiled = environment.get("ZE_FLAT_DEVICE_HIERARCHY", "FLAT").upper() != "COMPOSITE"
    ran = run(["xpu-smi", "discovery", "-j"], TIME_LIMIT_SECONDS)
    if ran.timed_out:
        return Accelerators(problems=(hung("xpu-smi", TIME_LIMIT_SECONDS),))
    cards = _complete(parse_discovery(ran.out), run)
    if cards:
        devices = [device for card in cards for device in _devices(card, tiled, root)]
        problems: tuple[Problem, ...] = ()
    else:
        devices = [device for folder in folders for device in _by_id(folder, tiled)]
        problems = (_no_tool(),) if devices else ()
    if devices:
        problems = (*problems, not_trained_on(devices[0].name))
    numbered = [replace(device, index=index) for index, device in enumerate(devices)]
    driver = next((str(c["driver_version"]) for c in cards if c.get("driver_version")), None)
    found = Accelerators(devices=tuple(numbered), driver=driver, problems=problems)
    return visible(found, environment)


def _folders(root: Path) -> list[Path]:
    """PCI folders of Intel graphics devices, in the order of their addresses."""
    renders = (root / "sys/class/drm").glob("renderD*/device")
    found = {folder.resolve() for folder in renders if read_text(folder / "vendor") == VENDOR}
    return sorted(found, key=lambda folder: folder.name)


def parse_discovery(text: str) -> list[dict[str, Any]]:
    """The cards of `xpu-smi discovery -j`; virtual functions and other processors left out."""
    document = json_in(text)
    listed = document.get("device_list") if isinstance(document, Mapping) else document
    if not isinstance(listed, list):
        return [document] if isinstance(document, dict) and "device_name" in document else []
    return [
        one
        for one in listed
        if isinstance(one, dict)
        and str(one.get("device_type", "GPU")).upper() == "GPU"
        and str(one.get("device_function_type", "physical")).lower() == "physical"
    ]


def _complete(cards: Sequence[dict[str, Any]], run: Run) -> list[dict[str, Any]]:
    """The cards with memory, tiles and readings, which xpu-smi tells for one at a time."""
    if not cards:
        return []
    with ThreadPoolExecutor(max_workers=8) as pool:
        return list(pool.map(lambda card: _one(card, run), cards))


def _one(card: dict[str, Any], run: Run) -> dict[str, Any]:
    number = str(card.get("device_id", 0))
    more = run(["xpu-smi", "discovery", "-d", number, "-j"], TIME_LIMIT_SECONDS)
    stats = run(["xpu-smi", "stats", "-d", number, "-j"], TIME_LIMIT_SECONDS)
    told = json_in(more.out)
    return {
        **card,
        **(told if isinstance(told, Mapping) and "device_name" in told else {}),
        "stats": json_in(stats.out),
    }


def _devices(card: Mapping[str, Any], tiled: bool, root: Path) -> list[Device]:
    """One device a tile, as torch lists them unless ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE.

    Integrated graphics has no memory of its own and is left out.
    """
    total = whole(card.get("memory_physical_size_byte"))
    if not total:
        return []
    tiles = max(1, whole(card.get("number_of_tiles")) or 1) if tiled else 1
    return [_device(card, tile, tiles, total // tiles, root) for tile in range(tiles)]


def _device(card: Mapping[str, Any], tile: int, tiles: int, total_bytes: int, root: Path) -> Device:
    name = str(card.get("device_name"))
    row = catalog.accelerator(name) or {}
    stats = _stats(card.get("stats"), tile if tiles > 1 else None)
    used = stats.get("MEMORY_USED")
    used_bytes = None if used is None else round(used * MIB)
    return Device(
        kind="xpu",
        index=0,
        name=name,
        uuid=_uuid(card.get("uuid"), tile, tiles),
        memory_total_bytes=total_bytes,
        memory_used_bytes=used_bytes,
        memory_free_bytes=None if used_bytes is None else max(0, total_bytes - used_bytes),
        bf16_native={"yes": True, "no": False}.get(row.get("bf16_native", "")),
        memory_bandwidth_gbs=catalog.number(row, "memory_bandwidth_gbs"),
        bf16_tflops=catalog.number(row, "bf16_tflops"),
        bus=_bus(str(card.get("pci_bdf_address") or ""), card, root),
        readings=Readings(
            utilization_percent=stats.get("GPU_UTILIZATION"),
            temperature_c=stats.get("GPU_CORE_TEMPERATURE"),
            power_w=stats.get("POWER"),
        ),
        source="xpu-smi",
        sources={"bf16_tflops": "table", "memory_bandwidth_gbs": "table"} if row else {},
        unknown=_unknown(used, row),
    )


def _unknown(used: float | None, row: Mapping[str, str]) -> dict[str, str]:
    reasons = {"compute_capability": "an XPU has none"}
    if used is None:
        reasons["memory_free_bytes"] = "the first sample of xpu-smi is often N/A"
    if not row:
        reasons["bf16_tflops"] = "this card is not in the table"
    return reasons


def _stats(document: object, tile: int | None) -> dict[str, float]:
    """Metric → value of a card, or of one of its tiles where it is told."""
    if not isinstance(document, Mapping):
        return {}
    entries = _list(document.get("device_level"))
    for one in _list(document.get("tile_level")):
        if isinstance(one, Mapping) and tile is not None and whole(one.get("tile_id")) == tile:
            entries = [*entries, *_list(one.get("data_list"))]
    found = {}
    for entry in entries:
        number = first_number(entry.get("value")) if isinstance(entry, Mapping) else None
        if number is not None:
            found[str(entry.get("metrics_type")).removeprefix("XPUM_STATS_")] = number
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _uuid(text: object, tile: int, tiles: int) -> str | None:
    """Tiles of one card differ in the end of its UUID: …0001, …0002 (intel/torch-xpu-ops#3206)."""
    if not text:
        return None
    head, dash, tail = str(text).rpartition("-")
    return (
        f"{head}{dash}{tile + 1:0{len(tail)}d}" if tiles > 1 and not tail.strip("0") else str(text)
    )


def _bus(address: str, card: Mapping[str, Any], root: Path) -> Bus:
    if pci_id(address) is None:
        return Bus()
    folder = pci_folder(root, address)
    return Bus(
        pci_id=pci_id(address),
        pcie_generation=whole(card.get("pcie_generation")),
        pcie_width=whole(card.get("pcie_max_link_width")),
        numa_node=numa_node(folder),
        cpu_affinity=read_text(folder / "local_cpulist") or None,
    )


def _by_id(folder: Path, tiled: bool) -> list[Device]:
    known = CARDS.get(read_text(folder / "device"))
    if known is None:
        return []
    name, tiles = known
    why = "xpu-smi is not installed, and the kernel does not tell"
    return [
        Device(
            kind="xpu",
            index=0,
            name=name,
            bus=Bus(pci_id=pci_id(folder.name), numa_node=numa_node(folder)),
            source="sysfs",
            unknown={"memory_total_bytes": why, "memory_free_bytes": why, "readings": why},
        )
        for _ in range(tiles if tiled else 1)
    ]


def visible(found: Accelerators, environment: Mapping[str, str]) -> Accelerators:
    """What ZE_AFFINITY_MASK leaves: devices `2`, or tiles `1.0` of cards."""
    name = "ZE_AFFINITY_MASK"
    wanted = environment.get(name, "")
    if not wanted.strip() or not found.devices:
        return found
    kept: list[int] = []
    bad = None
    for entry in (part.strip() for part in wanted.split(",")):
        place = _place(entry, found.devices)
        if place is None or place in kept:
            bad = entry
            break
        kept.append(place)
    return hidden(found, kept, bad, f"{name}={wanted}", "xpu-smi discovery lists them")


def _place(entry: str, devices: Sequence[Device]) -> int | None:
    """The position an entry of the mask names; `1.0` is the first tile of the second card."""
    card, dot, tile = entry.partition(".")
    if not card.isdecimal() or (dot and not tile.isdecimal()):
        return None
    if not dot:
        return int(card) if int(card) < len(devices) else None
    cards = list(dict.fromkeys(device.bus.pci_id for device in devices))
    if int(card) >= len(cards):
        return None
    places = [i for i, device in enumerate(devices) if device.bus.pci_id == cards[int(card)]]
    return places[int(tile)] if int(tile) < len(places) else None


def _no_tool() -> Problem:
    return Problem(
        what="Intel cards are here, but xpu-smi is not: their memory is not known",
        where="xpu-smi",
        fix="install it with the driver packages of the cards",
        severity="warning",
        exit_code=6,
    )
