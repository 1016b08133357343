"""Sensors of an NVIDIA device, read where a driver that does not answer holds up nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

OLD_AFTER = 3
"""Readings older than so many intervals are not told: the driver has stopped answering."""

NO_SENSORS: dict[str, Any] = dict.fromkeys(
    (
        "utilization_percent",
        "sm_clock_mhz",
        "temperature_c",
        "power_w",
        "power_cap_w",
        "memory_used_bytes",
        "pcie_link_width",
        "xid",
    )
)


class Sampler:
    """Reads in a thread of its own, which nobody waits for: a driver may hang for ever."""

    def __init__(self, uuid: str | None, seconds: float) -> None:
        """Begins to read the device's sensors, every so many seconds."""
        self._uuid, self._seconds = uuid, seconds
        self._newest: tuple[float, dict[str, Any]] = 0.0, {}
        if uuid is not None:
            threading.Thread(target=self._read_on, name="sensors", daemon=True).start()

    def newest(self) -> dict[str, Any]:
        """What was read last; empty before the first reading, and when that is too old."""
        at, values = self._newest
        return values if time.monotonic() - at < OLD_AFTER * self._seconds else {}

    def _read_on(self) -> None:
        read = sensors(self._uuid)
        while read is not dict:  # that is what there is without a driver
            self._newest = time.monotonic(), read()
            time.sleep(self._seconds)


def sensors(uuid: str | None) -> Callable[[], dict[str, Any]]:
    """A function that reads an NVIDIA device's sensors; what a device does not say is left out."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID((uuid or "").encode())
    except Exception:
        return dict
    read: dict[str, Callable[[], Any]] = {
        "utilization_percent": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "sm_clock_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "temperature_c": lambda: pynvml.nvmlDeviceGetTemperature(
            handle, pynvml.NVML_TEMPERATURE_GPU
        ),
        "power_w": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "power_cap_w": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "memory_used_bytes": lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used,
        "pcie_link_width": lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "xid": _xid_reader(pynvml, handle),
    }
    return lambda: {name: value for name, value in _read_all(read) if value is not None}


def _xid_reader(pynvml: Any, handle: Any) -> Callable[[], int | None]:
    """A function that gives the newest error number the driver told; 0 before the first.

    Where a device tells none, as a MIG slice, it is None.
    """
    try:
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except Exception:
        return lambda: None
    newest = 0

    def read() -> int:
        nonlocal newest
        while True:
            try:
                newest = pynvml.nvmlEventSetWait_v2(events, 0).eventData
            except Exception:  # a time-out: nothing new
                return newest

    return read


def _read_all(read: dict[str, Callable[[], Any]]) -> list[tuple[str, Any]]:
    said = []
    for name, sensor in read.items():
        try:
            said.append((name, sensor()))
        except Exception:
            said.append((name, None))
    return said
