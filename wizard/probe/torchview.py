"""What torch sees, asked in a child and remembered until versions, driver or boot change."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.theirs import quoted
from wizard import paths
from wizard.facts import Bus, Device, Readings, TorchDevice, TorchView
from wizard.probe import catalog
from wizard.probe import nvml_values as values
from wizard.probe.running import Ran, Run

TIME_LIMIT_SECONDS = 60.0
"""torch and bitsandbytes take 10 s from a cold disk; a network file system doubles that."""
CHILD = (sys.executable, "-m", "engine.sees")
PACKAGES = ("torch", "bitsandbytes", "deepspeed", "triton")
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "LD_LIBRARY_PATH",
)
DRIVER_VERSIONS = ("proc/driver/nvidia/version", "sys/module/amdgpu/version")
SCHEMA = 1


def read_torch(*, ask: bool, run: Run, root: Path = Path("/")) -> TorchView | None:
    """What is remembered of torch; else, where ask is true, what it says now; else None."""
    file = paths.cache() / "torch" / f"{_key(root)}.json"
    remembered = _remembered(file)
    if remembered is not None or not ask:
        return remembered
    ran = run([*CHILD, "--bnb"], TIME_LIMIT_SECONDS)
    view = decode(ran)
    # All it has to say may be said although its end came late: torch takes seconds to unload.
    if (ran.ok or ran.timed_out) and view.error is None and view.bnb_4bit is not None:
        _remember(file, ran.out)
    return view


def ask_now(run: Run) -> TorchView:
    """What torch says at this moment, with the memory that is free."""
    return decode(run([*CHILD, "--free"], TIME_LIMIT_SECONDS))


def decode(ran: Ran) -> TorchView:
    """The child's lines as a view; what it did not come to say is unknown. Never raises."""
    said: dict[str, Any] = {}
    for line in _lines(ran.out):
        said.update(line)
    return TorchView(
        version=values.words(said.get("version")) or "",
        cuda=values.words(said.get("cuda")),
        hip=values.words(said.get("hip")),
        arch_list=tuple(filter(None, map(values.words, _list(said.get("arch_list"))))),
        devices=tuple(
            _device(one, place)
            for place, one in enumerate(_list(said.get("devices")))
            if isinstance(one, dict)
        ),
        peer_access=tuple(filter(None, map(_pair, _list(said.get("peer_access"))))),
        bnb_4bit=_four_bits(said, ran),
        bnb_error=values.words(said.get("bnb_error")) or _crash(said, ran),
        error=values.words(said.get("error")) or _unfinished(said, ran),
    )


def _lines(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(line)
            if isinstance(value, dict):
                found.append(value)
    return found


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _pair(value: object) -> tuple[int, int] | None:
    if not isinstance(value, list) or len(value) != 2:
        return None
    first, second = (values.whole(one, 0, 1024) for one in value)
    return None if first is None or second is None else (first, second)


def _device(told: Mapping[str, Any], place: int) -> TorchDevice:
    integrated = told.get("integrated")
    index = values.whole(told.get("index"), 0, 1024)
    return TorchDevice(
        index=place if index is None else index,
        name=values.words(told.get("name")) or "unknown device",
        uuid=values.words(told.get("uuid")),
        memory_total_bytes=values.whole(told.get("memory_total_bytes"), 1, values.MOST_BYTES),
        memory_free_bytes=values.whole(told.get("memory_free_bytes"), 0, values.MOST_BYTES),
        compute_capability=values.capability(told.get("compute_capability")),
        integrated=integrated if isinstance(integrated, bool) else None,
    )


def _four_bits(said: Mapping[str, Any], ran: Ran) -> bool | None:
    told = said.get("bnb_4bit")
    if isinstance(told, bool):
        return told
    return False if _crash(said, ran) else None


def _crash(said: Mapping[str, Any], ran: Ran) -> str | None:
    """torch was well, and then bitsandbytes took the process with it."""
    if "version" in said and "bnb_4bit" not in said and ran.code is not None and ran.code < 0:
        return f"it ended the process that tried it (signal {-ran.code})"
    return None


def _unfinished(said: Mapping[str, Any], ran: Ran) -> str | None:
    """Why torch itself said nothing."""
    if "version" in said:
        return None
    if ran.timed_out:
        return f"torch did not answer within {TIME_LIMIT_SECONDS:.0f} seconds"
    if ran.code is not None and ran.code < 0:
        return f"the process that imports torch was ended by signal {-ran.code}"
    last = ran.err.strip().splitlines()[-1:]
    return quoted(last[0]) if last else "torch said nothing"


def devices(view: TorchView) -> tuple[Device, ...]:
    """CUDA devices as torch alone knows them, where no driver tool could be asked."""
    if view.hip is not None or view.cuda is None:
        return ()
    return tuple(_as_device(one) for one in view.devices)


def _as_device(seen: TorchDevice) -> Device:
    row = catalog.accelerator(seen.name) or {}
    rates = catalog.rates(row)
    capability = seen.compute_capability
    return Device(
        kind="cuda",
        index=seen.index,
        name=seen.name,
        uuid=f"GPU-{seen.uuid}" if seen.uuid else None,
        memory_total_bytes=seen.memory_total_bytes,
        memory_free_bytes=seen.memory_free_bytes,
        compute_capability=capability,
        bf16_native=None if capability is None else capability[0] >= 8,
        memory_bandwidth_gbs=rates.get("memory_bandwidth_gbs"),
        bf16_tflops=rates.get("bf16_tflops"),
        sources=dict.fromkeys(rates, "table"),
        unified_memory=bool(seen.integrated),
        bus=Bus(),
        readings=Readings(),
        source="torch, table" if row else "torch",
        unknown={"temperature_c": "torch does not tell", "pci_id": "torch does not tell"},
    )


def same_device(uuid: str | None, other: str | None) -> bool:
    """Whether two UUIDs name the same device; torch leaves `GPU-` and `MIG-` away."""
    return bool(uuid and other) and _bare(uuid or "") == _bare(other or "")


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def _seen(device: Device, view: TorchView) -> TorchDevice | None:
    return next((seen for seen in view.devices if same_device(device.uuid, seen.uuid)), None)


def joined(devices: Sequence[Device], view: TorchView | None) -> tuple[Device, ...]:
    """Devices with what only torch could tell: memory and capability the driver kept to itself."""
    if view is None:
        return tuple(devices)
    alone = len(devices) == len(view.devices) == 1
    return tuple(
        _filled(device, view.devices[0] if alone else _seen(device, view)) for device in devices
    )


def _filled(device: Device, seen: TorchDevice | None) -> Device:
    if seen is None:
        return device
    told = {
        name: getattr(seen, name)
        for name in ("memory_total_bytes", "memory_free_bytes", "compute_capability")
        if getattr(device, name) is None and getattr(seen, name) is not None
    }
    capability = device.compute_capability or seen.compute_capability
    return replace(
        device,
        **told,
        bf16_native=device.bf16_native if capability is None else capability[0] >= 8,
        unified_memory=device.unified_memory or bool(seen.integrated),
        sources={**device.sources, **dict.fromkeys(told, "torch")},
        unknown={name: why for name, why in device.unknown.items() if name not in told},
    )


def _key(root: Path) -> str:
    """Changes whenever the answer might."""
    parts = {
        "schema": SCHEMA,
        "python": sys.executable,
        "versions": {name: _version(name) for name in PACKAGES},
        "driver": _text(root / "proc/driver/nvidia/version")
        or _text(root / "sys/module/amdgpu/version"),
        "boot": _text(root / "proc/sys/kernel/random/boot_id"),
        "environment": {name: os.environ.get(name) for name in VARIABLES},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _remembered(file: Path) -> TorchView | None:
    try:
        view = decode(Ran(0, file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
    return view if view.version else None


def _remember(file: Path, text: str) -> None:
    """Keep the child's answer; a disk that is full or read-only only costs time."""
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=".torch-")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(name, file)
