"""What nvidia-smi prints about links, as the lines that the NVML child would have said.

`link`: one NVLink of a device; `pair`: what lies between two devices; `near`: the cores and the
memory beside a device. Devices are named by nvidia-smi's index.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from wizard.probe.running import Run

Line: TypeAlias = dict[str, Any]

TIME_LIMIT_SECONDS = 15.0
INTERNAL, SINGLE, MULTIPLE, HOST_BRIDGE, NODE, SYSTEM = 0, 10, 20, 30, 40, 50
"""Levels of NVML's topology: the nearest thing that two devices have in common."""
LEVELS = {"PIX": SINGLE, "PXB": MULTIPLE, "PHB": HOST_BRIDGE, "NODE": NODE, "SYS": SYSTEM}
LEVELS |= {"SOC": SYSTEM}  # drivers before 390 (NVIDIA/nccl#286)
PEER_CODES = {"OK": 0, "CNS": 1, "GNS": 2, "TNS": 3, "DR": 4, "NS": 5, "U": 6}
"""Cells of `topo -p2p` as NVML's codes."""
UNSAID = -1
"""Far end of a link of which a tool says only that it is up."""
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_DEVICE = re.compile(r"GPU(\d+)")
_NVLINKS = re.compile(r"NV(\d+)")


def ask_nvidia_smi(run: Run) -> tuple[Line, ...]:
    """Everything nvidia-smi says of links; what it does not say is left out."""
    lines: list[Line] = []
    for arguments, parse in (
        (("topo", "-m"), nvidia_topology),
        (("topo", "-p2p", "r"), nvidia_peer_access),
        (("nvlink", "-s"), nvidia_nvlinks),
    ):
        ran = run(("nvidia-smi", *arguments), TIME_LIMIT_SECONDS)
        if ran.ok:
            lines += parse(ran.out)
    return tuple(lines)


def nvidia_topology(text: str) -> tuple[Line, ...]:
    """`nvidia-smi topo -m`: pairs, and what is near each device. Network cards are no devices."""
    columns, rows = _matrix(text)
    pairs = [
        {"kind": "pair", "indices": (a, b), **_reach(cell)}
        for a, b, cell in _cells(columns, rows)
        if _reach(cell)
    ]
    return (*pairs, *_affinities(columns, rows))


def _reach(cell: str) -> Line:
    if cell in LEVELS:
        return {"level": LEVELS[cell]}
    links = _NVLINKS.fullmatch(cell)
    return {"nvlinks": int(links[1])} if links else {}


def nvidia_peer_access(text: str) -> tuple[Line, ...]:
    """`nvidia-smi topo -p2p r`: whether the driver lets one device read another."""
    columns, rows = _matrix(text)
    return tuple(
        {"kind": "pair", "indices": (a, b), "p2p_read": PEER_CODES[cell]}
        for a, b, cell in _cells(columns, rows)
        if cell in PEER_CODES
    )


def nvidia_nvlinks(text: str) -> tuple[Line, ...]:
    """`nvidia-smi nvlink -s`: the links of each device; it does not say where they lead."""
    lines: list[Line] = []
    index = None
    for line in text.splitlines():
        if device := re.match(r"GPU (\d+):", line):
            index = int(device[1])
        elif index is not None and (link := re.match(r"\s+Link (\d+): (.+)", line)):
            rate = re.match(r"([\d.]+) GB/s", link[2])
            line_of_link = {"kind": "link", "index": index, "link": int(link[1])}
            lines.append(line_of_link | {"active": rate is not None, "remote_type": UNSAID})
            if rate:
                lines[-1]["mb_s"] = round(float(rate[1]) * 1000)
    return tuple(lines)


Rows: TypeAlias = Mapping[int, Sequence[str]]
"""Cells of each device's row, by the device's index."""


def _matrix(text: str) -> tuple[list[str], Rows]:
    """(names of the columns, rows of devices) of the first matrix.

    The header is underlined on a terminal, and does not always begin with the tab that stands
    over the rows' labels.
    """
    columns: list[str] = []
    rows: dict[int, list[str]] = {}
    for line in _ANSI.sub("", text).splitlines():
        cells = [cell.strip() for cell in (line.split("\t") if "\t" in line else line.split())]
        label = _DEVICE.fullmatch(cells[0]) if cells else None
        if not columns:
            begun = cells[1:] if cells and not cells[0] else cells
            columns = begun if begun and _DEVICE.fullmatch(begun[0]) else []
        elif label:
            rows[int(label[1])] = cells[1:]
        elif rows and not line.strip():
            break
    return columns, rows


def _cells(columns: Sequence[str], rows: Rows) -> Iterator[tuple[int, int, str]]:
    """(row's device, column's device, cell) off the diagonal; columns of other things left out."""
    for row, cells in rows.items():
        for name, cell in zip(columns, cells, strict=False):
            column = _DEVICE.fullmatch(name)
            if column and int(column[1]) != row:
                yield row, int(column[1]), cell


def _affinities(columns: Sequence[str], rows: Rows) -> Iterator[Line]:
    for index, cells in rows.items():
        cores = _cell(columns, cells, "CPU Affinity")
        node = _cell(columns, cells, "NUMA Affinity")
        # A column of its own width stands before the last: the cell is counted from the end.
        own = cells[-1] if "GPU NUMA ID" in columns and cells else ""
        yield {
            "kind": "near",
            "index": index,
            "cpu_affinity": cores or None,
            "numa_node": int(node) if node.isdigit() else None,
            "memory_numa_node": int(own) if own.isdigit() else None,
        }


def _cell(columns: Sequence[str], cells: Sequence[str], name: str) -> str:
    place = columns.index(name) if name in columns else len(cells)
    return cells[place] if place < len(cells) else ""


def cores(text: str | None) -> tuple[int, ...]:
    """The cores of a kernel list as `0-3,8,10-11`, in order; empty for an empty list."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))
