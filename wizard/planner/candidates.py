"""The ways to train worth planning: method × strategy × offload, before any rule or size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wizard.planner.pool import Pool

METHODS = ("full", "lora", "qlora")
SHARINGS = (
    ("single", "none"),
    ("ddp", "none"),
    ("zero3", "none"),
    ("zero3", "optimizer"),
    ("zero3", "parameters"),
)
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
    offload: str
    devices: int


def candidates(pool: Pool, fixed: Mapping[str, Any]) -> Iterator[Candidate]:
    """Every combination that agrees with the fixed settings and makes sense on these devices."""
    for method in METHODS:
        for strategy, offload in SHARINGS:
            if not _agrees(fixed, method=method, strategy=strategy, offload=offload):
                continue
            devices = 1 if strategy == "single" else pool.count
            if _sensible(method, strategy, offload, devices, pool, fixed):
                yield Candidate(method=method, strategy=strategy, offload=offload, devices=devices)


def _agrees(fixed: Mapping[str, Any], **values: str) -> bool:
    if any(fixed.get(setting, value) != value for setting, value in values.items()):
        return False
    adapter_fixed = bool(ADAPTER_SETTINGS & set(fixed)) and "method" not in fixed
    return not (adapter_fixed and values["method"] == "full")


def _sensible(
    method: str, strategy: str, offload: str, devices: int, pool: Pool, fixed: Mapping[str, Any]
) -> bool:
    if strategy == "single":
        return not (pool.fixed and pool.count > 1)
    if strategy == "ddp":
        return devices > 1
    if _asked_for(fixed, offload):
        return True
    if pool.kind == "cpu" or (devices == 1 and offload == "none"):
        return False
    # An adapter's optimizer states are small: moving them alone saves next to nothing.
    return not (method != "full" and offload == "optimizer")


def _asked_for(fixed: Mapping[str, Any], offload: str) -> bool:
    """Whether the user named ZeRO-3, or an offload that only it has."""
    named = fixed.get("offload", "none")
    return offload == named and (named != "none" or fixed.get("strategy") == "zero3")
