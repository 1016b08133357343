"""Raw link lines → what lies between each pair of devices: NVLinks, switches, bus, permission.

The lines come from the NVML child or from `topology`, and name devices by UUID and index:
  link  index, uuid, link, active, remote_pci, remote_type (code of NVML), mb_s
  pair  indices, uuids, level (of NVML's topology), p2p_read, p2p_write (codes of NVML), nvlinks
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

from wizard.facts import Device
from wizard.probe.topology import UNSAID
from wizard.probe.vendors import pci_folder, pci_id, read_text

Line: TypeAlias = Mapping[str, Any]
Pair: TypeAlias = tuple[int, int]

NVLINKS = {(6, 0): 4, (7, 0): 6, (7, 5): 2, (8, 0): 12, (8, 6): 4, 9: 18, 10: 18}
"""The most NVLinks a card has, by compute capability."""
GPU, NPU_OF_HOST, SWITCH = 0, 1, 2
ALLOWED, REFUSALS = 0, range(1, 6)
BRIDGE_CLASS, DISPLAY_CLASS = "0x0680", "0x03"


@dataclass(frozen=True, slots=True)
class Between:
    """What lies between two devices; as far as somebody said so."""

    nvlinks: int = 0
    switched: bool = False
    hidden: bool = False
    """Nobody says where the links lead."""
    mb_s: int | None = None
    """Of one link."""
    level: int | None = None
    peer: int | None = None
    """Code of the driver, the worst of reading and writing in both directions."""


@dataclass(slots=True)
class Wires:
    """Active NVLinks of one device, by where they lead."""

    to_device: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    to_switch: int = 0
    unknown: int = 0
    mb_s: int | None = None


def read_wiring(
    devices: Sequence[Device], lines: Iterable[Line], root: Path
) -> dict[Pair, Between]:
    """What lies between devices, by their positions in ascending order."""
    lines = tuple(lines)
    found: dict[Pair, Between] = defaultdict(Between)
    for line in lines:
        if line.get("kind") == "pair":
            one, other = (positions(devices, *name) for name in _ends(line))
            for pair in _pairs(one, other):
                found[pair] = _with_line(found[pair], line)
    wires = _wires(devices, lines, root)
    for pair in _pairs(range(len(devices)), range(len(devices))):
        found[pair] = _with_wires(found[pair], wires, pair)
    _find_switches(found, devices)
    return dict(found)


def positions(devices: Sequence[Device], index: object, uuid: object) -> tuple[int, ...]:
    """Positions of the devices that a line means; several for a card in slices."""
    return tuple(
        place
        for place, device in enumerate(devices)
        if (uuid in (device.uuid, device.mig_parent_uuid) if uuid else device.index == index)
    )


def _ends(line: Line) -> list[tuple[object, object]]:
    indices, uuids = (line.get(name) or (None, None) for name in ("indices", "uuids"))
    return list(zip(indices, uuids, strict=True))


def _pairs(ones: Iterable[int], others: Iterable[int]) -> set[Pair]:
    others = tuple(others)
    return {(min(a, b), max(a, b)) for a in ones for b in others if a != b}


def _with_line(before: Between, line: Line) -> Between:
    codes = [line.get("p2p_read"), line.get("p2p_write"), before.peer]
    known = [code for code in codes if isinstance(code, int)]
    level, nvlinks = line.get("level"), line.get("nvlinks")
    return replace(
        before,
        level=before.level if level is None else level,
        peer=max(known, key=_severity) if known else None,
        nvlinks=max(before.nvlinks, nvlinks or 0),
    )


def _severity(code: int) -> int:
    """A refusal outweighs not knowing, and that a permission."""
    return 2 if code in REFUSALS else 0 if code == ALLOWED else 1


def _wires(devices: Sequence[Device], lines: Iterable[Line], root: Path) -> dict[int, Wires]:
    at = {d.bus.pci_id: place for place, d in enumerate(devices) if d.bus.pci_id}
    found: dict[int, Wires] = defaultdict(Wires)
    for line in lines:
        if line.get("kind") != "link" or not line.get("active"):
            continue
        remote = pci_id(str(line.get("remote_pci")))
        for place in positions(devices, line.get("index"), line.get("uuid")):
            wires = found[place]
            wires.mb_s = wires.mb_s or line.get("mb_s")
            if remote in at:
                wires.to_device[at[remote]] += 1
            else:
                _add_far_end(wires, _far_end(line.get("remote_type"), remote, root))
    return found


def _far_end(code: object, remote: str | None, root: Path) -> object:
    """Code of what a link leads to; the kernel knows it where an old driver does not say."""
    if code in (GPU, NPU_OF_HOST, SWITCH, UNSAID) or remote is None:
        return code
    of_pci = read_text(pci_folder(root, remote) / "class")
    return (
        SWITCH
        if of_pci.startswith(BRIDGE_CLASS)
        else GPU
        if of_pci.startswith(DISPLAY_CLASS)
        else code
    )


def _add_far_end(wires: Wires, code: object) -> None:
    """Links to a card that may not be used, and to the processor, join no two of our devices."""
    if code == SWITCH:
        wires.to_switch += 1
    elif code not in (GPU, NPU_OF_HOST, UNSAID):
        wires.unknown += 1


def _with_wires(before: Between, wires: Mapping[int, Wires], pair: Pair) -> Between:
    one, other = (wires.get(end, Wires()) for end in pair)
    before = replace(before, mb_s=one.mb_s or other.mb_s)
    direct = max(one.to_device.get(pair[1], 0), other.to_device.get(pair[0], 0))
    if direct or before.nvlinks:
        return replace(before, nvlinks=direct or before.nvlinks)
    shared = min(one.to_switch + one.unknown, other.to_switch + other.unknown)
    # In a virtual machine switches are out of sight: NCCL assumes one, and so do we
    # (NVIDIA/nccl#1182).
    hidden = shared > min(one.to_switch, other.to_switch)
    return replace(before, nvlinks=shared, switched=shared > 0, hidden=hidden)


def _find_switches(found: dict[Pair, Between], devices: Sequence[Device]) -> None:
    """A matrix counts links per pair: more in sum than a card has means that they are shared."""
    for place, device in enumerate(devices):
        mine = [pair for pair in found if place in pair and found[pair].nvlinks]
        most = by_capability(NVLINKS, device)
        if most is not None and sum(found[pair].nvlinks for pair in mine) > most:
            for pair in mine:
                found[pair] = replace(found[pair], switched=True)


def by_capability(table: Mapping[Any, Any], device: Device) -> Any:
    """The entry for a device's compute capability, else for its major number, else None."""
    capability = device.compute_capability
    return table.get(capability, table.get(capability[0])) if capability else None
