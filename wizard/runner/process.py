"""Is a recorded process still the one that runs? Decided by boot, pid and start time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None when it has ended, also unreaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in ("Z", "X") else int(fields[19])


def boot_id() -> str | None:
    """Identity of this boot; None where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def is_same(pid: object, started: object) -> bool:
    """Whether a recorded process of this boot still runs."""
    return isinstance(pid, int) and isinstance(started, int) and start_time(pid) == started


def end(processes: Mapping[int, int], grace_seconds: float) -> None:
    """TERM, then KILL after the grace time; pid → start time, others are left alone."""
    _send(processes, signal.SIGTERM)
    until = time.monotonic() + grace_seconds
    while any(is_same(pid, started) for pid, started in processes.items()):
        if time.monotonic() > until:
            _send(processes, signal.SIGKILL)
            return
        time.sleep(0.05)


def terminate_group(leader: int, started: int) -> None:
    """TERM for the group a process leads, also for members nobody has recorded yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if is_same(leader, started) and os.getpgid(leader) == leader:
            os.killpg(leader, signal.SIGTERM)


def _send(processes: Mapping[int, int], number: int) -> None:
    for pid, started in processes.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if is_same(pid, started):
                os.kill(pid, number)
