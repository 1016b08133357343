"""Devices of this machine, asked in a child: a driver that does not answer holds up nobody else."""

from __future__ import annotations

import contextlib
import importlib
import subprocess
import sys

ANSWER_SECONDS = 120.0
"""Without persistence mode a driver takes seconds for each card, and torch is slow to load."""
ABOUT_DEVICE = "device "
"""Begins the child's lines that name a device; drivers and libraries print lines of their own."""


class NoAnswerError(Exception):
    """The driver did not answer in time."""


def devices_here(kind: str, seconds: float = ANSWER_SECONDS) -> list[str]:
    """Devices of this machine: UUIDs where the driver tells them, else numbers.

    Raises NoAnswerError. The child is killed then, and not waited for: it may be stuck in the
    kernel, where nothing ends it. Our output, which others read to its end, it does not have.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "engine.devices", kind],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        said, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        raise NoAnswerError(
            f"the driver of the {kind} devices did not answer within {seconds:.0f} s: look at "
            f"{'npu-smi' if kind == 'npu' else 'nvidia-smi'} and dmesg; often only a restart of "
            "the machine helps"
        ) from None
    lines = said.decode("utf-8", "replace").splitlines()
    return [line.removeprefix(ABOUT_DEVICE) for line in lines if line.startswith(ABOUT_DEVICE)]


def ask(kind: str) -> list[str]:
    """The same, in this process; may hang for as long as the driver does."""
    if kind == "npu":
        return _numbers(_count_npus())
    return _nvidia_uuids() or _numbers(_count_cuda())


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _nvidia_uuids() -> list[str]:
    with contextlib.suppress(Exception):  # no driver, no library: torch may still know devices
        import pynvml

        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [_text(pynvml.nvmlDeviceGetUUID(handle)) for handle in handles]
    return []


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _count_cuda() -> int:
    import torch

    return int(torch.cuda.device_count())


def _count_npus() -> int:
    with contextlib.suppress(ImportError):
        return int(importlib.import_module("torch_npu").npu.device_count())
    return 0


if __name__ == "__main__":
    for device in ask(sys.argv[1]):
        print(f"{ABOUT_DEVICE}{device}")  # noqa: T201
