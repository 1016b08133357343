"""What is asked of NVML about one device, each question on its own error path."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Call: TypeAlias = Callable[[Any, Any], Any]
"""(nvml, handle) → a plain value."""

NONSENSE = -1
"""Stands for an NVML code where a call failed without one: its answer had no sense."""
GPU_SENSOR, SM_CLOCK, UNCORRECTED, VOLATILE, NODE_SCOPE = 0, 1, 1, 0, 0
AFFINITY_WORDS = 32
"""Room for 2048 cores, 64 to a word."""


@dataclass(frozen=True, slots=True)
class Card:
    """A device that could be opened."""

    index: int
    handle: Any
    uuid: Any


def ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of one call; None when the device or the driver does not give it."""
    try:
        return call(*arguments)
    except Exception:
        return None


def ask_all(calls: Mapping[str, Call], nvml: Any, handle: Any) -> dict[str, Any]:
    """{"values": {name: answer}, "errors": {name: code}} of every call."""
    values: dict[str, Any] = {}
    errors: dict[str, int] = {}
    for name, call in calls.items():
        try:
            values[name] = call(nvml, handle)
        except Exception as error:
            errors[name] = trouble(error)["code"]
    return {"values": values, "errors": errors}


def trouble(error: Exception) -> dict[str, Any]:
    """{"code", "text"} of a failed call."""
    code = getattr(error, "value", NONSENSE)
    return {"code": code if isinstance(code, int) else NONSENSE, "text": str(error)}


def pci_text(info: Any) -> str:
    """The address in a PCI answer, which is text or bytes."""
    raw = info.busId
    return raw.decode("ascii", "replace") if isinstance(raw, bytes) else str(raw)


def _memory(nvml: Any, handle: Any) -> dict[str, int]:
    try:
        told = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
        reserved = {"reserved": told.reserved}
    except Exception:
        # Older drivers know only the first version, whose `used` includes what they reserve.
        told, reserved = nvml.nvmlDeviceGetMemoryInfo(handle), {}
    return {"total": told.total, "free": told.free, "used": told.used, **reserved}


def _power_cap(nvml: Any, handle: Any) -> float:
    try:
        milliwatts = nvml.nvmlDeviceGetEnforcedPowerLimit(handle)
    except Exception:
        milliwatts = nvml.nvmlDeviceGetPowerManagementLimit(handle)
    return float(milliwatts / 1000)


def _throttle(nvml: Any, handle: Any) -> int:
    try:
        return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except Exception:
        return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _bits(words: Iterable[int]) -> list[int]:
    """Numbers of the bits set in 64-bit words."""
    return [
        64 * position + bit
        for position, word in enumerate(words)
        for bit in range(64)
        if int(word) >> bit & 1
    ]


def _processes(nvml: Any, handle: Any) -> list[dict[str, Any]]:
    holders = list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    holders += ask(nvml.nvmlDeviceGetGraphicsRunningProcesses, handle) or []
    found = {}
    for one in holders:
        name = ask(nvml.nvmlSystemGetProcessName, one.pid)
        found[one.pid] = {
            "pid": one.pid,
            "name": os.path.basename(name) if isinstance(name, str) else None,
            "memory_bytes": one.usedGpuMemory,
        }
    return list(found.values())


QUICK_CALLS: Mapping[str, Call] = {
    "name": lambda nvml, card: nvml.nvmlDeviceGetName(card),
    "memory": _memory,
    "uuid": lambda nvml, card: nvml.nvmlDeviceGetUUID(card),
}

SLICE_CALLS: Mapping[str, Call] = {**QUICK_CALLS, "processes": _processes}

CALLS: Mapping[str, Call] = {
    "compute_capability": lambda nvml, card: list(nvml.nvmlDeviceGetCudaComputeCapability(card)),
    "pci_id": lambda nvml, card: pci_text(nvml.nvmlDeviceGetPciInfo(card)),
    "pcie_generation": lambda nvml, card: nvml.nvmlDeviceGetMaxPcieLinkGeneration(card),
    "pcie_width": lambda nvml, card: nvml.nvmlDeviceGetMaxPcieLinkWidth(card),
    "numa_nodes": lambda nvml, card: _bits(
        nvml.nvmlDeviceGetMemoryAffinity(card, AFFINITY_WORDS, NODE_SCOPE)
    ),
    "cpus": lambda nvml, card: _bits(nvml.nvmlDeviceGetCpuAffinity(card, AFFINITY_WORDS)),
    "utilization_percent": lambda nvml, card: nvml.nvmlDeviceGetUtilizationRates(card).gpu,
    "temperature_c": lambda nvml, card: nvml.nvmlDeviceGetTemperature(card, GPU_SENSOR),
    "power_w": lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card) / 1000,
    "power_cap_w": _power_cap,
    "sm_clock_mhz": lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card, SM_CLOCK),
    "throttle_reasons": _throttle,
    "ecc_uncorrected": lambda nvml, card: nvml.nvmlDeviceGetTotalEccErrors(
        card, UNCORRECTED, VOLATILE
    ),
    "remapped_rows": lambda nvml, card: list(nvml.nvmlDeviceGetRemappedRows(card)),
    "compute_mode": lambda nvml, card: nvml.nvmlDeviceGetComputeMode(card),
    "persistence_mode": lambda nvml, card: nvml.nvmlDeviceGetPersistenceMode(card),
    "display_active": lambda nvml, card: nvml.nvmlDeviceGetDisplayActive(card),
    "processes": _processes,
}
