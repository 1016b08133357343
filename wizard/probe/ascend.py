"""Ascend NPUs: what `npu-smi` prints, as devices, links and problems."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from engine.theirs import quoted
from wizard.facts import Bus, Device, DeviceProcess, Link, Readings
from wizard.probe import catalog
from wizard.probe.accelerators import Accelerators
from wizard.probe.running import Ran, Run
from wizard.probe.vendors import (
    first_number,
    hidden,
    hung,
    numa_node,
    pci_folder,
    pci_id,
    positions,
)
from wizard.problem import Problem

TIME_LIMIT_SECONDS = 15.0
"""`npu-smi info` asks every chip in turn: some seconds on sixteen of them."""
DRIVER_TRACES = ("dev/davinci_manager", "dev/davinci0")
MIB = 1024**2
AMOUNTS = re.compile(r"(\d+)\s*/\s*(\d+)")
"""Newer versions print `31877/ 65536`, without the first space (vllm-project/vllm-ascend#12980)."""
KINDS = {
    "HCCS": "hccs",
    "HCCS_SW": "hccs",
    "SIO": "hccs",
    "PIX": "pcie-switch",
    "PXB": "pcie-switch",
    "PHB": "host-bridge",
    "SYS": "socket",
}
"""Words of the topology matrix; SIO joins the two chips of one package."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chip:
    """One chip as the table shows it: two lines, the second one with the memory."""

    npu: int
    chip: int
    physical: int | None
    name: str
    health: str
    bus: str
    utilization_percent: float | None
    temperature_c: float | None
    power_w: float | None
    used_bytes: int | None
    total_bytes: int | None
    processes: list[DeviceProcess] = field(default_factory=list)


def read(root: Path, run: Run, environment: Mapping[str, str] | None = None) -> Accelerators:
    """Every NPU this process may use. Never raises."""
    if not any((root / trace).exists() for trace in DRIVER_TRACES):
        return Accelerators()
    info = run(["npu-smi", "info"], TIME_LIMIT_SECONDS)
    if not info.ok:
        return Accelerators(problems=(_silent(info),))
    chips = parse_chips(info.out)
    if not chips:
        return Accelerators(problems=(_none(),))
    chips = _named(chips, run)
    topology = run(["npu-smi", "info", "-t", "topo"], TIME_LIMIT_SECONDS)
    affinity, cells = parse_topology(topology.out if topology.ok else "")
    devices = [_device(index, chip, root, affinity) for index, chip in enumerate(chips)]
    found = Accelerators(
        devices=tuple(devices),
        driver=_version(info.out),
        problems=tuple(problem for chip in chips for problem in _health(chip)),
        known_links=_links(chips, cells),
    )
    return visible(found, os.environ if environment is None else environment)


def _named(chips: list[Chip], run: Run) -> list[Chip]:
    """The chips under their full names: A3 calls them all `Ascend910`, its board says which."""
    first = chips[0]
    if first.name != "Ascend910":
        return chips
    command = f"npu-smi info -t board -i {first.npu} -c {first.chip}".split()
    board = re.search(r"NPU Name\s*:\s*(\d+)", run(command, TIME_LIMIT_SECONDS).out)
    return [replace(c, name=f"Ascend910_{board[1]}") for c in chips] if board else chips


def parse_chips(text: str) -> list[Chip]:
    """The chips of `npu-smi info`, with their processes, in the table's order.

    Ids need not begin at 0: a container shows those it was given
    (vllm-project/vllm-ascend#2557). On A3 two chips share one NPU, and the second has no power
    of its own.
    """
    chips: list[Chip] = []
    above: list[str] | None = None
    for line in text.splitlines():
        cells = _cells(line)
        # A fifth cell is the process id inside the container (nyakang/nyaterm#268).
        if len(cells) in (4, 5) and not AMOUNTS.search(cells[3]):
            _process(chips, cells)
        if len(cells) != 3 or not _is_number(cells[0].partition(" ")[0]):
            above = None if len(cells) != 3 and not line.startswith("|") else above
        elif ":" in cells[1] and above is not None:
            chips.append(_chip(above, cells))
            above = None
        else:
            above = cells
    return chips


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) < 10


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if "|" in line else []


def _chip(above: Sequence[str], below: Sequence[str]) -> Chip:
    npu, _, name = above[0].partition(" ")
    ids = below[0].split()
    power, temperature = [*above[2].split(), "", ""][:2]
    amounts = AMOUNTS.findall(below[2])
    used, total = (int(part) * MIB for part in amounts[-1]) if amounts else (None, None)
    return Chip(
        npu=int(npu),
        chip=int(ids[0]),
        physical=int(ids[1]) if len(ids) > 1 and _is_number(ids[1]) else None,
        name=name.strip(),
        health=above[1],
        bus=below[1],
        utilization_percent=first_number(below[2].split()[0] if below[2] else ""),
        temperature_c=first_number(temperature),
        power_w=first_number(power),
        used_bytes=used,
        total_bytes=total or None,
    )


def _process(chips: Sequence[Chip], cells: Sequence[str]) -> None:
    """A line of the process table: `| 0 0 | 4242 | python3.1 | 61012 |`."""
    ids = cells[0].split()
    if len(ids) != 2 or not all(map(_is_number, (*ids, cells[1]))):
        return
    memory = first_number(cells[3])
    for chip in chips:
        if [chip.npu, chip.chip] == [int(part) for part in ids]:
            chip.processes.append(
                DeviceProcess(
                    pid=int(cells[1]),
                    name=cells[2] or None,
                    memory_bytes=None if memory is None else int(memory) * MIB,
                )
            )


def parse_topology(text: str) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """(row label → cores near it, (row, column) → word) of `npu-smi info -t topo`.

    Rows are `NPU0 …`, on A3 `Phy-ID0 …`.
    """
    affinity: dict[str, str] = {}
    cells: dict[tuple[str, str], str] = {}
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if not words or not re.fullmatch(r"(NPU|Phy-ID)\d+", words[0]):
            continue
        if not columns:
            columns = [word for word in words if re.fullmatch(r"(NPU|Phy-ID)\d+", word)]
            continue
        row, *rest = words
        cells |= {(row, column): word for column, word in zip(columns, rest, strict=False)}
        if len(rest) > len(columns):
            affinity[row] = rest[len(columns)]
    return affinity, cells


def _device(index: int, chip: Chip, root: Path, affinity: Mapping[str, str]) -> Device:
    name = chip.name if chip.name.startswith("Ascend") else f"Ascend{chip.name}"
    row = catalog.accelerator(name) or {}
    cores = next((affinity[label] for label in _labels(chip) if label in affinity), None)
    known = chip.used_bytes is not None and chip.total_bytes is not None
    return Device(
        kind="npu",
        index=index,
        name=name,
        memory_total_bytes=chip.total_bytes,
        memory_used_bytes=chip.used_bytes,
        # The driver itself holds about 3 GB of an idle chip: not free, and not in use by others.
        memory_free_bytes=(chip.total_bytes or 0) - (chip.used_bytes or 0) if known else None,
        bf16_native={"yes": True, "no": False}.get(row.get("bf16_native", "")),
        memory_bandwidth_gbs=catalog.number(row, "memory_bandwidth_gbs"),
        bf16_tflops=catalog.number(row, "bf16_tflops"),
        bus=Bus(
            pci_id=pci_id(chip.bus),
            numa_node=numa_node(pci_folder(root, chip.bus)),
            cpu_affinity=cores,
        ),
        readings=Readings(
            utilization_percent=chip.utilization_percent,
            temperature_c=chip.temperature_c,
            power_w=chip.power_w,
            processes=tuple(chip.processes),
        ),
        source="npu-smi",
        sources={"numa_node": "sysfs", **({"bf16_native": "table"} if row else {})},
        unknown=_unknown(chip, row),
    )


def _unknown(chip: Chip, row: Mapping[str, str]) -> dict[str, str]:
    reasons = {
        "uuid": "npu-smi names no UUID; a device is known by its index",
        "compute_capability": "an NPU has none",
    }
    if chip.power_w is None:
        reasons["power_w"] = "the first chip of its NPU reports it for both"
    if not row.get("bf16_native"):
        reasons["bf16_native"] = f"{chip.name} is not in the table under this name"
    if not catalog.number(row, "bf16_tflops"):
        reasons["bf16_tflops"] = "no published number for this chip in the table"
    if not catalog.number(row, "memory_bandwidth_gbs"):
        reasons["memory_bandwidth_gbs"] = "no published number for this chip in the table"
    return reasons


def _labels(chip: Chip) -> tuple[str, ...]:
    """Names this chip may have in the topology matrix."""
    physical = () if chip.physical is None else (f"Phy-ID{chip.physical}",)
    return (*physical, f"NPU{chip.npu}")


def _links(chips: Sequence[Chip], cells: Mapping[tuple[str, str], str]) -> tuple[Link, ...]:
    found = []
    for first, one in enumerate(chips):
        for second in range(first + 1, len(chips)):
            other = chips[second]
            pairs = [(a, b) for a in _labels(one) for b in _labels(other)]
            word = next((cells[pair] for pair in pairs if cells.get(pair, "X") != "X"), None)
            if word is None and one.npu == other.npu:
                word = "SIO"
            if word is not None:
                found.append(_link(first, second, word))
    return tuple(found)


def _link(first: int, second: int, word: str) -> Link:
    kind = KINDS.get(word, "unknown")
    return Link(
        devices=(first, second),
        kind=kind,  # type: ignore[arg-type]
        peer_access=True if kind == "hccs" else None,
        why=f"the topology matrix says {word}; its bandwidth is not published per pair",
        source="npu-smi",
    )


def _version(text: str) -> str | None:
    found = re.search(r"Version:\s*(\S+)", text)
    return found[1] if found else None


def visible(found: Accelerators, environment: Mapping[str, str]) -> Accelerators:
    """What ASCEND_RT_VISIBLE_DEVICES leaves: positions from 0, also inside a container."""
    name = "ASCEND_RT_VISIBLE_DEVICES"
    wanted = environment.get(name)
    if wanted is None:
        return found
    kept, bad = positions(wanted, len(found.devices))
    return hidden(found, kept, bad, f"{name}={wanted}", "npu-smi info lists them, from 0")


def _health(chip: Chip) -> list[Problem]:
    if chip.health in ("OK", ""):
        return []
    return [
        Problem(
            what=f"it reports the health `{chip.health}`",
            where=f"NPU {chip.npu}, chip {chip.chip}",
            fix=f"npu-smi info -t health -i {chip.npu} says more",
            severity="warning",
            exit_code=6,
        )
    ]


def _silent(ran: Ran) -> Problem:
    if ran.timed_out:
        return hung("npu-smi", TIME_LIMIT_SECONDS)
    if ran.missing:
        return Problem(
            what="this machine has an Ascend driver, but npu-smi is not found",
            where="npu-smi",
            fix="in a container mount /usr/local/bin/npu-smi and /usr/local/Ascend/driver",
            exit_code=6,
        )
    said = quoted(" ".join((ran.err or ran.out).split()), longest=200)
    return Problem(
        what=f"npu-smi failed with exit code {ran.code}: {said}",
        where="npu-smi",
        fix="run npu-smi info; it should list the NPUs",
        exit_code=6,
    )


def _none() -> Problem:
    return Problem(
        what="this machine has an Ascend driver, but npu-smi lists no NPU",
        where="npu-smi",
        fix="in a container pass the devices on (--device /dev/davinci0 …)",
        exit_code=6,
    )
