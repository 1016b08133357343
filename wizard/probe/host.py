"""The machine around the devices: processor, memory and disk, after container limits."""

from __future__ import annotations

import os
import platform
import socket
from pathlib import Path

import psutil

from wizard import paths
from wizard.facts import Host

UNLIMITED_BYTES = 1 << 60
"""Version 1 cgroups write a number near 2^63 for "no limit"."""


def read_host(root: Path = Path("/")) -> Host:
    """Facts of this host; what cannot be read is None.

    `root` is where /proc and /sys lie.
    """
    memory = psutil.virtual_memory()
    limit_bytes, used_bytes = memory_limit(root)
    limited = limit_bytes is not None and limit_bytes < memory.total
    total_bytes = limit_bytes if limited and limit_bytes is not None else memory.total
    available_bytes = memory.available
    if limited and used_bytes is not None:
        available_bytes = min(available_bytes, max(0, total_bytes - used_bytes))
    disk = _nearest_existing(paths.runs())
    return Host(
        hostname=socket.gethostname(),
        system=f"{platform.system()} {platform.release()}",
        cpu_name=cpu_name(root),
        cpu_cores=usable_cores(root),
        memory_total_bytes=total_bytes,
        memory_available_bytes=available_bytes,
        disk_path=str(disk),
        disk_free_bytes=_disk_free_bytes(disk),
        memory_limit_source="cgroup" if limited else None,
    )


def cpu_name(root: Path = Path("/")) -> str | None:
    """The processor's name as the kernel writes it."""
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or None


def usable_cores(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity, cut by the container's quota, at least one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    quota = cpu_quota(root)
    return cores if quota is None else max(1, min(cores, int(quota)))


def cpu_quota(root: Path) -> float | None:
    """Cores' worth of time the tightest cgroup grants; None without a limit."""
    quotas = []
    for folder in _folders(root, "cpu"):
        limit, _, period = _text(folder / "cpu.max").strip().partition(" ")
        quotas.append(_ratio(limit, period))
        quotas.append(
            _ratio(_text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us"))
        )
    return min((quota for quota in quotas if quota is not None), default=None)


def memory_limit(root: Path) -> tuple[int | None, int | None]:
    """(limit, use without reclaimable file cache) in bytes of the tightest memory cgroup."""
    found: tuple[int | None, int | None] = (None, None)
    for folder in _folders(root, "memory"):
        limit_bytes = _first_int(folder, "memory.max", "memory.limit_in_bytes")
        if limit_bytes is None or limit_bytes >= UNLIMITED_BYTES:
            continue
        if found[0] is None or limit_bytes < found[0]:
            found = (limit_bytes, _used_bytes(folder))
    return found


def _used_bytes(folder: Path) -> int | None:
    used = _first_int(folder, "memory.current", "memory.usage_in_bytes")
    if used is None:
        return None
    stat = dict(
        line.split(maxsplit=1) for line in _text(folder / "memory.stat").splitlines() if " " in line
    )
    cache = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
    return max(0, used - (_int(cache) or 0))


def _folders(root: Path, controller: str) -> list[Path]:
    """This process's cgroup folders for a controller, innermost first, both versions."""
    folders: list[Path] = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / "sys/fs/cgroup" / (controllers and controller)
        inner = base / path.lstrip("/")
        folders += [inner, *(parent for parent in inner.parents if parent.is_relative_to(base))]
    return folders


def _first_int(folder: Path, *names: str) -> int | None:
    for name in names:
        value = _int(_text(folder / name))
        if value is not None:
            return value
    return None


def _int(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isdigit() else None


def _ratio(limit: str, period: str) -> float | None:
    limit, period = limit.strip(), period.strip()
    if not (limit.isdigit() and period.isdigit() and int(period)):
        return None
    return int(limit) / int(period)


def _text(path: Path) -> str:
    """A file's text; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _disk_free_bytes(path: Path) -> int | None:
    try:
        return int(psutil.disk_usage(str(path)).free)
    except OSError:
        return None
