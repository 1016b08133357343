"""Facts → what the ranks of a run may use of devices, host and disk."""

from __future__ import annotations

from dataclasses import dataclass

from wizard.facts import Device, Facts
from wizard.planner.host import RANK_PROCESS_BYTES
from wizard.planner.pool import Pool

DEVICE_SHARE = 0.92
HOST_SHARE = 0.95
DISK_SHARE = 0.95


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What the ranks may use; None is unknown and refuses nothing."""

    device_bytes: int | None
    """Of the smallest device, for one rank."""
    host_bytes: int | None
    """For all ranks together."""
    disk_bytes: int | None = None


def budget_of(pool: Pool, facts: Facts, ranks: int) -> Budget:
    """Bytes the ranks may use; what others hold on a device is theirs."""
    host = _share(facts.host.memory_available_bytes, HOST_SHARE)
    disk = _share(facts.host.disk_free_bytes, DISK_SHARE)
    if pool.kind == "cpu":
        each = None if host is None else host // ranks
        return Budget(device_bytes=each, host_bytes=host, disk_bytes=disk)
    sizes = [_usable_bytes(d, d.memory_total_bytes) for d in pool.devices if d.memory_total_bytes]
    each = round(min(sizes)) if sizes else None
    if pool.unified and each is not None and host is not None:
        # The ranks' processes live in the same memory.
        each = max(0, min(each, host - ranks * RANK_PROCESS_BYTES))
    return Budget(device_bytes=each, host_bytes=host, disk_bytes=disk)


def _share(size: int | None, share: float) -> int | None:
    return None if size is None else round(size * share)


def _usable_bytes(device: Device, total_bytes: int) -> float:
    free_bytes = total_bytes if device.memory_free_bytes is None else device.memory_free_bytes
    return min(total_bytes * DEVICE_SHARE, free_bytes)
