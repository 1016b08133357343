"""A double of NVML, answering call by call what real machines answered, or with their error codes.

A machine is a TOML file here. Its keys are the names of NVML calls: in `[every]` with the answer
that all cards give, in `[each]` with a list of one answer per card; `{ error = 3 }` is a call that
fails with that code. What was not recorded is not supported (3). `[files]` are what the same
machine shows below `/`.

Not recorded but made up, because an answer is needed; a test that compares these proves nothing
about the machine:
    UUIDs, and memory in use where it is 0
    reserved_mib, except on the L40S: the total less what torch counts, to the MiB
    levels of pairs that NVLink joins: by NUMA node; addresses of NVSwitches; `p2p = 5` for "no"
    load, remapped rows and processes of the H100s; PCIe of the GB10, which is to be hidden
    name and memory of the DGX-1's cards (its PCI number names them); links it shares by symmetry
    CUDA version of the mixed machine; place of the MIG slice, 9.75 GiB of memory in it
"""

from __future__ import annotations

import ctypes
import json
import os
import time
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from wizard.probe import nvidia
from wizard.probe.accelerators import Accelerators, read_nvidia
from wizard.probe.running import Ran, Run

FOLDER = Path(__file__).parent
IDS = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
MIB = 1024**2
INVALID, NOT_SUPPORTED, NOT_FOUND = 2, 3, 6
LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
TEXTS = {
    2: "Invalid Argument",
    3: "Not Supported",
    4: "Insufficient Permissions",
    9: "Driver Not Loaded",
    12: "NVML Shared Library Not Found",
    13: "Function Not Found",
    15: "GPU is lost",
    18: "Driver/library version mismatch",
    999: "Unknown Error",
}


class NVMLError(Exception):
    """Shaped like pynvml's: the code is in `value`."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return TEXTS.get(self.value, f"NVML error {self.value}")


@dataclass(frozen=True)
class Handle:
    """A card, or a slice of one."""

    card: int
    place: int | None = None


@dataclass
class Nvml:
    """What `import pynvml` gives, as far as the probe asks; build it with `load` or from tables."""

    cards: list[dict[str, Any]]
    """Of every card: name of a call → its answer."""
    slices: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    driver: str | None = None
    cuda: int | None = None
    init_error: int | None = None
    broken: dict[str, Any] = field(default_factory=dict)
    """Call, or call and card as `nvmlDeviceGetName 1` → what it gives, raises or does instead."""
    seconds_per_call: float = 0.0
    files: Mapping[str, str] = field(default_factory=dict)

    nvmlMemory_v2 = 0x2000028  # noqa: N815 - NVML's own name
    NVMLError = NVMLError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return lambda *arguments: self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> Any:
        time.sleep(self.seconds_per_call)
        card = arguments[0].card if arguments and isinstance(arguments[0], Handle) else None
        for key in (f"{name} {card}", name):
            if key in self.broken:
                return _given(self.broken[key])
        special = getattr(self, f"_{name}", None)
        return special(*arguments) if special is not None else self._plain(name, *arguments)

    def _plain(self, name: str, handle: Handle, *rest: Any) -> Any:
        """The recorded answer: a list by link where a link is asked for."""
        known = self._table(handle)
        if name not in known:
            raise NVMLError(NOT_SUPPORTED)
        answer = known[name]
        if name.startswith("nvmlDeviceGetNvLink") and not _is_error(answer):
            if rest[0] >= len(answer):
                raise NVMLError(INVALID)
            answer = answer[rest[0]]
        return SHAPES.get(name, lambda value: value)(_given(answer))

    def _table(self, handle: Handle) -> dict[str, Any]:
        if handle.place is None:
            return self.cards[handle.card]
        return self.slices[handle.card, handle.place]

    def _nvmlInit(self) -> None:  # noqa: N802
        if self.init_error is not None:
            raise NVMLError(self.init_error)

    def _nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return str(_known(self.driver))

    def _nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return int(_known(self.cuda))

    def _nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.cards)

    def _nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802
        _given(self.cards[index].get("nvmlDeviceGetHandleByIndex"))
        return Handle(index)

    def _nvmlDeviceGetMigDeviceHandleByIndex(self, card: Handle, place: int) -> Handle:  # noqa: N802
        if (card.card, place) not in self.slices:
            raise NVMLError(NOT_FOUND)
        return Handle(card.card, place)

    def _nvmlDeviceGetMemoryInfo(self, handle: Handle, version: int | None = None) -> Any:  # noqa: N802
        told = _given(self._table(handle).get("nvmlDeviceGetMemoryInfo", {"error": NOT_SUPPORTED}))
        total, used = told["total_mib"] * MIB, told["used_mib"] * MIB
        reserved = told.get("reserved_mib")
        if version is not None and reserved is None:
            raise NVMLError(NOT_SUPPORTED)
        held = (reserved or 0) * MIB
        if version is None:
            return SimpleNamespace(total=total, used=used + held, free=total - used - held)
        free = told.get("free_mib", told["total_mib"] - told["used_mib"] - (reserved or 0)) * MIB
        return SimpleNamespace(total=total, used=used, free=free, reserved=held)

    def _nvmlDeviceGetTopologyCommonAncestor(self, first: Handle, second: Handle) -> int:  # noqa: N802
        return self._between("level", first, second)

    def _nvmlDeviceGetP2PStatus(self, first: Handle, second: Handle, index: int) -> int:  # noqa: N802
        return self._between(("p2p_read", "p2p_write", "p2p_nvlink")[index], first, second)

    def _between(self, what: str, first: Handle, second: Handle) -> int:
        answers = self.cards[first.card].get(what)
        if answers is None or answers[second.card] is None:
            raise NVMLError(NOT_SUPPORTED)
        return int(answers[second.card])

    def _nvmlDeviceGetFieldValues(self, handle: Handle, fields: Iterable[int]) -> list[Any]:  # noqa: N802
        speed = self._table(handle).get("mb_s")
        code = NOT_SUPPORTED if speed is None else 0
        value = SimpleNamespace(uiVal=speed or 0)
        return [SimpleNamespace(nvmlReturn=code, value=value) for _ in fields]

    def _nvmlSystemGetProcessName(self, pid: int) -> str:  # noqa: N802
        return f"/usr/bin/process-{pid}"


def _known(value: Any) -> Any:
    if value is None:
        raise NVMLError(NOT_SUPPORTED)
    return value


def _is_error(answer: Any) -> bool:
    return isinstance(answer, dict) and "error" in answer


def _given(answer: Any) -> Any:
    """An answer, or the failure it stands for."""
    if _is_error(answer):
        raise NVMLError(answer["error"])
    if isinstance(answer, Exception):
        raise answer
    return answer() if callable(answer) else answer


def _words(bits: Iterable[int]) -> Any:
    """A mask in 64-bit words, as ctypes gives it."""
    words = [0] * 32
    for bit in bits:
        words[bit // 64] |= 1 << bit % 64
    return (ctypes.c_ulonglong * 32)(*words)


def _cores(text: str) -> list[int]:
    """`0-3,8` → 0, 1, 2, 3, 8."""
    ends = [part.split("-") for part in text.split(",") if part]
    return [core for one in ends for core in range(int(one[0]), int(one[-1]) + 1)]


SHAPES: Mapping[str, Callable[[Any], Any]] = {
    "nvmlDeviceGetPciInfo": lambda text: SimpleNamespace(busId=text.encode()),
    "nvmlDeviceGetNvLinkRemotePciInfo": lambda text: SimpleNamespace(busId=text.encode()),
    "nvmlDeviceGetUtilizationRates": lambda percent: SimpleNamespace(gpu=percent, memory=0),
    "nvmlDeviceGetCpuAffinity": lambda text: _words(_cores(text)),
    "nvmlDeviceGetMemoryAffinity": lambda node: _words([node] if node >= 0 else []),
    "nvmlDeviceGetComputeRunningProcesses": lambda found: [SimpleNamespace(**one) for one in found],
}


def load(name: str) -> Nvml:
    """The double of a machine, by the name of its file."""
    table = _read(name)
    cards = _cards(table)
    _add_nvlink(cards, table.get("nvlink", {}))
    _add_topology(cards, table.get("topology", {}))
    slices = {(one.pop("card"), one.pop("place")): one for one in table.get("slices", [])}
    return Nvml(
        cards=cards,
        slices=slices,
        driver=table.get("driver"),
        cuda=table.get("cuda"),
        init_error=table.get("init_error"),
        files=table.get("files", {}),
    )


def _read(name: str) -> dict[str, Any]:
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    if "like" not in table:
        return table
    base = _read(table.pop("like"))
    for key, value in table.items():
        base[key] = {**base.get(key, {}), **value} if isinstance(value, dict) else value
    return base


def _cards(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for index in range(table.get("count", 0)):
        own = {call: answers[index] for call, answers in table.get("each", {}).items()}
        uuid = {"nvmlDeviceGetUUID": f"GPU-{index:08d}-0000-4000-8000-000000000000"}
        found.append({**uuid, **table.get("every", {}), **own})
    return found


def _add_nvlink(cards: list[dict[str, Any]], table: Mapping[str, Any]) -> None:
    """Answers of the NVLink calls, a list by link for each card."""
    for index, card in enumerate(cards if table else []):
        ends = _ends(index, cards, table)
        up = 0 if index in table.get("off", []) else 1
        card["nvmlDeviceGetNvLinkState"] = [up] * len(ends)
        if "version" in table:
            card["nvmlDeviceGetNvLinkVersion"] = [table["version"]] * len(ends)
        card["nvmlDeviceGetNvLinkRemoteDeviceType"] = [table["remote_type"]] * len(ends)
        card["nvmlDeviceGetNvLinkRemotePciInfo"] = ends
        card["mb_s"] = table.get("mb_s")


def _ends(index: int, cards: list[dict[str, Any]], table: Mapping[str, Any]) -> list[Any]:
    """The PCI address at the far end of each link of a card."""
    if "remote_pci" in table:
        return [table["remote_pci"]] * table["links"]
    if table["remote_type"] == 2:
        switches = [f"00000000:{0xC4 + number:02X}:00.0" for number in range(table["switches"])]
        return [switches[link % len(switches)] for link in range(table["links"])]
    if "each_peers" in table:
        peers = table["each_peers"][index]
    else:
        peers = [table["peers"][index]] * table["links"]
    return [
        cards[peer].get("nvmlDeviceGetPciInfo", f"00000000:{peer + 1:02X}:00.0") for peer in peers
    ]


def _add_topology(cards: list[dict[str, Any]], table: Mapping[str, Any]) -> None:
    """Where the paths of two cards meet; beside NVLink that was not recorded, so the node tells."""
    cells = table.get("cells")
    nodes = [card.get("nvmlDeviceGetMemoryAffinity") for card in cards]
    for index, card in enumerate(cards):
        if cells:
            card["level"] = [
                LEVELS.get(cell, LEVELS["NODE" if nodes[index] == nodes[other] else "SYS"])
                for other, cell in enumerate(cells[index])
            ]
        if "p2p" in table:
            card["p2p_read"] = card["p2p_write"] = [table["p2p"]] * len(cards)


def said(nvml: Nvml) -> str:
    """What the child prints on this machine, made in this process."""
    lines: list[str] = []
    nvidia.report(nvml, lambda line: lines.append(json.dumps(line, default=str)))
    return "\n".join(lines) + "\n"


def running(text: str, others: Run | None = None) -> Run:
    """A Run in which the NVML child prints this text; others answer the rest, or it is missing."""

    def run(command: Any, limit_seconds: float) -> Ran:
        if "wizard.probe.nvidia" in command:
            return Ran(0, text)
        return others(command, limit_seconds) if others is not None else Ran(None, "", "not found")

    return run


def in_child(
    machine: str, broken: Mapping[str, str] | None = None, seconds_per_call: float = 0.0
) -> dict[str, str]:
    """Environment in which the real child meets this machine; broken: call → how it misbehaves.

    `hang`, the name of a signal, or an error code.
    """
    asked = {"machine": machine, "seconds_per_call": seconds_per_call, "broken": broken or {}}
    path = os.pathsep.join([str(FOLDER / "shadow"), str(FOLDER.parents[2])])
    return {"PYTHONPATH": path, "FAKE_NVML": json.dumps(asked)}


def plant(files: Mapping[str, str], root: Path) -> Path:
    """Write files below root; returns root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def found(nvml: Nvml, root: Path, others: Run | None = None) -> Accelerators:
    """What the probe makes of a machine."""
    return read_nvidia(plant(nvml.files, root), running(said(nvml), others))
