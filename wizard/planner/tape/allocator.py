"""The caching allocator run on the step's tape: what it holds from the device at its peak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from wizard.planner.tape.blocks import Allocator, Block
from wizard.planner.tape.meter import Meter
from wizard.planner.tape.setup import Interval, Setup
from wizard.planner.tape.sharding import Share, gathered, share
from wizard.planner.tape.states import (
    States,
    adapter_tensors,
    optimizer_tensors,
    states,
    weight_tensors,
)
from wizard.planner.tape.step import MIDDLE, own_recording, run

STEPS = 2
"""The optimizer's states come with the first step, so the second is like all that follow."""


@lru_cache(maxsize=256)
def reserve(setup: Setup) -> Interval:
    """Bytes the allocator holds: with its default settings, and with expandable segments.

    The lower and the higher of the two; sharded states count as one block each.
    """
    meter = run(own_recording(setup))
    found = states(setup)
    held = share(setup, found)
    peaks = [
        _peak(Allocator(expandable=expandable), setup, found, held, meter)
        for expandable in (False, True)
    ]
    return Interval(low=min(peaks), high=max(peaks))


def _peak(allocator: Allocator, setup: Setup, found: States, held: Share, meter: Meter) -> int:
    for size in filter(None, _loaded(setup, found, held)):
        allocator.take(size)
    for step in range(STEPS):
        blocks = _play(allocator, meter, meter.story[: meter.backward_ends], {})
        if step == 0:
            for size in filter(None, _optimizer(setup, found, held)):
                allocator.take(size)
        temporary = allocator.take(held.step) if held.step else None
        if temporary is not None:
            allocator.give_back(temporary, held.step)
        _play(allocator, meter, meter.story[meter.backward_ends :], blocks)
    return allocator.peak_reserved


def _play(
    allocator: Allocator, meter: Meter, story: Sequence[int], blocks: dict[int, Block]
) -> dict[int, Block]:
    """Take and give back as the story says; what is left in use."""
    sizes = meter.sizes
    for event in story:
        if event < 0:
            size = sizes[~event]
            if size:
                allocator.give_back(blocks.pop(~event), size)
        elif sizes[event]:
            blocks[event] = allocator.take(sizes[event])
    return blocks


def _loaded(setup: Setup, found: States, held: Share) -> Iterator[int]:
    """Blocks that are there before the first step, in the order of loading."""
    if held.weights + held.adapter == found.weights + found.adapter:
        yield from _each(weight_tensors(setup))
        yield from _each(adapter_tensors(setup))
    else:
        yield from (held.weights, held.adapter)
    yield from (held.reference, held.buckets, max(held.early, held.late))
    yield gathered(setup, found, MIDDLE, backward=True)
    yield from [8 * setup.tokens] * 3


def _optimizer(setup: Setup, found: States, held: Share) -> Iterator[int]:
    if held.optimizer == found.optimizer:
        yield from _each(optimizer_tensors(setup))
    else:
        yield held.optimizer


def _each(tensors: Iterable[tuple[int, int]]) -> Iterator[int]:
    for size, copies in tensors:
        yield from [size] * copies
