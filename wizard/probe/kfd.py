"""The kernel's list of AMD compute devices and of the links between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wizard.facts import Link
from wizard.probe.vendors import read_text

NODES = "sys/class/kfd/kfd/topology/nodes"
LOCAL_MEMORY_HEAPS = (1, 2)
"""Kinds of memory bank that are the device's own: public and private framebuffer."""
XGMI_LINK, PCIE_LINK = 11, 2
"""Kinds of a kernel io_link."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One compute device of the kernel's topology: a card, or a partition of one."""

    number: int
    properties: Mapping[str, int]
    memory_bytes: int | None
    peers: Mapping[int, Mapping[str, int]]
    """Node → properties of the link to it."""

    @property
    def integrated(self) -> bool:
        """Processor cores and compute units in one node: an APU, whose memory is the host's."""
        return self.properties.get("cpu_cores_count", 0) > 0

    @property
    def arch(self) -> str | None:
        """As `gfx942`: 90402 in decimal pairs, the last one written in base 16."""
        version = self.properties.get("gfx_target_version", 0)
        if not version:
            return None
        return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"

    @property
    def address(self) -> str:
        """The PCI address; partitions of a card differ in its last digit only."""
        location = self.properties.get("location_id", 0)
        domain = self.properties.get("domain", 0)
        return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"

    @property
    def card(self) -> str:
        """What the partitions of one card have in common."""
        return self.address.rpartition(".")[0]


def read_nodes(root: Path) -> list[Node]:
    """Compute devices in the kernel's order, which is the order of HIP; CPUs left out."""
    folders = sorted(
        (path for path in (root / NODES).glob("*") if path.name.isdecimal()),
        key=lambda path: int(path.name),
    )
    nodes = [_node(folder) for folder in folders]
    return [node for node in nodes if node.properties.get("simd_count", 0) > 0]


def _node(folder: Path) -> Node:
    banks = [_properties(path) for path in sorted((folder / "mem_banks").glob("*/properties"))]
    own = [
        bank.get("size_in_bytes", 0)
        for bank in banks
        if bank.get("heap_type") in LOCAL_MEMORY_HEAPS
    ]
    links = [_properties(path) for path in sorted((folder / "io_links").glob("*/properties"))]
    links += [_properties(path) for path in sorted((folder / "p2p_links").glob("*/properties"))]
    return Node(
        number=int(folder.name),
        properties=_properties(folder / "properties"),
        memory_bytes=sum(own) or None,
        peers={link["node_to"]: link for link in links if "node_to" in link},
    )


def _properties(path: Path) -> dict[str, int]:
    """`key value` lines with whole numbers, as the kernel writes them."""
    pairs = (line.split() for line in read_text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def links_between(nodes: Sequence[Node]) -> tuple[Link, ...]:
    """One link per pair; positions are those in `nodes`."""
    found = []
    for first, second in _pairs(len(nodes)):
        one, other = nodes[first], nodes[second]
        link = one.peers.get(other.number) or other.peers.get(one.number)
        found.append(_link((first, second), link, same_card=one.card == other.card))
    return tuple(found)


def _pairs(count: int) -> Iterator[tuple[int, int]]:
    return ((first, second) for first in range(count) for second in range(first + 1, count))


def _link(ends: tuple[int, int], link: Mapping[str, int] | None, *, same_card: bool) -> Link:
    kind = (link or {}).get("type")
    megabytes = (link or {}).get("max_bandwidth") or None
    gbs = None if megabytes is None else megabytes / 1000
    if kind == XGMI_LINK:
        why = "partitions of one card" if same_card else "xGMI, as the kernel's topology says"
        return Link(devices=ends, kind="xgmi", gbs=gbs, peer_access=True, why=why, source="sysfs")
    if kind == PCIE_LINK:
        why = "over PCIe, as the kernel's topology says"
        return Link(devices=ends, kind="host-bridge", gbs=gbs, why=why, source="sysfs")
    why = "the kernel's topology has no link between them"
    return Link(devices=ends, kind="unknown", why=why, source="sysfs")
