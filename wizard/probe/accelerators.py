"""Accelerators of this machine: asks the NVML child, understands its answer, obeys visibility."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wizard.facts import Device
from wizard.probe import catalog
from wizard.problem import Problem

TIME_LIMIT_SECONDS = 20.0
"""Loading the driver on eight cards without persistence mode takes several seconds."""

NO_LIBRARY, VERSION_MISMATCH, DRIVER_NOT_LOADED = 12, 18, 9
LOST = (15, 16)
DRIVER_TRACES = ("proc/driver/nvidia", "dev/nvidia0", "dev/dxg")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accelerators:
    """What the child said, after visibility."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    problems: tuple[Problem, ...] = field(default=())


def read_accelerators(root: Path = Path("/")) -> Accelerators:
    """Every accelerator this process may use. Never raises, never waits long."""
    command = [sys.executable, "-m", "wizard.probe.nvidia"]
    text, finished = ask_child(command, TIME_LIMIT_SECONDS)
    traces = any((root / trace).exists() for trace in DRIVER_TRACES)
    found = understand(text, finished=finished, driver_traces=traces)
    return visible(found, os.environ)


def ask_child(command: Sequence[str], limit_seconds: float) -> tuple[str, bool]:
    """(what a child printed, whether it ended by itself); what it said before a hang is kept."""
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
        finished = _wait(child, limit_seconds)
        output.seek(0)
        return output.read().decode("utf-8", "replace"), finished


def _wait(child: subprocess.Popen[bytes], limit_seconds: float) -> bool:
    try:
        child.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return _reap(child)
    return True


def _reap(child: subprocess.Popen[bytes]) -> bool:
    # A process stuck inside the driver cannot be killed; it is left, not waited for.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1.0)
    return False


def understand(text: str, *, finished: bool, driver_traces: bool) -> Accelerators:
    """The child's lines as devices and problems; lines it did not finish are skipped."""
    lines = list(_lines(text))
    devices = [_device(line) for line in lines if line["kind"] == "device"]
    problems = [
        problem
        for line in lines
        if line["kind"] == "error"
        for problem in _problem(line, driver_traces)
    ]
    ended = any(line["kind"] in ("end", "error") for line in lines)
    if not finished:
        problems.append(_hung())
    elif not ended and driver_traces:
        problems.append(_died())
    driver: Mapping[str, Any] = next((line for line in lines if line["kind"] == "driver"), {})
    return Accelerators(
        devices=tuple(devices),
        driver=driver.get("driver"),
        cuda=driver.get("cuda"),
        problems=tuple(problems),
    )


def _lines(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict) and "kind" in value:
            found.append(value)
    return found


def _device(line: Mapping[str, Any]) -> Device:
    name = str(line["name"])
    row = catalog.accelerator(name) or {}
    capability = line.get("compute_capability")
    return Device(
        kind="cuda",
        index=int(line["index"]),
        name=name,
        uuid=line.get("uuid"),
        memory_total_bytes=line.get("memory_total_bytes"),
        memory_free_bytes=line.get("memory_free_bytes"),
        compute_capability=(capability[0], capability[1]) if capability else None,
        bf16_native=capability[0] >= 8 if capability else _yes_or_no(row.get("bf16_native")),
        memory_bandwidth_gbs=catalog.number(row, "memory_bandwidth_gbs"),
        bf16_tflops=catalog.number(row, "bf16_tflops"),
        source="nvml, table" if row else "nvml",
    )


def _yes_or_no(text: str | None) -> bool | None:
    return {"yes": True, "no": False}.get(text or "")


def _problem(line: Mapping[str, Any], driver_traces: bool) -> list[Problem]:
    code = line.get("code")
    if line.get("where") == "device":
        return [_lost(line)]
    if code in (NO_LIBRARY, DRIVER_NOT_LOADED) and not driver_traces:
        return []
    if code == VERSION_MISMATCH:
        what = "the NVIDIA driver in the kernel and its library have different versions"
        fix = "reboot, or unload and reload the nvidia kernel modules: the driver was updated"
    elif code == NO_LIBRARY:
        what = "this machine has an NVIDIA driver, but its library libnvidia-ml.so.1 is not found"
        fix = "in a container start it with the NVIDIA runtime (docker run --gpus all)"
    else:
        what = f"the NVIDIA driver does not answer: {line.get('text')}"
        fix = "run nvidia-smi; it should list the devices"
    return [Problem(what=what, where="NVML", fix=fix, exit_code=6)]


def _lost(line: Mapping[str, Any]) -> Problem:
    index, code = line.get("index"), line.get("code")
    state = "has fallen off the bus" if code in LOST else f"cannot be read: {line.get('text')}"
    return Problem(
        what=f"it {state}; it is left out",
        where=f"device {index}",
        fix="look for Xid in dmesg; a reset or a reboot brings it back",
        severity="warning",
        exit_code=6,
    )


def _hung() -> Problem:
    return Problem(
        what=f"the NVIDIA driver did not answer within {TIME_LIMIT_SECONDS:.0f} seconds",
        where="NVML",
        fix="run nvidia-smi; if it hangs as well, reboot",
        exit_code=6,
    )


def _died() -> Problem:
    return Problem(
        what="the process that asks the NVIDIA driver ended without an answer",
        where="NVML",
        fix="run python -m wizard.probe.nvidia to see why",
        exit_code=6,
    )


def visible(found: Accelerators, environment: Mapping[str, str]) -> Accelerators:
    """What CUDA_VISIBLE_DEVICES leaves, in its order; as in CUDA, a wrong entry ends the list."""
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None or not found.devices:
        return found
    chosen: list[Device] = []
    problems = list(found.problems)
    for entry in (part.strip() for part in wanted.split(",")):
        device = _named(found.devices, entry)
        if device is None or device in chosen:
            if entry not in ("", "-1"):
                problems.append(_invisible(entry, wanted))
            break
        chosen.append(device)
    if not chosen:
        problems.append(_all_hidden(wanted))
    problems += _order(found.devices, wanted, environment)
    return Accelerators(
        devices=tuple(chosen), driver=found.driver, cuda=found.cuda, problems=tuple(problems)
    )


def _named(devices: Sequence[Device], entry: str) -> Device | None:
    """The device an entry names: a position, a UUID, or the unique beginning of one."""
    if entry.isdigit():
        return next((d for d in devices if d.index == int(entry)), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    matches = [d for d in devices if d.uuid and d.uuid.startswith(entry)]
    return matches[0] if len(matches) == 1 else None


def _invisible(entry: str, wanted: str) -> Problem:
    return Problem(
        what=f"`{entry}` names no device, or one twice; it and what follows is not used",
        where=f"CUDA_VISIBLE_DEVICES={wanted}",
        fix="nvidia-smi -L lists indices and UUIDs",
        severity="warning",
        exit_code=6,
    )


def _all_hidden(wanted: str) -> Problem:
    return Problem(
        what="every accelerator of this machine is hidden",
        where=f"CUDA_VISIBLE_DEVICES={wanted}",
        fix="unset it to use them",
        severity="warning",
        exit_code=6,
    )


def _order(devices: Sequence[Device], wanted: str, environment: Mapping[str, str]) -> list[Problem]:
    """On mixed machines an index means different cards to CUDA and to the driver."""
    mixed = len({device.name for device in devices}) > 1
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    if not mixed or by_bus or not any(part.strip().isdigit() for part in wanted.split(",")):
        return []
    return [
        Problem(
            what="its indices are read in the driver's order; CUDA counts the fastest card first",
            where=f"CUDA_VISIBLE_DEVICES={wanted}",
            fix="set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name the devices by UUID",
            severity="warning",
            exit_code=6,
        )
    ]
