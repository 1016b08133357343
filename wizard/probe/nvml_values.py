"""Checks of raw values: each gives a value of its type within sense, or None."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from wizard.facts import DeviceProcess

MOST_BYTES = 2**50
"""A counter that has run over prints more than any device holds."""
MOST_TEXT = 200
COMPUTE_MODES = ("default", "exclusive_thread", "prohibited", "exclusive_process")
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "slowest of a group",
    0x20: "heat",
    0x40: "heat",
    0x80: "power brake",
}
"""Bits that hold a clock down; idle and clocks set by the user are none."""


def whole(value: object, low: int, high: int) -> int | None:
    """A whole number within limits; anything else is unknown."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if low <= value <= high else None


def between(low: int, high: int) -> Callable[[Any], int | None]:
    """A check for a whole number within limits."""
    return lambda value: whole(value, low, high)


def amount(high: float) -> Callable[[Any], float | None]:
    """A finite number from 0 up to a limit."""

    def check(value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value) if math.isfinite(value) and 0 <= value <= high else None

    return check


def words(value: object) -> str | None:
    """Text without control characters; None when nothing is left."""
    if not isinstance(value, str):
        return None
    kept = "".join(character for character in value if character.isprintable())
    return kept.strip()[:MOST_TEXT] or None


def pci_id(value: object) -> str | None:
    """A PCI address with eight digits of domain, in capitals: `00000000:3B:00.0`."""
    found = re.fullmatch(
        r"(?:([0-9A-F]{1,8}):)?([0-9A-F]{2}):([0-9A-F]{2})\.([0-9A-F])",
        value.strip().upper() if isinstance(value, str) else "",
    )
    if found is None:
        return None
    domain, bus, device, function = found.groups(default="0")
    return f"{int(domain, 16):08X}:{bus}:{device}.{function}"


def cuda_version(value: object) -> str | None:
    """`12.4` for 12040."""
    number = whole(value, 1000, 999_999)
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"


def capability(value: object) -> tuple[int, int] | None:
    """A compute capability from [major, minor]."""
    if not isinstance(value, list) or len(value) != 2:
        return None
    major, minor = whole(value[0], 1, 99), whole(value[1], 0, 9)
    return None if major is None or minor is None else (major, minor)


def memory(value: object) -> dict[str, int | None] | None:
    """{"total", "free", "used", "reserved"}; None without a total: zero is no memory."""
    if not isinstance(value, dict):
        return None
    total = whole(value.get("total"), 1, MOST_BYTES)
    if total is None:
        return None
    parts = {name: whole(value.get(name), 0, total) for name in ("free", "used", "reserved")}
    return {"total": total, **parts}


def _numbers(value: object, high: int) -> list[int] | None:
    if not isinstance(value, list):
        return None
    checked = [whole(one, 0, high) for one in value]
    return None if None in checked else sorted({one for one in checked if one is not None})


def first_node(value: object) -> int | None:
    """The lowest of the NUMA nodes near a device."""
    nodes = _numbers(value, 4095)
    return nodes[0] if nodes else None


def core_list(value: object) -> str | None:
    """Cores as `0-15,32-47`; None for none, which is what a closed cpuset shows."""
    cores = _numbers(value, 65535)
    if not cores:
        return None
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1][1:] = [core]
        else:
            runs.append([core])
    return ",".join("-".join(map(str, run)) for run in runs)


def rows(value: object) -> list[int] | None:
    """Correctable and uncorrectable rows, whether one waits, whether one failed."""
    if not isinstance(value, list) or len(value) != 4:
        return None
    checked = [whole(one, 0, 2**32 - 1) for one in value]
    return None if None in checked else [one or 0 for one in checked]


def throttles(value: object) -> tuple[str, ...] | None:
    """What holds a clock down, from the bits that say so."""
    bits = whole(value, 0, 2**64 - 1)
    if bits is None:
        return None
    return tuple(dict.fromkeys(name for bit, name in THROTTLES.items() if bits & bit))


def mode(value: object) -> str | None:
    """A compute mode by its number."""
    position = whole(value, 0, len(COMPUTE_MODES) - 1)
    return None if position is None else COMPUTE_MODES[position]


def switch(value: object) -> bool | None:
    """1 is on, 0 is off."""
    position = whole(value, 0, 1)
    return None if position is None else bool(position)


def processes(value: object) -> tuple[DeviceProcess, ...] | None:
    """Processes with their memory; those without a sensible pid are skipped."""
    if not isinstance(value, list):
        return None
    return tuple(
        DeviceProcess(
            pid=pid,
            name=words(one.get("name")),
            memory_bytes=whole(one.get("memory_bytes"), 0, MOST_BYTES),
        )
        for one in value
        if isinstance(one, dict) and (pid := whole(one.get("pid"), 1, 2**32 - 1)) is not None
    )
