"""What lies between devices, as links: kind, bandwidth, and peer access with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from wizard.facts import Device, Link
from wizard.probe import catalog
from wizard.probe.place import Place, read_place
from wizard.probe.topology import HOST_BRIDGE, INTERNAL, MULTIPLE, NODE, SINGLE, SYSTEM
from wizard.probe.wiring import ALLOWED, Between, by_capability, read_wiring

Kind: TypeAlias = Literal[
    "nvswitch", "nvlink", "xgmi", "hccs", "pcie-switch", "host-bridge", "socket", "unknown"
]

OVER_PCIE: dict[int | None, Kind] = {
    INTERNAL: "pcie-switch",
    SINGLE: "pcie-switch",
    MULTIPLE: "pcie-switch",
    HOST_BRIDGE: "host-bridge",
    NODE: "host-bridge",
    SYSTEM: "socket",
}
NVLINK_GBS = {(6, 0): 20.0, (8, 6): 14.0625, 7: 25.0, 8: 25.0, 9: 25.0, 10: 50.0}
"""GB/s of one NVLink in one direction, by compute capability: cards that were cut down, as H800
and A800, have fewer of the same links (stas00/ml-engineering, network/README.md). What a driver
calls the version of a link is counted in two ways, and is not used."""
LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
REFUSED = {
    1: "the driver refuses peer access: not with this chipset",
    2: "the driver refuses peer access: not with these devices",
    3: "the driver refuses peer access: not over this part of the bus",
    4: "peer access is switched off in the driver's registry",
    5: "the driver refuses peer access",
}
CLAIMED = "the driver claims peer access, but "
GEFORCE = re.compile(r"GeForce RTX (40|50)\d\d")
"""Cards whose stock driver has no peer access over the bus, also those not in the table."""


def read_links(
    devices: Sequence[Device], raw: Iterable[Mapping[str, Any]], *, root: Path = Path("/")
) -> tuple[Link, ...]:
    """A link for every pair of devices, in order; what nobody says is unknown.

    `raw`: lines as `wiring` takes them. Bandwidth is what the hardware can do, from the number of
    links or the lanes of the slot. Peer access that the driver claims, and that is known to fail
    in such a place, is None.
    """
    between = read_wiring(devices, raw, root)
    place = read_place(devices, root)
    return tuple(
        _link((a, b), (devices[a], devices[b]), between[a, b], place)
        for a in range(len(devices))
        for b in range(a + 1, len(devices))
    )


def _link(
    ends: tuple[int, int], devices: tuple[Device, Device], between: Between, place: Place
) -> Link:
    sliced = any(device.mig_parent_uuid for device in devices)
    if between.nvlinks and not sliced:
        gbs, basis = _over_nvlink(devices[0], between)
        kind: Kind = "nvswitch" if between.switched else "nvlink"
        peer, reason = _driver_says(between)
    else:
        kind = _kind(between, devices)
        gbs, basis = _over_pcie(devices, kind)
        peer, reason = _over_bus(devices, between, kind, place, sliced=sliced)
    return Link(
        devices=ends,
        kind=kind,
        gbs=gbs,
        peer_access=peer,
        why="; ".join(part for part in (basis, reason) if part),
        source=devices[0].source if kind != "unknown" else "",
    )


def _over_nvlink(device: Device, between: Between) -> tuple[float | None, str]:
    rate = by_capability(NVLINK_GBS, device)
    links = f"{between.nvlinks} NVLink{'s' * (between.nvlinks > 1)}"
    through = " through NVSwitch" * between.switched
    hidden = ", which is assumed: the far end is hidden" * between.hidden
    if rate is None and between.mb_s:
        rate = between.mb_s / 1000
    if rate is None:
        return None, f"{links}{through}{hidden}, of unknown speed"
    return rate * between.nvlinks, f"{links} of {rate:g} GB/s{through}{hidden}"


def _kind(between: Between, devices: tuple[Device, Device]) -> Kind:
    if between.level in OVER_PCIE:
        return OVER_PCIE[between.level]
    nodes = [device.bus.numa_node for device in devices]
    apart = None not in nodes and nodes[0] != nodes[1]
    return "socket" if apart else "unknown"


def _over_pcie(devices: tuple[Device, Device], kind: Kind) -> tuple[float | None, str]:
    slots = [(d.bus.pcie_generation, d.bus.pcie_width) for d in devices]
    rates = [(LANE_GBS.get(g or 0, 0.0) * (w or 0), g, w) for g, w in slots]
    rate, generation, width = min(rates, key=lambda slot: slot[0])
    if kind == "unknown":
        return None, "nobody says what lies between them"
    if not rate:
        return None, "the generation or width of the slot is unknown"
    if kind == "socket":
        why = f"at most that of PCIe {generation}.0 x{width} and the link between sockets"
    else:
        why = f"at most that of PCIe {generation}.0 x{width}"
    return round(rate, 1), why


def _driver_says(between: Between) -> tuple[bool | None, str]:
    if between.peer in REFUSED:
        return False, REFUSED[between.peer]
    if between.peer == ALLOWED:
        return True, "the driver allows peer access"
    return None, "the driver does not say whether peer access works"


def _over_bus(
    devices: tuple[Device, Device],
    between: Between,
    kind: Kind,
    place: Place,
    *,
    sliced: bool,
) -> tuple[bool | None, str]:
    if sliced:
        return False, "a slice of a card reaches no other device directly"
    if place.wsl:
        return False, "WSL has no peer access between devices"
    peer, says = _driver_says(between)
    without = next((text for device in devices if (text := _stock_driver(device))), "")
    if peer is False:
        return False, "; ".join(part for part in (says, without) if part)
    if without and peer is None:
        return False, without
    doubt = without or _doubt(devices, kind, place)
    if peer and doubt:
        return None, CLAIMED + doubt
    return peer, says


def _stock_driver(device: Device) -> str:
    """That a card's own driver has no peer access over the bus; empty when it may have it."""
    row = catalog.accelerator(device.name) or {}
    if row.get("p2p_over_pcie") != "no" and not GEFORCE.search(device.name):
        return ""
    return f"the stock driver of {device.name.removeprefix('NVIDIA ')} has no peer access"


def _doubt(devices: tuple[Device, Device], kind: Kind, place: Place) -> str:
    """Why a claim of the driver may not hold; empty when nothing speaks against it."""
    if place.virtual:
        return "in a virtual machine it is often broken"
    groups = {place.iommu_groups.get(d.bus.pci_id or "") for d in devices}
    if kind == "pcie-switch" and None not in groups and len(groups) > 1:
        return "they are in different IOMMU groups, so ACS may send it through the processor"
    return ""
