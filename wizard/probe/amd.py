"""AMD devices: the kernel's topology says what there is, rocm-smi or amd-smi how it is."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wizard.facts import Bus, Device, Readings
from wizard.probe import catalog
from wizard.probe.accelerators import Accelerators
from wizard.probe.kfd import NODES, Node, links_between, read_nodes
from wizard.probe.running import Run
from wizard.probe.vendors import (
    first_number,
    hidden,
    hung,
    json_in,
    numa_node,
    pci_folder,
    pci_id,
    positions,
    read_text,
    whole,
)
from wizard.problem import Problem

TIME_LIMIT_SECONDS = 10.0
DRIVER_TRACES = ("dev/kfd", NODES)
ROCM_SMI = [
    *("rocm-smi", "--showproductname", "--showuse", "--showmeminfo", "vram", "gtt", "--showtemp"),
    *("--showpower", "--showmaxpower", "--showbus", "--showuniqueid", "--showdriverversion"),
    "--json",
]
AMD_SMI = ["amd-smi", "static", "--asic", "--bus", "--vram", "--driver", "--json"]
UNIFIED_BELOW_BYTES = 4 * 1024**3
"""An APU carves out less than this; what it really uses is host memory."""
MIB = 1024**2
VARIABLES = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """What a tool says of a device; unknown is None."""

    index: int
    name: str | None = None
    arch: str | None = None
    node: int | None = None
    address: str | None = None
    total_bytes: int | None = None
    used_bytes: int | None = None
    shared_bytes: int | None = None
    """Host memory it may use as its own."""
    uuid: str | None = None
    readings: Readings = field(default_factory=Readings)
    driver: str | None = None
    source: str = ""


def read(root: Path, run: Run, environment: Mapping[str, str] | None = None) -> Accelerators:
    """Every AMD device this process may use. Never raises."""
    if not any((root / trace).exists() for trace in DRIVER_TRACES):
        return Accelerators()
    nodes = read_nodes(root)
    cards, problems = _cards(run)
    if nodes:
        devices = tuple(_from_node(i, node, nodes, cards, root) for i, node in enumerate(nodes))
        links = links_between(nodes)
    else:
        devices, links = tuple(_from_card(card, root) for card in cards), ()
    found = Accelerators(
        devices=devices,
        driver=next((card.driver for card in cards if card.driver), None)
        or read_text(root / "sys/module/amdgpu/version")
        or None,
        problems=tuple(problems) if devices else (),
        known_links=links,
    )
    return visible(found, os.environ if environment is None else environment)


def _cards(run: Run) -> tuple[list[Card], list[Problem]]:
    """What rocm-smi says, else amd-smi; a tool that hangs is a problem, one not there is not."""
    problems = []
    for command, parse in ((ROCM_SMI, parse_rocm_smi), (AMD_SMI, parse_amd_smi)):
        ran = run(command, TIME_LIMIT_SECONDS)
        if ran.timed_out:
            problems.append(replace(hung(command[0], TIME_LIMIT_SECONDS), severity="warning"))
        elif cards := parse(ran.out):
            return cards, problems
    return [], problems


def parse_rocm_smi(text: str) -> list[Card]:
    """The cards of `rocm-smi … --json`: every value is a string, keys differ in case.

    Warnings may precede the document (marimo-team/marimo#9237).
    """
    document = json_in(text)
    if not isinstance(document, Mapping):
        return []
    plain = {name: _folded(card) for name, card in document.items() if isinstance(card, Mapping)}
    driver = plain.get("system", {}).get("driver version")
    cards = [
        replace(_rocm_card(int(name[4:]), card), driver=driver)
        for name, card in plain.items()
        if name.startswith("card") and name[4:].isdecimal()
    ]
    return sorted(cards, key=lambda card: card.index)


def _folded(card: Mapping[str, Any]) -> dict[str, str]:
    return {str(key).casefold().strip(": "): str(value) for key, value in card.items()}


def _rocm_card(index: int, card: Mapping[str, str]) -> Card:
    temperature = _first(card, "temperature (sensor junction) (c)", "temperature (sensor edge) (c)")
    power = _first(
        card, "current socket graphics package power (w)", "average graphics package power (w)"
    )
    return Card(
        index=index,
        name=_word(card.get("card series")) or _word(card.get("device name")),
        arch=_word(card.get("gfx version")),
        node=whole(card.get("node id")),
        address=_word(card.get("pci bus")),
        total_bytes=whole(card.get("vram total memory (b)")),
        used_bytes=whole(card.get("vram total used memory (b)")),
        shared_bytes=whole(card.get("gtt total memory (b)")),
        uuid=_uuid(card.get("unique id")),
        readings=Readings(
            utilization_percent=first_number(card.get("gpu use (%)")),
            temperature_c=temperature,
            power_w=power,
            power_cap_w=_first(card, "max graphics package power (w)"),
        ),
        source="rocm-smi",
    )


def _first(card: Mapping[str, str], *keys: str) -> float | None:
    found = (first_number(card.get(key)) for key in keys)
    return next((number for number in found if number is not None), None)


def _word(text: str | None) -> str | None:
    return None if text is None or text.casefold() in ("", "n/a", "none", "unknown") else text


def _uuid(unique: object) -> str | None:
    """HIP's name of a device: the unique id in sixteen digits of base 16."""
    text = str(unique).lower().removeprefix("0x")
    try:
        return f"GPU-{int(text, 16):016x}" if int(text, 16) else None
    except ValueError:
        return None


def parse_amd_smi(text: str) -> list[Card]:
    """The devices of `amd-smi static --json`: a list, or a list under `gpu_data`."""
    document = json_in(text)
    if isinstance(document, Mapping):
        document = document.get("gpu_data")
    if not isinstance(document, list):
        return []
    return [_amd_card(i, one) for i, one in enumerate(document) if isinstance(one, Mapping)]


def _amd_card(index: int, one: Mapping[str, Any]) -> Card:
    asic, bus, vram, driver = (_part(one, key) for key in ("asic", "bus", "vram", "driver"))
    size = vram.get("size")
    mib = size.get("value") if isinstance(size, Mapping) else size
    return Card(
        index=index if (number := whole(one.get("gpu"))) is None else number,
        name=_word(asic.get("market_name")),
        arch=_word(asic.get("target_graphics_version")),
        address=_word(bus.get("bdf")),
        total_bytes=None if whole(mib) is None else int(whole(mib) or 0) * MIB,
        uuid=_uuid(asic.get("asic_serial")),
        driver=_word(driver.get("version")),
        source="amd-smi",
    )


def _part(one: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = one.get(key)
    return part if isinstance(part, Mapping) else {}


def _from_node(
    index: int, node: Node, nodes: Sequence[Node], cards: Sequence[Card], root: Path
) -> Device:
    partitions = [other for other in nodes if other.card == node.card]
    card = _card_of(node, cards)
    told = _from_card(card or Card(index=index, arch=node.arch, address=node.address), root)
    unique = node.properties.get("unique_id")
    device = replace(
        told,
        index=index,
        uuid=f"GPU-{unique:016x}" if unique else told.uuid,
        memory_total_bytes=told.memory_total_bytes
        if told.unified_memory
        else node.memory_bytes or told.memory_total_bytes,
        compute_capability=capability(node.arch) or told.compute_capability,
        unified_memory=told.unified_memory or node.integrated,
        bus=_bus(node.address, root),
        source=told.source or "sysfs",
        sources={**told.sources, "memory_total_bytes": "sysfs", "pci_id": "sysfs", "uuid": "sysfs"},
        unknown={key: why for key, why in told.unknown.items() if key != "uuid" or not unique},
    )
    return _partition(device, len(partitions)) if len(partitions) > 1 else _with_free(device)


def _card_of(node: Node, cards: Sequence[Card]) -> Card | None:
    """The tool's card of a node: by its node number, else by its PCI address."""
    by_node = next((card for card in cards if card.node == node.number), None)
    return by_node or next((c for c in cards if c.address and same_slot(c.address, node)), None)


def same_slot(address: str, node: Node) -> bool:
    """Whether a tool's address names the node's."""
    return pci_id(address) == pci_id(node.address)


def _partition(device: Device, parts: int) -> Device:
    """A part of a partitioned card: tools show the whole card's use at the first part, 0 elsewhere.

    See ROCm/legacy-rocm-build#4750; the kernel's size of each part is right.
    """
    used = f"one of {parts} partitions; the tools count use for the whole card"
    rate = f"one of {parts} partitions; the table has the rate of the whole card"
    return replace(
        device,
        uuid=None,
        mig_parent_uuid=device.uuid,
        memory_free_bytes=None,
        memory_used_bytes=None,
        memory_bandwidth_gbs=None,
        bf16_tflops=None,
        sources={"memory_total_bytes": "sysfs", "pci_id": "sysfs", "mig_parent_uuid": "sysfs"},
        unknown={
            "uuid": f"one of {parts} partitions, which share their card's",
            "memory_free_bytes": used,
            "memory_used_bytes": used,
            "memory_bandwidth_gbs": rate,
            "bf16_tflops": rate,
        },
    )


def _with_free(device: Device) -> Device:
    total, used = device.memory_total_bytes, device.memory_used_bytes
    if total is None or used is None or used > total:
        why = "neither rocm-smi nor amd-smi tells what is in use"
        return replace(device, unknown={**device.unknown, "memory_free_bytes": why})
    return replace(device, memory_free_bytes=total - used)


def _from_card(card: Card, root: Path) -> Device:
    name = card.name or _product_name(card, root) or f"AMD {card.arch or 'device'}"
    row = _row(name)
    shared = card.shared_bytes or 0
    unified = (card.total_bytes or UNIFIED_BELOW_BYTES) < UNIFIED_BELOW_BYTES < shared
    device = Device(
        kind="rocm",
        index=card.index,
        name=name,
        uuid=card.uuid,
        memory_total_bytes=(card.total_bytes or 0) + shared if unified else card.total_bytes,
        memory_used_bytes=card.used_bytes,
        compute_capability=capability(card.arch),
        bf16_native=_bf16(card.arch, row),
        memory_bandwidth_gbs=catalog.number(row, "memory_bandwidth_gbs"),
        bf16_tflops=catalog.number(row, "bf16_tflops"),
        unified_memory=unified,
        bus=_bus(card.address, root),
        readings=card.readings,
        source=card.source,
        sources=_sources(row),
        unknown=_unknown(card, row),
    )
    return _with_free(device)


def _sources(row: Mapping[str, str]) -> dict[str, str]:
    return {field: "table" for field in ("bf16_tflops", "memory_bandwidth_gbs") if row.get(field)}


def _unknown(card: Card, row: Mapping[str, str]) -> dict[str, str]:
    reasons = {}
    for name in ("bf16_tflops", "memory_bandwidth_gbs"):
        if not row.get(name):
            reasons[name] = "this card is not in the table"
    if not card.uuid:
        reasons["uuid"] = "not reported"
    if not card.source:
        reasons["readings"] = "rocm-smi and amd-smi do not answer"
    return reasons


def _row(name: str) -> Mapping[str, str]:
    """The table's row: tools write the maker before the name, or not."""
    plain = name.removeprefix("AMD ").replace("INSTINCT", "Instinct")
    return catalog.accelerator(f"AMD {plain}") or catalog.accelerator(name) or {}


def _product_name(card: Card, root: Path) -> str | None:
    return read_text(pci_folder(root, card.address) / "product_name") if card.address else None


def capability(arch: str | None) -> tuple[int, int] | None:
    """What torch calls the compute capability: gfx942 → (9, 4), gfx1100 → (11, 0)."""
    digits = (arch or "").removeprefix("gfx")
    if len(digits) < 3 or not digits[:-2].isdecimal():
        return None
    return int(digits[:-2]), int(digits[-2], 16)


def _bf16(arch: str | None, row: Mapping[str, str]) -> bool | None:
    """Matrix units with bf16: CDNA 2 on (gfx90a), RDNA 3 on (gfx11)."""
    if row.get("bf16_native"):
        return row["bf16_native"] == "yes"
    found = capability(arch)
    return None if found is None else arch == "gfx90a" or found >= (9, 4)


def _bus(address: str | None, root: Path) -> Bus:
    if address is None:
        return Bus()
    folder = pci_folder(root, address)
    width = first_number(read_text(folder / "max_link_width"))
    return Bus(
        pci_id=pci_id(address),
        pcie_generation=_generation(read_text(folder / "max_link_speed")),
        pcie_width=int(width) if width else None,
        numa_node=numa_node(folder),
        cpu_affinity=read_text(folder / "local_cpulist") or None,
    )


def _generation(speed: str) -> int | None:
    """`32.0 GT/s PCIe` → 5."""
    speeds = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
    number = first_number(speed)
    return None if number is None else speeds.get(number)


def visible(found: Accelerators, environment: Mapping[str, str]) -> Accelerators:
    """What the variables leave: ROCR filters first, HIP numbers the rest.

    CUDA_VISIBLE_DEVICES is read where HIP's own is not set.
    """
    hint = "rocm-smi lists the cards, rocminfo their UUIDs"
    named = [name for name in VARIABLES if name in environment]
    if len(named) > 1 and found.devices:
        found = replace(found, problems=(*found.problems, _several(named)))
    for name in ("ROCR_VISIBLE_DEVICES", *_hip(environment)):
        wanted = environment.get(name)
        if wanted is not None and found.devices:
            kept, bad = positions(_numbers(wanted, found.devices), len(found.devices))
            found = hidden(found, kept, bad, f"{name}={wanted}", hint)
    return found


def _several(named: Sequence[str]) -> Problem:
    return Problem(
        what="they filter one after another, so that a number means another card in each",
        where=" and ".join(named),
        fix="keep HIP_VISIBLE_DEVICES only",
        severity="warning",
        exit_code=6,
    )


def _hip(environment: Mapping[str, str]) -> tuple[str, ...]:
    own = "HIP_VISIBLE_DEVICES" in environment
    return ("HIP_VISIBLE_DEVICES",) if own else ("CUDA_VISIBLE_DEVICES",)


def _numbers(wanted: str, devices: Sequence[Device]) -> str:
    """The variable with UUIDs replaced by positions."""
    places = {device.uuid: str(place) for place, device in enumerate(devices) if device.uuid}
    return ",".join(places.get(part.strip(), part) for part in wanted.split(","))
