"""How far the planner's memory lies from what public sources measured, and from the estimators.

Run: python benchmarks/memory.py [--points FILE.csv] [--json OUT] [--rows] [--skipped]. FILE has
the columns of benchmarks/points/memory_measured.csv, which is the default. Allocated rows are
compared with allocated bytes, reserved rows with the simulated allocator's, device-level rows with
the interval. Nothing is fitted to the rows.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import rows, scores
from benchmarks.baselines import BASELINES
from benchmarks.rows import KINDS, Kind, Row
from benchmarks.stacks import SkipRowError, context_of
from wizard.facts import GIB
from wizard.planner.tape import device, reserve, reserved, simulate
from wizard.planner.tape.device import CONTEXT
from wizard.planner.tape.setup import Interval, Setup, UnknownStepError


@dataclass(frozen=True, kw_only=True, slots=True)
class Need:
    """What the planner says one rank needs, in bytes."""

    allocated: int
    reserved: Interval
    """From the least to the most that either allocator, or an order of the rows, leads to."""
    expected: int
    """Reserved by the default allocator, which every source used; of several orders the median."""
    device: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A row with its prediction."""

    row: Row
    setup: Setup
    need: Need

    @property
    def measured(self) -> dict[Kind, int]:
        """Bytes of each kind that the source gives."""
        found: dict[Kind, int] = {}
        if self.row["outcome"] == "ok":
            found[rows.kind_of(self.row)] = round(float(self.row["mem_gib"]) * GIB)
            if self.row["mem_nvidia_smi_gib"]:
                found["device"] = round(float(self.row["mem_nvidia_smi_gib"]) * GIB)
        return found

    @property
    def predicted(self) -> dict[Kind, int]:
        """Bytes of each kind; of the device level the upper bound, which decides what fits."""
        return {
            "allocated": self.need.allocated,
            "active": self.need.allocated,
            "reserved": self.need.expected,
            "device": self.need.device.high,
        }

    def error(self, kind: Kind) -> float:
        """Signed percent."""
        return scores.signed_percent(self.predicted[kind], self.measured[kind])


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """All rows of a file: those with a prediction, and the others with their reason."""

    points: tuple[Point, ...]
    skipped: tuple[tuple[str, str], ...]
    """(row, reason)."""


@lru_cache(maxsize=1024)
def need_of(
    setup: Setup, orders: tuple[tuple[int, ...], ...] = (), context: Interval = CONTEXT
) -> Need:
    """The planner's numbers of a step; what is reserved after steps of lengths in these orders."""
    equal = reserve(setup)
    found = [reserved(setup, lengths) for lengths in orders or ((),)]
    return Need(
        allocated=simulate(setup).allocated_peak_bytes,
        reserved=Interval(low=min(equal.low, *found), high=max(equal.high, *found)),
        expected=sorted(found)[len(found) // 2],
        device=device(setup, context=context),
    )


def score(table: Iterable[Row]) -> Scored:
    """Predictions of all rows that can be simulated."""
    known = rows.models()
    points, skipped = [], []
    for row in table:
        try:
            if row["outcome"] == "ok":
                rows.kind_of(row)
            setup = rows.setup_of(row, known)
            if setup.block.experts:
                # They were a list of modules, passed one after the other, before transformers 5.
                raise SkipRowError("routed experts of older libraries are not simulated")
            need = need_of(setup, rows.orders_of(row, setup), context_of(row))
            points.append(Point(row=row, setup=setup, need=need))
        except (SkipRowError, UnknownStepError) as error:
            skipped.append((row["id"], str(error)))
    return Scored(points=tuple(points), skipped=tuple(skipped))


def errors(points: Sequence[Point], kind: Kind) -> list[float]:
    """Signed percents of the points that were measured so."""
    return [point.error(kind) for point in points if kind in point.measured]


def decisions(points: Sequence[Point]) -> list[bool]:
    """For each row of a known device: whether the planner would have said rightly that it fits."""
    found = []
    for point in points:
        capacity = rows.capacity_bytes(point.row)
        if capacity is not None:
            fits = point.need.device.low <= capacity
            found.append(fits == (point.row["outcome"] == "ok"))
    return found


def reserved_inside(points: Sequence[Point]) -> list[bool]:
    """For each reserved row whether it lies between what allocators and orders of rows lead to."""
    return [
        point.need.reserved.low <= point.measured["reserved"] <= point.need.reserved.high
        for point in points
        if "reserved" in point.measured
    ]


def device_level(points: Sequence[Point]) -> dict[str, Any]:
    """Share of the device-level rows inside the interval, and of those above it."""
    inside, above = [], []
    for point in points:
        measured = point.measured.get("device")
        if measured is not None:
            inside.append(point.need.device.low <= measured <= point.need.device.high)
            above.append(measured > point.need.device.high)
    return {
        "n": len(inside),
        "covered_pct": scores.share_percent(inside),
        "under_pct": scores.share_percent(above),
    }


def report(scored: Scored) -> dict[str, Any]:
    """The published figures."""
    points = scored.points
    fit = decisions(points)
    return {
        "allocated": scores.summary(errors(points, "allocated")),
        "reserved": scores.summary(errors(points, "reserved")),
        "device": device_level(points),
        "fit": {"n": len(fit), "right_pct": scores.share_percent(fit)},
        "by_source": {
            source: by_kind(group) for source, group in grouped(points, GROUPS["source"]).items()
        },
        "skipped": {
            "n": len(scored.skipped),
            "why": dict(Counter(why for _, why in scored.skipped).most_common()),
        },
    }


def by_kind(points: Sequence[Point]) -> dict[str, Any]:
    """Figures of the kinds of memory that the points have."""
    found: dict[str, Any] = {
        kind: scores.summary(errors(points, kind))
        for kind in KINDS
        if kind != "device" and errors(points, kind)
    }
    level = device_level(points)
    return {**found, "device": level} if level["n"] else found


def grouped(
    points: Iterable[Point], key: Callable[[Point], str]
) -> Mapping[str, tuple[Point, ...]]:
    """Points by a property, in the order of its names."""
    groups: defaultdict[str, list[Point]] = defaultdict(list)
    for point in points:
        groups[key(point)].append(point)
    return {name: tuple(groups[name]) for name in sorted(groups)}


def plain(point: Point) -> bool:
    """Whether a row ran on Hugging Face's own layers, with no kernel of a third party."""
    stack = point.setup.stack
    fused = stack.fused_norm or stack.fused_rope or stack.loss_head == "fused"
    return not fused and point.row["source"].startswith(("foundation-model-stack", "modelscope"))


GROUPS: Mapping[str, Callable[[Point], str]] = {
    "source": lambda point: point.row["source"],
    "method": lambda point: point.row["method"],
    "strategy": lambda point: point.setup.strategy,
    "quantisation": lambda point: point.row["quantisation"] or "none",
    "loss head": lambda point: point.setup.stack.loss_head,
    "confidence": lambda point: point.row["confidence"],
}


def print_report(scored: Scored) -> None:
    """Tables for a reader."""
    points = scored.points
    high = [point for point in points if point.row["confidence"] == "high"]
    print(f"{len(points)} rows simulated, {len(scored.skipped)} skipped\n")
    print(scores.HEADER)
    print(scores.line("allocated, high confidence, plain Hugging Face",
                      errors([p for p in high if plain(p)], "allocated")))  # fmt: skip
    together = [
        error for kind in ("allocated", "active", "reserved") for error in errors(high, kind)
    ]
    print(scores.line("allocated and reserved, high confidence", together))
    for kind in KINDS:
        print(scores.line(f"{kind}, all", errors(points, kind)))
    for name, key in GROUPS.items():
        print_group(points, name, key)
    print_decisions(scored)
    print_baselines(points)
    print("\nSkipped:")
    for why, count in Counter(why for _, why in scored.skipped).most_common():
        print(f"  {count:4} {why}")


def print_group(points: Sequence[Point], name: str, key: Callable[[Point], str]) -> None:
    """Errors by a property of the rows, each kind of memory on a line of its own."""
    print(f"\nBy {name}\n\n{scores.HEADER}")
    for group, members in grouped(points, key).items():
        for kind in KINDS[:-1]:
            found = errors(members, kind)
            if found:
                print(scores.line(f"{group}, {kind}", found))


def print_decisions(scored: Scored) -> None:
    """Interval coverage, and whether rows would rightly have been called fitting."""
    inside = reserved_inside(scored.points)
    print(f"\nReserved rows between what allocators and orders of rows lead to: {sum(inside)}")
    print("\nDevice level against the interval\n")
    print("| rows | n | inside % | above its upper bound % |\n|---|---|---|---|")
    print_level("all", scored.points)
    for name in ("source", "loss head"):
        for group, members in grouped(scored.points, GROUPS[name]).items():
            print_level(group, members)
    fit = decisions(scored.points)
    failed = decisions([p for p in scored.points if p.row["outcome"] != "ok"])
    print(f"\nFit or out of memory: {len(fit)} rows, {scores.share_percent(fit)} % right")
    print(f"Of {len(failed)} that ran out of memory, {sum(failed)} are said not to fit")
    wrong = [p.row["id"] for p in scored.points if decisions([p]) == [False]]
    print(f"Wrong: {', '.join(wrong) or 'none'}")


def print_level(name: str, points: Sequence[Point]) -> None:
    """A line of the table of intervals; nothing for a group without such rows."""
    level = device_level(points)
    if level["n"]:
        print(f"| {name} | {level['n']} | {level['covered_pct']} | {level['under_pct']} |")


def print_baselines(points: Sequence[Point]) -> None:
    """Public estimators on the same allocated and reserved rows."""
    print(f"\nPublic estimators on the same rows, by their published formulas\n\n{scores.HEADER}")
    for name, baseline in BASELINES.items():
        found = [
            scores.signed_percent(said, measured)
            for point in points
            if (said := baseline(point.setup)) is not None
            for kind, measured in point.measured.items()
            if kind != "device"
        ]
        print(scores.line(name, found))


def print_rows(scored: Scored) -> None:
    """Each row with both numbers, worst first."""
    listed = [(p.error(k), k, p) for p in scored.points for k in p.measured if k != "device"]
    for error, kind, point in sorted(listed, key=lambda item: -abs(item[0])):
        said, was = point.predicted[kind] / GIB, point.measured[kind] / GIB
        print(f"{point.row['id']:<14} {kind:<9} {said:8.3f} {was:8.3f} GiB {error:+7.2f} %")


def main(arguments: Sequence[str] | None = None) -> None:
    """Score a file of rows; print, and write JSON where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=Path, default=rows.POINTS / "memory_measured.csv")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", action="store_true", help="list each row, worst first")
    parser.add_argument("--skipped", action="store_true", help="list each skipped row")
    options = parser.parse_args(arguments)
    scored = score(rows.read_like(options.points, "memory_measured.csv"))
    print_report(scored)
    if options.rows:
        print_rows(scored)
    if options.skipped:
        print("\n".join(f"{name:<14} {why}" for name, why in scored.skipped))
    if options.json:
        options.json.write_text(json.dumps(report(scored), indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
