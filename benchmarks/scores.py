"""Errors of predictions: signed percents, their median, ninetieth percentile and worst; tables."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence


def signed_percent(predicted: float, measured: float) -> float:
    """How far a prediction lies above what was measured."""
    return 100 * (predicted / measured - 1)


def percentile(values: Sequence[float], share: float) -> float:
    """Value below which that share lies, interpolated between the two nearest."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def summary(errors: Sequence[float]) -> dict[str, float | int | None]:
    """n, median and ninetieth percentile of the absolute errors, and the worst of them."""
    absolute = [abs(error) for error in errors]
    return {
        "n": len(absolute),
        "median_abs_pct": round(statistics.median(absolute), 3) if absolute else None,
        "p90_abs_pct": round(percentile(absolute, 0.9), 3) if absolute else None,
        "worst_pct": round(max(absolute), 3) if absolute else None,
    }


def share_percent(flags: Iterable[bool]) -> float | None:
    """Percent of the flags that are set; None when there are none."""
    known = list(flags)
    return round(100 * sum(known) / len(known), 2) if known else None


def line(name: str, errors: Sequence[float]) -> str:
    """A row of a table: n, signed median, absolute median, p90, worst, under-estimates."""
    if not errors:
        return f"| {name} | 0 | | | | | |"
    found = summary(errors)
    under = sum(error < 0 for error in errors)
    return (
        f"| {name} | {found['n']} | {statistics.median(errors):+.2f} | "
        f"{found['median_abs_pct']:.2f} | {found['p90_abs_pct']:.2f} | "
        f"{found['worst_pct']:.2f} | {under} |"
    )


HEADER = (
    "| rows | n | median signed % | median abs % | p90 abs % | worst abs % | under |\n"
    "|---|---|---|---|---|---|---|"
)
