"""What the NVML child printed, as devices: every value checked, the missing ones with a reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from wizard.facts import Bus, Device, Readings
from wizard.probe import catalog
from wizard.probe import nvml_values as values
from wizard.probe.nvml_calls import NONSENSE

Line: TypeAlias = Mapping[str, Any]

NO_SENSE = "the driver's answer makes no sense"
REASONS = {
    NONSENSE: NO_SENSE,
    3: "not supported by this device",
    4: "no permission to ask",
    6: "not found",
    9: "the driver is not loaded",
    10: "the driver did not answer in time",
    13: "not known to this driver",
    15: "the device is lost",
    16: "the device needs a reset",
}
LOST = (15, 16)
NOT_OF_A_SLICE = ("utilization_percent", "processes")


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """What the child said, as far as it got."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    links: tuple[Line, ...] = ()
    error: Line | None = None
    """Why no device could be asked at all: code and text."""
    failed: tuple[Line, ...] = ()
    """Devices that could not be opened: index, code and text."""
    unlisted: tuple[int, ...] = ()
    """Indices of cards in MIG mode whose slices the driver does not list."""
    ended: bool = False
    """It came to its end by itself."""


def decode(text: str) -> Said:
    """Devices and errors of the child's lines. Never raises, whatever the lines hold."""
    lines = _lines(text)
    errors = [line for line in lines if line["kind"] == "error"]
    driver = next((line for line in lines if line["kind"] == "driver"), {})
    details = {_index(line): line for line in lines if line["kind"] == "details"}
    slices = [line for line in lines if line["kind"] == "slice"]
    cards = [line for line in lines if line["kind"] == "device"]
    lost = [_lost(line) for line in (*cards, *details.values()) if _lost(line)]
    gone = {line["index"] for line in lost}
    devices = [
        device
        for card in sorted(cards, key=_index)
        for device in _card(card, _of(card, slices), details.get(_index(card)))
        if device.index not in gone
    ]
    return Said(
        devices=tuple(devices),
        driver=values.words(driver.get("driver")),
        cuda=values.cuda_version(driver.get("cuda")),
        links=tuple(_link(line) for line in lines if line["kind"] in ("link", "pair", "linkless")),
        error=next((line for line in errors if line.get("where") != "device"), None),
        failed=(*(line for line in errors if line.get("where") == "device"), *lost),
        unlisted=tuple(
            _index(card) for card in cards if card.get("mig") is True and not _of(card, slices)
        ),
        ended=any(line["kind"] == "end" for line in lines),
    )


def _lines(text: str) -> list[Line]:
    found: list[Line] = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("kind"), str):
            found.append(value)
    return found


def _index(line: Line) -> int:
    return values.whole(line.get("index"), 0, 1024) or 0


def _lost(line: Line) -> Line:
    """The error of a device that went away while it was asked; empty when it did not."""
    codes = [code for code in _errors(line).values() if code in LOST]
    return {"index": _index(line), "code": codes[0]} if codes else {}


def _of(card: Line, slices: Sequence[Line]) -> list[Line]:
    return [one for one in slices if card.get("mig") is True and _index(one) == _index(card)]


def _card(card: Line, slices: Sequence[Line], details: Line | None) -> list[Device]:
    """A card, or in its place the slices it is divided into."""
    if slices:
        ordered = sorted(slices, key=lambda line: values.whole(line.get("slice"), 0, 1024) or 0)
        return [_device(one, details, parent=card) for one in ordered]
    return [_device(card, details)]


def _device(line: Line, details: Line | None, parent: Line | None = None) -> Device:
    asked = _Asked()
    asked.take(line)
    asked.take(details)
    if parent is not None:
        asked.take_slice(line, parent)
    elif line.get("mig") is True:
        asked.refuse("memory", "the card is divided (MIG), and its slices are not listed")
    name = asked.get("name", values.words) or "NVIDIA device"
    row = catalog.accelerator(name) or {}
    rates = catalog.rates(row)
    memory = asked.memory()
    capability = asked.get("compute_capability", values.capability)
    return Device(
        kind="cuda",
        index=_index(line),
        name=name,
        uuid=asked.get("uuid", values.words),
        compute_capability=capability,
        bf16_native=capability[0] >= 8 if capability else _yes_or_no(row.get("bf16_native")),
        memory_bandwidth_gbs=rates.get("memory_bandwidth_gbs"),
        bf16_tflops=rates.get("bf16_tflops"),
        sources=dict.fromkeys(rates, "table"),
        mig_parent_uuid=values.words(_values(parent).get("uuid")) if parent is not None else None,
        bus=asked.bus(),
        readings=asked.readings(),
        source="nvml, table" if row else "nvml",
        memory_total_bytes=memory.get("total"),
        memory_free_bytes=memory.get("free"),
        memory_used_bytes=memory.get("used"),
        memory_reserved_bytes=memory.get("reserved"),
        unknown=asked.unknown,
    )


def _yes_or_no(text: str | None) -> bool | None:
    return {"yes": True, "no": False}.get(text or "")


def _values(line: Line | None) -> Line:
    found = (line or {}).get("values")
    return found if isinstance(found, dict) else {}


def _errors(line: Line | None) -> Line:
    found = (line or {}).get("errors")
    return found if isinstance(found, dict) else {}


class _Asked:
    """Raw answers about one device, and why those are missing that are."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._errors: dict[str, Any] = {}
        self.unknown: dict[str, str] = {}

    def take(self, line: Line | None) -> None:
        self._values.update(_values(line))
        self._errors.update(_errors(line))

    def take_slice(self, line: Line, parent: Line) -> None:
        """What a slice says itself goes before what its card says."""
        for name in NOT_OF_A_SLICE:
            self.refuse(name, "not told for a part of a card")
        self.take(line)
        if self.get("name", values.words) is None:
            self._values["name"] = _values(parent).get("name")

    def refuse(self, name: str, reason: str) -> None:
        self._values.pop(name, None)
        self._errors[name] = reason

    def get(self, name: str, check: Callable[[Any], Any], field: str | None = None) -> Any:
        """A checked answer; None, and the reason noted, when there is none."""
        value = check(self._values[name]) if name in self._values else None
        if value is None:
            self.unknown[field or name] = self.why(name)
        else:
            self.unknown.pop(field or name, None)
        return value

    def why(self, name: str) -> str:
        if name in self._values:
            return NO_SENSE
        if name not in self._errors:
            return "the driver had not answered when the time was over"
        code = self._errors[name]
        if isinstance(code, str):
            return code
        return REASONS.get(code, f"NVML error {code}") if isinstance(code, int) else NO_SENSE

    def memory(self) -> Mapping[str, int | None]:
        """Bytes: total, free, used, reserved; empty when unknown."""
        told: Mapping[str, int | None] = (
            self.get("memory", values.memory, "memory_total_bytes") or {}
        )
        for part in ("free", "used", "reserved"):
            if told.get(part) is None:
                self.unknown[f"memory_{part}_bytes"] = self._why_not(part)
        return told

    def _why_not(self, part: str) -> str:
        if "memory_total_bytes" in self.unknown:
            return self.unknown["memory_total_bytes"]
        return NO_SENSE if part in self._values["memory"] else REASONS[13]

    def bus(self) -> Bus:
        return Bus(
            pci_id=self.get("pci_id", values.pci_id),
            pcie_generation=self.get("pcie_generation", values.between(1, 16)),
            pcie_width=self.get("pcie_width", values.between(1, 64)),
            numa_node=self.get("numa_nodes", values.first_node, "numa_node"),
            cpu_affinity=self.get("cpus", values.core_list, "cpu_affinity"),
        )

    def readings(self) -> Readings:
        rows = self.get("remapped_rows", values.rows, "remap_pending")
        if rows is None:
            self.unknown["remap_failed"] = self.unknown["remap_pending"]
        known = {name: self.get(name, check) for name, check in READINGS.items()}
        return Readings(
            remap_pending=rows and rows[2] > 0,
            remap_failed=rows and rows[3] > 0,
            **known,
        )


READINGS: Mapping[str, Callable[[Any], Any]] = {
    "utilization_percent": values.amount(100),
    "temperature_c": values.amount(200),
    "power_w": values.amount(10_000),
    "power_cap_w": values.amount(10_000),
    "sm_clock_mhz": values.amount(10_000),
    "throttle_reasons": values.throttles,
    "ecc_uncorrected": values.between(0, 2**63),
    "compute_mode": values.mode,
    "persistence_mode": values.switch,
    "display_active": values.switch,
    "processes": values.processes,
}


def _link(line: Line) -> Line:
    """A link line of which every value is of its type, or None."""
    checked = {name: check(line.get(name)) for name, check in LINK_FIELDS[line["kind"]].items()}
    return {"kind": line["kind"], **checked}


def _two(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def both(value: Any) -> list[Any]:
        good = isinstance(value, list) and len(value) == 2
        return [check(one) for one in value] if good else [None, None]

    return both


LINK_FIELDS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "linkless": {
        "index": values.between(0, 1024),
        "uuid": values.words,
        "code": values.between(-1, 9999),
    },
    "link": {
        "index": values.between(0, 1024),
        "uuid": values.words,
        "link": values.between(0, 1024),
        "active": lambda value: value is True,
        "version": values.between(1, 99),
        "remote_pci": values.pci_id,
        "remote_type": values.between(0, 255),
        "mb_s": values.between(1, 10**7),
    },
    "pair": {
        "indices": _two(values.between(0, 1024)),
        "uuids": _two(values.words),
        "level": values.between(0, 255),
        "p2p_read": values.between(0, 255),
        "p2p_write": values.between(0, 255),
        "p2p_nvlink": values.between(0, 255),
    },
}
