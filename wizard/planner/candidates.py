"""The ways to train worth planning: method × strategy × offload × devices, before any size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wizard.answers import Goal
from wizard.planner.pool import Pool

METHODS = ("full", "lora", "qlora")
WAYS = (
    ("single", "none", "cpu"),
    ("ddp", "none", "cpu"),
    ("zero2", "none", "cpu"),
    ("zero1", "none", "cpu"),
    ("fsdp", "none", "cpu"),
    ("zero3", "none", "cpu"),
    ("layer_split", "none", "cpu"),
    ("zero2", "optimizer", "cpu"),
    ("zero3", "optimizer", "cpu"),
    ("fsdp", "parameters", "cpu"),
    ("zero3", "parameters", "cpu"),
    ("zero3", "parameters", "nvme"),
)
"""Strategy, what is offloaded, where to; the simplest first, which wins where two are as good."""
ADAPTER_SETTINGS = frozenset(
    {
        "lora_rank",
        "lora_alpha",
        "lora_dropout",
        "target_modules",
        "use_rslora",
        "use_dora",
        "init_lora_weights",
        "modules_to_save",
        "adapter",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One way to train."""

    method: str
    strategy: str
    offload: str = "none"
    offload_device: str = "cpu"
    devices: int
    devices_per_rank: int = 1

    @property
    def way(self) -> tuple[str, str, str]:
        """Strategy, offload and where to: its place in WAYS is how simple it is."""
        return self.strategy, self.offload, self.offload_device

    @property
    def ranks(self) -> int:
        """Processes of the run."""
        return self.devices // self.devices_per_rank


def candidates(
    pool: Pool, fixed: Mapping[str, Any], goal: Goal = "quality"
) -> Iterator[tuple[Candidate, ...]]:
    """Every way that agrees with the fixed settings and makes sense on these devices.

    Each with the numbers of devices it may use; the planner keeps the best of them.
    """
    for method in METHODS:
        for way in WAYS:
            if not _agrees(fixed, method, way) or not _sensible(method, way, pool, fixed):
                continue
            variants = tuple(_variants(method, way, pool, fixed, goal))
            if variants:
                yield variants


def _agrees(fixed: Mapping[str, Any], method: str, way: tuple[str, str, str]) -> bool:
    strategy, offload, place = way
    values = {
        "method": method,
        "strategy": strategy,
        "offload": offload,
        "offload_device": place,
    }
    if any(fixed.get(setting, value) != value for setting, value in values.items()):
        return False
    if place != "nvme" and fixed.get("nvme_path") is not None:
        return False
    if strategy != "layer_split" and fixed.get("devices_per_rank", 1) != 1:
        return False
    adapter_fixed = bool(ADAPTER_SETTINGS & set(fixed)) and "method" not in fixed
    return not (adapter_fixed and method == "full")


def _sensible(method: str, way: tuple[str, str, str], pool: Pool, fixed: Mapping[str, Any]) -> bool:
    strategy, offload, place = way
    if strategy == "single":
        return not (pool.fixed and pool.count > 1)
    if place == "nvme" and not (fixed.get("nvme_path") or pool.nvme_path):
        return False
    if strategy == "ddp" or _asked_for(fixed, way):
        return True
    if pool.kind == "cpu" or (pool.count == 1 and offload == "none"):
        return False
    if offload != "none":
        return _offload_helps(method, way, pool)
    # FSDP2 shards 4-bit weights as ZeRO-3 does, and an adapter's states are too small to share.
    return (
        method == "full"
        or strategy in ("fsdp", "layer_split")
        or (method == "lora" and strategy == "zero3")
    )


def _offload_helps(method: str, way: tuple[str, str, str], pool: Pool) -> bool:
    """Whether moving something to the host, which is far slower, can save what matters."""
    strategy, offload, _ = way
    if pool.unified or method == "qlora":
        return False
    if offload == "optimizer" and (method != "full" or (strategy, pool.count) == ("zero3", 1)):
        # An adapter's states are small, and on one device ZeRO-2 does the same more simply.
        return False
    return strategy != "fsdp" or pool.count > 1


def _asked_for(fixed: Mapping[str, Any], way: tuple[str, str, str]) -> bool:
    """Whether the user named this strategy, or this offload, which then may be senseless."""
    strategy, offload, place = way
    if place == "nvme":
        return "nvme" in (fixed.get("offload_device"), place) and bool(fixed.get("nvme_path"))
    if fixed.get("offload", "none") != "none":
        return True
    return fixed.get("strategy") == strategy and offload == "none"


def _variants(
    method: str, way: tuple[str, str, str], pool: Pool, fixed: Mapping[str, Any], goal: Goal
) -> Iterator[Candidate]:
    """The same way on different numbers of devices; fewest first where those are wanted."""
    strategy, offload, place = way
    for devices in _counts(strategy, pool, goal):
        for per_rank in _per_rank(strategy, min(devices, pool.on_one_machine), fixed):
            yield Candidate(
                method=method,
                strategy=strategy,
                offload=offload,
                offload_device=place,
                devices=devices,
                devices_per_rank=per_rank,
            )


def _counts(strategy: str, pool: Pool, goal: Goal) -> tuple[int, ...]:
    if strategy == "single":
        return (1,)
    least = 2 if strategy in ("ddp", "layer_split") else 1
    if pool.count < least:
        return ()
    if pool.fixed or pool.kind == "cpu":
        return (pool.count,)
    if goal == "fewest-devices":
        powers = [2**n for n in range(1, pool.count.bit_length())]
        # Over several machines each has as many ranks.
        each = pool.on_one_machine
        whole = [count for count in powers if count <= each or count % pool.machines == 0]
        return tuple(sorted({*whole, pool.count}))
    fewer = {pool.island, pool.on_one_machine}
    return tuple(sorted({*(n for n in fewer if max(least, 2) <= n < pool.count), pool.count}))


def _per_rank(strategy: str, devices: int, fixed: Mapping[str, Any]) -> tuple[int, ...]:
    if strategy != "layer_split":
        return (1,)
    if "devices_per_rank" in fixed:
        each = int(fixed["devices_per_rank"])
        return (each,) if devices % each == 0 else ()
    return tuple(each for each in range(2, devices + 1) if devices % each == 0)
