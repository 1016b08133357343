"""Child process that asks NVML about every NVIDIA device and prints JSON lines.

A driver that hangs takes this process with it, never the one that shows the wizard.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")


def main() -> int:
    """Print one line for the driver, one for each device or error, and `end`."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        _say("error", where="nvmlInit", code=error.value, text=str(error))
        return 0
    cuda = _ask(pynvml.nvmlSystemGetCudaDriverVersion_v2)
    _say(
        "driver",
        driver=_ask(pynvml.nvmlSystemGetDriverVersion),
        cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
    )
    for index in range(_ask(pynvml.nvmlDeviceGetCount) or 0):
        _device(index)
    _say("end")
    return 0


def _device(index: int) -> None:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        name = pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        _say("error", where="device", index=index, code=error.value, text=str(error))
        return
    mode = _ask(pynvml.nvmlDeviceGetMigMode, handle)
    slices = _slices(handle) if mode and mode[0] else []
    for one in slices or [handle]:
        _say("device", index=index, mig=bool(slices), **_numbers(one, handle, name))


def _numbers(one: Any, parent: Any, parent_name: str) -> dict[str, Any]:
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, one)
    capability = _ask(pynvml.nvmlDeviceGetCudaComputeCapability, parent)
    return {
        "name": _ask(pynvml.nvmlDeviceGetName, one) or parent_name,
        "uuid": _ask(pynvml.nvmlDeviceGetUUID, one),
        "memory_total_bytes": memory and memory.total,
        "memory_free_bytes": memory and memory.free,
        "compute_capability": capability and list(capability),
    }


def _slices(handle: Any) -> list[Any]:
    count = _ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    found = (_ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, i) for i in range(count))
    return [one for one in found if one is not None]


def _ask(call: Callable[..., T], *arguments: Any) -> T | None:
    """The answer of one NVML call; None when the device or the driver does not give it."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def _say(kind: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
