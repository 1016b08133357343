"""The simulated step against traces of the real one: tensors to the byte, the allocator closely."""

from __future__ import annotations

from statistics import median

import pytest

from tests.tape import Traced, traced
from wizard.planner.tape import reserve, simulate
from wizard.planner.tape.bounds import at_least

GRID, HELD_OUT, FAMILIES = traced("grid"), traced("held-out"), traced("families")
ALLOCATOR_SAMPLE = GRID[::6]
"""The allocator at full depth takes a tenth of a second a step."""


def off(step: Traced) -> float:
    """Simulated over traced, in percent, beyond what printing the trace rounded away."""
    difference = abs(simulate(step.setup).allocated_peak_bytes - step.peak_bytes)
    return 100 * max(0, difference - step.rounding_bytes) / step.peak_bytes


def test_all_rounds_are_there() -> None:
    assert (len(GRID), len(HELD_OUT), len(FAMILIES)) == (52, 62, 10)


@pytest.mark.parametrize("steps", [GRID, HELD_OUT, FAMILIES], ids=["grid", "held-out", "families"])
def test_the_peak_is_the_traced_one(steps: list[Traced]) -> None:
    found = [off(step) for step in steps]
    print(f"median {median(found):.5f} %, worst {max(found):.4f} %")
    assert median(found) <= 0.01
    assert max(found) <= 0.3


@pytest.mark.wide
def test_the_allocator_holds_what_the_traced_one_holds() -> None:
    found = []
    for step in ALLOCATOR_SAMPLE:
        assert step.reserved_bytes is not None
        assert step.expandable_bytes is not None
        held = reserve(step.setup)
        low, high = sorted((step.reserved_bytes, step.expandable_bytes))
        found += [abs(held.low / low - 1), abs(held.high / high - 1)]
    assert median(found) <= 0.01
    assert max(found) <= 0.1


def test_no_step_needs_less_than_the_bound() -> None:
    for step in (*GRID, *HELD_OUT, *FAMILIES):
        assert at_least(step.setup) <= simulate(step.setup).allocated_peak_bytes
