"""One field of an event, if it is what it should be: anything may stand in a stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

Event = Mapping[str, Any]

LEAST, MOST = -(2.0**63), 2.0**63
"""A number beyond these is damage."""


def number(event: Event, key: Any) -> float | None:
    """A finite number of a size that numbers of a run can have."""
    value = event.get(key)
    kind = type(value)
    if (kind is float or kind is int) and LEAST < value < MOST:  # type: ignore[operator]
        return value
    return None


def reading(event: Event, key: str) -> float | None:
    """A number that may be not finite: JSON has no nan, so that comes as its name."""
    value = event.get(key)
    return float(value) if value in ("nan", "inf", "-inf") else number(event, key)


def numbers(event: Event, keys: tuple[str, ...]) -> dict[str, Any]:
    """Those of the keys that hold a number, as `number` says; at once, for what is read often."""
    found: dict[str, Any] = {}
    take_numbers(event, keys, found)
    return found


def take_numbers(event: Event, keys: tuple[str, ...], into: dict[str, Any]) -> None:
    """Put those of the keys that hold a number where they are wanted."""
    get = event.get
    for key in keys:
        value = get(key)
        kind = type(value)
        if (kind is float or kind is int) and LEAST < value < MOST:  # type: ignore[operator]
            into[key] = value


def whole(event: Event, key: str) -> int | None:
    """A whole number that is not negative."""
    value = event.get(key)
    return value if type(value) is int and 0 <= value < 2**63 else None


def text(event: Event, key: str) -> str:
    """A text; empty for anything else."""
    value = event.get(key)
    return value if isinstance(value, str) else ""


def finite(value: float | None) -> float | None:
    """A reading that can be drawn."""
    return value if value is not None and math.isfinite(value) else None
