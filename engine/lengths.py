"""Lengths of rows, kept as how many rows have each: percentiles and a histogram."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

SHARES: Mapping[str, int] = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
FIRST_EDGE = 128


def percentiles(counted: Mapping[int, int]) -> dict[str, int]:
    """Smallest, largest, and what a share of the rows does not exceed (nearest rank)."""
    ordered = sorted(counted)
    rows = sum(counted.values())

    def rank(share: int) -> int:
        wanted, seen = max(1, -(-rows * share // 100)), 0
        for length in ordered:
            seen += counted[length]
            if seen >= wanted:
                return length
        return ordered[-1]

    shares = {name: rank(share) for name, share in SHARES.items()}
    return {"min": ordered[0], **shares, "max": ordered[-1]}


def cut(counted: Mapping[int, int], max_length: int) -> Counter[int]:
    """The lengths that are left when longer rows are cut."""
    left: Counter[int] = Counter()
    for length, rows in counted.items():
        left[min(length, max_length)] += rows
    return left


def histogram(counted: Mapping[int, int]) -> list[dict[str, Any]]:
    """Rows between edges that double, `upto` included; empty without rows."""
    if not counted:
        return []
    bars, low, high = [], 0, FIRST_EDGE
    while low < max(counted):
        rows = sum(n for length, n in counted.items() if low < length <= high)
        bars.append({"over": low, "upto": high, "rows": rows})
        low, high = high, 2 * high
    return bars


def cut_at(counted: Mapping[int, int]) -> dict[str, int]:
    """Rows that each usual `max_length` would cut, up to the first that cuts none."""
    cuts: dict[str, int] = {}
    edge = FIRST_EDGE
    while counted:
        cuts[str(edge)] = sum(n for length, n in counted.items() if length > edge)
        if cuts[str(edge)] == 0:
            break
        edge *= 2
    return cuts
