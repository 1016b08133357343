"""Processes by pid and start time, so that a reused number is never taken for the old one."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Mapping
from pathlib import Path

KILL_SECONDS = 2.0
"""A killed process is gone within this unless the kernel holds it."""
Processes = Mapping[int, int]
"""pid → start time in clock ticks since boot."""


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None when it has ended, also unreaped."""
    fields = _stat(pid)
    return None if fields is None or fields[0] in ("Z", "X") else int(fields[19])


def state_letter(pid: int) -> str | None:
    """The kernel's letter for what a process does, such as T for stopped; None when it is gone."""
    fields = _stat(pid)
    return None if fields is None else fields[0]


def is_alive(pid: int, started: int | None) -> bool:
    """Whether the process that began then still runs."""
    return started is not None and start_time(pid) == started


def wait(pid: int, seconds: float) -> None:
    """Wait until a process ends, however related, but no longer than that.

    Where the kernel cannot tell when it does (only Linux can), all of the time is waited.
    """
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        time.sleep(seconds)
        return
    try:
        select.select([handle], [], [], seconds)
    finally:
        os.close(handle)


def boot_id() -> str:
    """Identity of this boot: start times of another boot mean nothing."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def family(pid: int) -> dict[int, int]:
    """A process and its descendants that are alive, with their start times."""
    children: dict[int, list[int]] = {}
    started: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        fields = _stat(int(entry)) if entry.isdigit() else None
        if fields is not None and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(int(entry))
            started[int(entry)] = int(fields[19])
    found: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        member = waiting.pop()
        if member in started and member not in found:
            found[member] = started[member]
            waiting += children.get(member, ())
    return found


def send(processes: Processes, number: int) -> None:
    """Signal those that still are the processes they were."""
    for pid, started in processes.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if is_alive(pid, started):
                os.kill(pid, number)


def end(processes: Processes, grace_seconds: float) -> list[int]:
    """Ask processes to end, wait, and kill those that did not; the pids that even so remain.

    Those wait in the kernel, for a driver or a disk, and cannot be ended before that answers.
    """
    send(processes, signal.SIGTERM)
    if _all_gone(processes, grace_seconds):
        return []
    send(processes, signal.SIGKILL)
    _all_gone(processes, KILL_SECONDS)
    return [pid for pid, started in processes.items() if is_alive(pid, started)]


def _all_gone(processes: Processes, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while any(is_alive(pid, started) for pid, started in processes.items()):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the state on; the name before them may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes().decode("utf-8", "replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")


def oom_kills(root: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """Processes of this control group that the kernel killed for memory; 0 when nobody counts.

    `root` is where control groups are mounted, `own` the file that says which are ours.
    """
    for path in _counters(root, own):
        with contextlib.suppress(OSError, ValueError):
            for line in path.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    return 0


def _counters(root: Path, own: Path) -> list[Path]:
    """Files that count, of the group itself first: version 2, and the memory tree of version 1."""
    ours: list[Path] = []
    with contextlib.suppress(OSError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "":
                ours.append(root / path.lstrip("/") / "memory.events")
            elif "memory" in controllers.split(","):
                ours.append(root / "memory" / path.lstrip("/") / "memory.oom_control")
    return [*ours, root / "memory.events", root / "memory" / "memory.oom_control"]
