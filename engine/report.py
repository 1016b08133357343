"""Report: what a rank says while it works, as events that never disturb training."""

from __future__ import annotations

import os
import resource
import socket
import threading
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.events import encode
from engine.sensors import NO_SENSORS, Sampler

PULSE_SECONDS = 5.0
LINE_SECONDS = 0.5
"""Steps faster than this share a line."""
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "deepspeed", "bitsandbytes")


class Report:
    """The events of one rank; a disk that refuses them costs events, never the run."""

    def __init__(self, run: Path, *, rank: int, attempt: int, rung: int) -> None:
        self.rank, self.attempt, self.rung = rank, attempt, rung
        self.step: int | None = None
        self.phase_name = "starting"
        self.doing = ""
        """Where in a step the rank is: data, compute, collective or device; told by pulses."""
        self.totals: dict[str, Any] = {"steps": 0, "memory_peak_bytes": None, "train_loss": None}
        self._phase_since = time.monotonic()
        self._lock = threading.Lock()
        self._torn = False
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._sensors: Callable[[], dict[str, Any]] = dict
        self._path = run / "events" / f"rank-{rank:05d}.jsonl"
        self._file = self._open(self._path)
        self._thread = threading.Thread(target=self._pulse_loop, name="pulse", daemon=True)

    @staticmethod
    def _open(path: Path) -> int | None:
        try:
            path.parent.mkdir(exist_ok=True)
            return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError:
            return None

    def _reopen(self) -> None:
        """Go on in a new file when somebody removed or rotated ours."""
        if self._file is None:
            return
        try:
            same = os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except OSError:
            same = False
        if same:
            return
        with self._lock:
            new = self._open(self._path) if self._path.parent.parent.is_dir() else None
            if new is not None:
                os.close(self._file)
                self._file = new

    def start(self) -> None:
        """Say that the rank is there, and begin to pulse."""
        self.phase("starting")
        self._thread.start()

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event; a write cut short is ended by the next line's newline."""
        if self._file is None:
            return
        line = encode(
            kind,
            t=time.time(),
            rank=self.rank,
            attempt=self.attempt,
            rung=self.rung,
            step=self.step,
            **fields,
        ).encode()
        with self._lock:
            try:
                whole = b"\n" + line if self._torn else line
                self._torn = os.write(self._file, whole) != len(whole)
            except OSError:
                pass

    def hello(self, *, world_size: int, local_rank: int, device: str, data_hash: str) -> None:
        """Say who this rank is and what it runs on."""
        uuid = device_uuid(device)
        self._sensors = Sampler(uuid, PULSE_SECONDS).newest
        self.write(
            "hello",
            world_size=world_size,
            local_rank=local_rank,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=device,
            device_name=device_property(device, "name"),
            memory_total_bytes=device_property(device, "total_memory"),
            uuid=uuid,
            versions=versions(),
            data_hash=data_hash,
        )

    def phase(self, name: str, **fields: Any) -> None:
        """Enter a phase."""
        self.phase_name, self._phase_since = name, time.monotonic()
        self.write("phase", **{"phase": name, "progress": None, "detail": None, **fields})
        self._changed.set()

    def warn(self, text: str) -> None:
        """Say something the user should know that does not end the run."""
        self.write("warn", text=text)

    def end(self) -> None:
        """Stop pulsing."""
        self._ended.set()
        self._changed.set()

    def _pulse_loop(self) -> None:
        while not self._ended.is_set():
            self._changed.clear()
            self._reopen()
            self.write(
                "pulse",
                phase=self.phase_name,
                doing=self.doing,
                seconds=round(time.monotonic() - self._phase_since, 3),
                process_memory_bytes=process_memory_bytes(),
                **{**NO_SENSORS, **self._sensors()},
            )
            self._changed.wait(PULSE_SECONDS)


def device_property(device: str, name: str) -> Any:
    """What torch says of an accelerator such as `cuda:0` or `npu:3`; None of a CPU."""
    import torch

    kind = device.partition(":")[0]
    try:
        return getattr(getattr(torch, kind).get_device_properties(device), name)
    except Exception:
        return None


def device_uuid(device: str) -> str | None:
    """The UUID of an NVIDIA device such as `cuda:0`, as its driver writes it; else None."""
    if not device.startswith("cuda"):
        return None
    import torch

    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return f"GPU-{uuid}" if uuid is not None else None


def versions() -> dict[str, str]:
    """Package → version, of those of the training stack that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def process_memory_bytes() -> int | None:
    """Memory this process holds in RAM now."""
    return _status_bytes("VmRSS")


def process_memory_peak_bytes() -> int:
    """Most memory this process has held in RAM.

    The kernel's own high-water mark: rusage also counts what the launcher held before exec.
    """
    peak = _status_bytes("VmHWM")
    return peak if peak is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status_bytes(name: str) -> int | None:
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(
                (int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:")), None
            )
    except OSError:
        return None
