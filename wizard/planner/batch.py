"""Micro-batch × accumulation × devices: exactly the effective batch size."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wizard.wording import counted

DEFAULT_ROWS = 16
"""A batch large enough for a steady gradient, small enough for many steps."""
MANY_SIZES = 32
NEXT_SIZE = 0.75
"""Of many micro-batches each that is tried is at most so much of the one before."""
FEWEST_STEPS = 20
"""With fewer optimizer steps warm-up and decay have no room."""


class BatchError(ValueError):
    """The fixed sizes contradict each other; the text names the nearest ones that work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Sizes that multiply to `effective`."""

    effective: int
    devices: int
    micros: tuple[int, ...]
    """Micro-batches that divide a device's share, largest first."""
    reason: str

    def accumulation(self, micro: int) -> int:
        """Micro-batches per optimizer step."""
        return self.effective // (self.devices * micro)


def solve(fixed: Mapping[str, Any], *, devices: int, devices_fixed: bool, rows: float) -> Batch:
    """The effective batch size, the devices that share it evenly, and the micro-batches it allows.

    `rows` are rows × epochs to be learnt.
    Raises BatchError when what the user fixed cannot be met exactly.
    """
    micro = fixed.get("per_device_train_batch_size")
    accumulation = fixed.get("gradient_accumulation_steps")
    unit = (micro or 1) * (accumulation or 1)
    effective, reason = _effective(fixed, unit * devices, rows)
    if micro and accumulation and "effective_batch_size" not in fixed:
        effective, reason = (
            unit * devices,
            f"{micro} × {accumulation} × {counted(devices, 'device')}",
        )
    sharing = _sharing(effective, unit, devices, devices_fixed)
    share = effective // sharing
    if micro and accumulation and micro * accumulation != share:
        raise BatchError(_product(effective, micro, accumulation, sharing))
    return Batch(
        effective=effective,
        devices=sharing,
        micros=_micros(share, micro, accumulation),
        reason=reason,
    )


def _effective(fixed: Mapping[str, Any], unit: int, rows: float) -> tuple[int, str]:
    if "effective_batch_size" in fixed:
        return int(fixed["effective_batch_size"]), "fixed"
    size = unit * max(1, DEFAULT_ROWS // unit)
    while size > unit and rows / size < FEWEST_STEPS:
        size = unit * max(1, size // unit // 2)
    if size == unit and unit > DEFAULT_ROWS:
        return size, f"{unit} is the least these devices and sizes allow"
    if size < DEFAULT_ROWS // unit * unit:
        return size, f"small, so that the data gives at least {FEWEST_STEPS} steps"
    return size, "steady gradients, and enough steps from this much data"


def _sharing(effective: int, unit: int, devices: int, devices_fixed: bool) -> int:
    """The most devices that can share the effective batch evenly."""
    if effective % unit == 0:
        units = effective // unit
        most = next(n for n in range(min(devices, units), 0, -1) if units % n == 0)
        if most == devices or not devices_fixed:
            return most
    below, above = nearest(effective, unit * devices)
    choices = " or ".join(str(size) for size in (below, above) if size)
    raise BatchError(
        f"effective_batch_size {effective} is no multiple of {unit * devices} "
        f"({unit} per device × {counted(devices, 'device')}): the nearest are {choices}"
    )


def nearest(size: int, unit: int) -> tuple[int, int]:
    """The multiples of `unit` on both sides of `size`; the lower one may be 0."""
    return size // unit * unit, -(-size // unit) * unit


def _micros(share: int, micro: int | None, accumulation: int | None) -> tuple[int, ...]:
    if micro:
        return (micro,)
    if accumulation:
        return (share // accumulation,)
    return _spread(divisors(share))


def _spread(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes that differ enough to be worth trying; all where they are few. The ends stay."""
    if len(sizes) <= MANY_SIZES:
        return sizes
    kept = [sizes[0]]
    for size in sizes[1:]:
        if size <= kept[-1] * NEXT_SIZE or size == sizes[-1]:
            kept.append(size)
    return tuple(kept)


def divisors(number: int) -> tuple[int, ...]:
    """Every divisor, largest first; takes as many steps as the square root."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return tuple(sorted({*small, *(number // n for n in small)}, reverse=True))


def _product(effective: int, micro: int, accumulation: int, devices: int) -> str:
    product = micro * accumulation * devices
    return (
        f"{micro} per device × {accumulation} accumulation × {counted(devices, 'device')} "
        f"is {product}, "
        f"not effective_batch_size {effective}: leave one of them to the planner"
    )
