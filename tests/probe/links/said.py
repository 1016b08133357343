"""What drivers and tools say of links: lines of the NVML child, and texts of nvidia-smi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wizard.facts import Bus, Device, Facts, Host, Link, Software
from wizard.probe.links import read_links

GPU, SWITCH, HIDDEN = 0, 2, 255
OK, CHIPSET, CARD, REGKEY, NOT = 0, 1, 2, 4, 5
PIX, PXB, PHB, NODE, SYS = 10, 20, 30, 40, 50
NO_ADDRESS = "FFFFFFFF:FF:FF.0"

H100, A100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "NVIDIA H200"
RTX3090, RTX4090 = "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 4090"
RTX5090, A10G = "NVIDIA GeForce RTX 5090", "NVIDIA A10G"


def cards(
    count: int,
    name: str,
    capability: tuple[int, int],
    *,
    pcie: tuple[int, int] = (4, 16),
    buses: Sequence[str] = (),
    nodes: Sequence[int] = (),
) -> tuple[Device, ...]:
    """Devices alike, at buses 0x10, 0x11 … unless told."""
    return tuple(
        Device(
            kind="cuda",
            index=index,
            name=name,
            uuid=f"GPU-{index:08d}",
            compute_capability=capability,
            bus=Bus(
                pci_id=buses[index] if buses else f"00000000:{16 + index:02X}:00.0",
                pcie_generation=pcie[0],
                pcie_width=pcie[1],
                numa_node=nodes[index] if nodes else None,
            ),
            source="nvml",
        )
        for index in range(count)
    )


def nvlinks(index: int, far_ends: Sequence[tuple[int | None, str | None]]) -> list[dict[str, Any]]:
    """Active NVLinks of one card, by (type, address) of their far ends."""
    return [
        {
            "kind": "link",
            "index": index,
            "uuid": f"GPU-{index:08d}",
            "link": number,
            "active": True,
            "version": None,
            "remote_type": kind,
            "remote_pci": address,
            "mb_s": None,
        }
        for number, (kind, address) in enumerate(far_ends)
    ]


def pair(
    a: int, b: int, level: int | None = None, peer: int | None = None, **more: Any
) -> dict[str, Any]:
    """The line of one pair."""
    return {
        "kind": "pair",
        "indices": [a, b],
        "uuids": [f"GPU-{a:08d}", f"GPU-{b:08d}"],
        "level": level,
        "p2p_read": peer,
        "p2p_write": peer,
        **more,
    }


def pairs(count: int, level: int, peer: int | None) -> list[dict[str, Any]]:
    """The same line for every pair."""
    return [pair(a, b, level, peer) for a in range(count) for b in range(a + 1, count)]


def behind_switches(count: int, links: int, kind: int | None, address: str | None) -> list[Any]:
    """Every card with so many links to such far ends."""
    return [line for index in range(count) for line in nvlinks(index, [(kind, address)] * links)]


def between(links: Sequence[Link], a: int, b: int) -> Link:
    """The link of one pair."""
    return next(link for link in links if link.devices == (a, b))


def facts(devices: Sequence[Device], links: Sequence[Link] = (), **host: Any) -> Facts:
    """Facts of a machine with these devices."""
    return Facts(
        devices=tuple(devices),
        links=tuple(links),
        host=Host(hostname="server", system="Linux", **host),
        software=Software(python="3.12.4", driver="580.126.20"),
    )


def read(devices: Sequence[Device], raw: Sequence[Mapping[str, Any]], root: Path) -> Facts:
    """Facts of a machine of which so much is said."""
    return facts(devices, read_links(devices, raw, root=root))


def with_slice_of(device: Device, parent: str) -> Device:
    """A slice of a card."""
    return replace(device, uuid=f"MIG-{parent}-{device.index}", mig_parent_uuid=parent)


def topology(
    matrix: Sequence[Sequence[str]],
    *,
    cpus: Sequence[str] = (),
    numa: Sequence[str] | None = None,
    own_numa: Sequence[str] | None = None,
    cards: Sequence[str] = (),
    terminal: bool = False,
    begins_with_tab: bool = True,
) -> str:
    """`nvidia-smi topo -m` of these GPUs, with network cards called `cards`, all of them SYS."""
    count = len(matrix)
    header = [f"GPU{i}" for i in range(count)] + list(cards) + ["CPU Affinity"] * bool(cpus)
    header += ["NUMA Affinity"] * (numa is not None) + ["GPU NUMA ID"] * (own_numa is not None)
    text = "\t".join(header)
    lines = ["\t" * begins_with_tab + (f"\x1b[4m{text}\x1b[0m" if terminal else text)]
    for i, row in enumerate(matrix):
        cells = [f" {cell} " if cell == "X" else cell for cell in row] + ["SYS"] * len(cards)
        cells += [cpus[i]] if cpus else []
        cells += [numa[i]] if numa is not None else []
        cells += ["", own_numa[i]] if own_numa is not None else []
        lines.append("\t".join([f"GPU{i}", *cells]))
    for i, name in enumerate(cards):
        cells = ["SYS"] * count + [" X " if i == k else "PIX" for k in range(len(cards))]
        lines.append("\t".join([name, *cells]))
    legend = ["", "Legend:", "", "  X    = Self", "  NV#  = a number of bonded links", ""]
    more = ["NIC Legend:", "", *(f"  {name}: mlx5_{i}" for i, name in enumerate(cards)), ""]
    return "\n".join([*lines, *legend, *(more if cards else [])])


def mesh(count: int, cell: str) -> list[list[str]]:
    """Every pair alike."""
    return [["X" if i == k else cell for k in range(count)] for i in range(count)]
