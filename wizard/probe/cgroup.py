"""What control groups leave to this process: every group above it counts, in both versions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wizard.probe.reading import exists, integer, text, whole

UNLIMITED_BYTES = 1 << 60
"""Version 1 writes a number near 2^63 for "no limit"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryGroup:
    """One group that limits memory."""

    limit_bytes: int
    used_bytes: int | None
    """Without the file cache, which the kernel gives back; None when not told."""

    @property
    def free_bytes(self) -> int:
        """What may still be taken."""
        return max(0, self.limit_bytes - (self.used_bytes or 0))


def memory_groups(root: Path) -> tuple[MemoryGroup, ...]:
    """The groups around this process that limit its memory, innermost first."""
    found = []
    for folder in _folders(root, "memory"):
        limit_bytes = _first(folder, "memory.max", "memory.limit_in_bytes")
        if limit_bytes is not None and limit_bytes < UNLIMITED_BYTES:
            found.append(MemoryGroup(limit_bytes=limit_bytes, used_bytes=_used_bytes(folder)))
    return tuple(found)


def swap_limit(root: Path) -> int | None:
    """Bytes of swap the tightest group grants; None without a limit."""
    limits = []
    for folder in _folders(root, "memory"):
        limits.append(integer(folder / "memory.swap.max"))
        both = integer(folder / "memory.memsw.limit_in_bytes")
        memory = integer(folder / "memory.limit_in_bytes")
        if both is not None and memory is not None and both < UNLIMITED_BYTES:
            limits.append(max(0, both - memory))
    return min((limit for limit in limits if limit is not None), default=None)


def cpu_quota(root: Path) -> float | None:
    """Processors' worth of time the tightest group grants; None without a limit."""
    quotas = []
    for folder in _folders(root, "cpu"):
        limit, _, period = text(folder / "cpu.max").strip().partition(" ")
        quotas.append(_ratio(limit, period))
        quotas.append(_ratio(text(folder / "cpu.cfs_quota_us"), text(folder / "cpu.cfs_period_us")))
    return min((quota for quota in quotas if quota is not None), default=None)


def paths(root: Path) -> tuple[str, ...]:
    """Names of the groups this process is in, as the kernel writes them."""
    rows = (row.split(":", 2) for row in text(root / "proc/self/cgroup").splitlines())
    return tuple(row[2] for row in rows if len(row) == 3)


def _used_bytes(folder: Path) -> int | None:
    used = _first(folder, "memory.current", "memory.usage_in_bytes")
    if used is None:
        return None
    rows = (row.split() for row in text(folder / "memory.stat").splitlines())
    stat = {row[0]: row[1] for row in rows if len(row) == 2}
    cache = stat.get("total_inactive_file", stat.get("inactive_file", "0"))
    return max(0, used - (whole(cache) or 0))


def _folders(root: Path, controller: str) -> list[Path]:
    """This process's group folders for a controller, innermost first, both versions."""
    folders: list[Path] = []
    for row in text(root / "proc/self/cgroup").splitlines():
        parts = row.split(":", 2)
        if len(parts) != 3 or (parts[1] and controller not in parts[1].split(",")):
            continue
        base = _base(root, parts[1], controller)
        # A group outside our namespace is written as `/../..`; what is above us counts anyway.
        names = [name for name in parts[2].split("/") if name not in ("", ".", "..")]
        folders += [base.joinpath(*names[:depth]) for depth in range(len(names), -1, -1)]
    return folders


def _base(root: Path, controllers: str, controller: str) -> Path:
    mounted = root / "sys/fs/cgroup"
    if not controllers:
        unified = mounted / "unified"
        return unified if exists(unified) else mounted
    joined = mounted / controllers
    return joined if exists(joined) else mounted / controller


def _first(folder: Path, *names: str) -> int | None:
    found = (integer(folder / name) for name in names)
    return next((value for value in found if value is not None), None)


def _ratio(limit: str, period: str) -> float | None:
    quota, length = whole(limit), whole(period)
    return quota / length if quota is not None and length else None
