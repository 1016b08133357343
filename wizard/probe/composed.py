"""A machine made of a count and a row of the accelerator table; everything else is unknown."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from wizard.facts import Bus, Device, Facts, Host, Link, Software
from wizard.probe import catalog
from wizard.problem import Problem, ProblemError

PCIE = re.compile(r"PCIe (\d)\.\d x(\d+)")
SIZE = re.compile(r"\s*(\d{1,4})\s*(?:gi?b?)?\s*", re.IGNORECASE)
MIB, GB = 1024**2, 10**9
KINDS = {"NVIDIA": "cuda", "AMD": "rocm", "Huawei": "npu", "Intel": "xpu", "Apple": "mps"}
UNIFIED = ("NVIDIA GB10", "Orin", "NVIDIA Thor", "Apple")
ALIASES = {
    "h100": "NVIDIA H100 80GB HBM3",
    "h100sxm": "NVIDIA H100 80GB HBM3",
    "a100": "NVIDIA A100-SXM4-80GB",
    "a100sxm": "NVIDIA A100-SXM4-80GB",
    "a100pcie": "NVIDIA A100 80GB PCIe",
    "h200sxm": "NVIDIA H200",
    "v100": "Tesla V100-SXM2-16GB",
    "gh200": "NVIDIA GH200 480GB",
    "910c": "Ascend910_9391",
}
"""Names people say → the one a driver reports."""
MAKERS = re.compile(
    r"apple|nvidia|geforce|tesla|amd|instinct|radeon|huawei|ascend|intelr|arctm|graphics"
)
LANE_GBS = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938}
MESH = 4
"""Boards of so many devices join them pair by pair; larger ones through switches."""


def names() -> tuple[str, ...]:
    """All names of the table, as drivers report them."""
    return catalog.accelerator_names()


def plain(name: str) -> str:
    """A name without maker, case and punctuation: `rtx4090`."""
    return MAKERS.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))


@functools.cache
def by_plain_name() -> Mapping[str, str]:
    """Plain name → the table's."""
    return {**{plain(name): name for name in reversed(names())}, **ALIASES}


def known_name(text: str) -> str | None:
    """The table's name for what a user wrote; None when there is none."""
    row = catalog.accelerator(text)
    return row["name"] if row else by_plain_name().get(plain(text))


def sold_with(text: str) -> tuple[str, ...]:
    """Names of the table that are sold with a memory, as `24`, `24GB` or `24 GiB`; else none."""
    size = SIZE.fullmatch(text)
    if size is None:
        return ()
    rows = {name: catalog.accelerator(name) for name in names()}
    return tuple(
        name
        for name, row in rows.items()
        if row and catalog.number(row, "memory_gb") == int(size[1])
    )


def compose(count: int, name: str) -> Facts:
    """Facts of a machine with `count` of one accelerator.

    Raises ProblemError for a count of none, and for a name that is not in the table.
    """
    row = catalog.accelerator(name)
    if row is None or not 1 <= count <= 64:
        what = "a machine has 1 to 64 devices of a kind in the table"
        raise ProblemError(Problem(what=what, where=f"{count} × {name}", exit_code=2))
    devices = tuple(_device(index, row) for index in range(count))
    return Facts(
        devices=devices,
        host=Host(hostname="", system=""),
        software=Software(python=""),
        links=_links(count, row),
        machine=f"{count}x {devices[0].name}",
        problems=(_composed(),),
    )


def _composed() -> Problem:
    return Problem(
        what="its host, software and disks are not known, and its devices are taken as idle",
        where="composed machine",
        fix="tunewright probe -o machine.json on the machine itself knows them",
        severity="info",
    )


def _device(index: int, row: Mapping[str, str]) -> Device:
    memory_bytes, memory_source = _memory(row)
    name = row["name"].partition(" / ")[0]
    numbers = {key: catalog.number(row, key) for key in ("memory_bandwidth_gbs", "bf16_tflops")}
    unknown = {key: "not in the table" for key, number in numbers.items() if number is None}
    unknown["memory_free_bytes"] = "a composed machine is taken as idle"
    unknown["uuid"] = "no real device"
    if memory_bytes is None:
        unknown["memory_total_bytes"] = memory_source
    return Device(
        kind=KINDS[row["vendor"]],  # type: ignore[arg-type]
        index=index,
        name=name,
        memory_total_bytes=memory_bytes,
        compute_capability=_capability(row["compute_capability"]),
        bf16_native={"yes": True, "no": False}.get(row["bf16_native"]),
        memory_bandwidth_gbs=numbers["memory_bandwidth_gbs"],
        bf16_tflops=numbers["bf16_tflops"],
        unified_memory=name.startswith(UNIFIED),
        bus=_bus(row),
        source="table",
        sources={"memory_total_bytes": memory_source},
        unknown=unknown,
    )


def _bus(row: Mapping[str, str]) -> Bus:
    found = PCIE.search(row["pcie"])
    return Bus(pcie_generation=int(found[1]), pcie_width=int(found[2])) if found else Bus()


def _memory(row: Mapping[str, str]) -> tuple[int | None, str]:
    """(bytes, where they are from): what a driver reports, else what is sold, counted low."""
    reported, sold = row["memory_mib"], row["memory_gb"]
    if reported:
        return int(float(reported)) * MIB, "table: what a driver reports"
    if re.fullmatch(r"\d+(\.\d+)?", sold):
        # Drivers report less than 2^30 per GB sold, and not less than 10^9.
        return int(float(sold) * GB), "table: the size it is sold with, in units of 10^9"
    return None, f"sold with {sold} GB" if sold else "not in the table"


def _capability(text: str) -> tuple[int, int] | None:
    if text.startswith("gfx"):
        from wizard.probe.amd import capability

        return capability(text)
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else None


def _links(count: int, row: Mapping[str, str]) -> tuple[Link, ...]:
    pairs = [(first, second) for first in range(count) for second in range(first + 1, count)]
    return tuple(_link(pair, count, row) for pair in pairs)


def _link(pair: tuple[int, int], count: int, row: Mapping[str, str]) -> Link:
    kind, total = row["link_type"], catalog.number(row, "link_gbs")
    if re.fullmatch(r"NVLink[2-9]", kind) and total:
        return _nvlink(pair, count, total, kind)
    if kind == "xGMI" and total:
        return _xgmi(pair, total, catalog.number(row, "link_count"))
    if kind == "HCCS":
        why = "the table: HCCS, its bandwidth is not published per pair"
        return Link(devices=pair, kind="hccs", peer_access=True, why=why, source="table")
    return _pcie(pair, row)


def _xgmi(pair: tuple[int, int], total_gbs: float, links: float | None) -> Link:
    why = f"the table: xGMI, {links:.0f} links, one to each" if links else "the table: xGMI"
    gbs = total_gbs / links if links else None
    return Link(devices=pair, kind="xgmi", gbs=gbs, peer_access=True, why=why, source="table")


def _nvlink(pair: tuple[int, int], count: int, total_gbs: float, kind: str) -> Link:
    """Boards of up to four share out the links pair by pair, those with more have switches."""
    if count > MESH and kind == "NVLink2":
        why = "the table: NVLink2 machines of more than four are a partial mesh of unknown shape"
        return Link(devices=pair, kind="unknown", why=why, source="table")
    mesh = count <= MESH
    return Link(
        devices=pair,
        kind="nvlink" if mesh else "nvswitch",
        gbs=total_gbs / (count - 1) if mesh else total_gbs,
        peer_access=True,
        why=f"the table: {kind}, {'shared out pair by pair' if mesh else 'through switches'}",
        source="table",
    )


def _pcie(pair: tuple[int, int], row: Mapping[str, str]) -> Link:
    found = PCIE.search(row["pcie"])
    gbs = LANE_GBS.get(int(found[1]), 0.0) * int(found[2]) if found else 0.0
    bridge = "; a bridge between pairs is not assumed" if "bridge" in row["link_type"] else ""
    why = {
        "yes": "the table: peer access over PCIe, where the machine allows it",
        "no": "the table: the stock driver of these cards has no peer access over PCIe",
    }.get(row["p2p_over_pcie"], "the table does not say whether they have peer access")
    return Link(
        devices=pair,
        kind="host-bridge",
        gbs=gbs or None,
        peer_access={"yes": True, "no": False}.get(row["p2p_over_pcie"]),
        why=f"{why}; all on one socket is assumed{bridge}",
        source="table",
    )
