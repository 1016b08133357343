"""The caching allocator run on the step's tape: what it holds from the device at its peak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
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
    trained_tensors,
    weight_tensors,
)
from wizard.planner.tape.step import BACKWARD, FORWARD, HEAD, MIDDLE, own_recording, run

STEPS = 2
"""The optimizer's states come with the first step, so the second is like all that follow."""
PASSES = (FORWARD, BACKWARD)


@lru_cache(maxsize=256)
def reserve(setup: Setup, lengths: tuple[int, ...] = ()) -> Interval:
    """Bytes the allocator holds: with its default settings, and with expandable segments.

    The lower and the higher of the two; sharded states count as one block each. `lengths` are
    those of successive steps, all of `setup.length` where none are given: what a short step leaves
    behind in pieces is of no use to a long one.
    """
    peaks = [reserved(setup, lengths, expandable=expandable) for expandable in (False, True)]
    return Interval(low=min(peaks), high=max(peaks))


def reserved(setup: Setup, lengths: tuple[int, ...] = (), *, expandable: bool = False) -> int:
    """Bytes the allocator holds at its peak, with its default settings or expandable segments."""
    steps = [_tapes(replace(setup, length=one)) for one in lengths or (setup.length,) * STEPS]
    found = states(setup)
    held = share(setup, found)
    return _peak(Allocator(expandable=expandable), setup, found, held, steps)


@lru_cache(maxsize=256)
def at_loss(setup: Setup) -> tuple[int, int]:
    """(held, in use) bytes of the default allocator when the loss peaks in the first step.

    It is the first time that all logits are there, and no optimizer's states are.
    """
    found = states(setup)
    held, tape = share(setup, found), _tapes(setup)[0]
    allocator = Allocator(expandable=False)
    for size in filter(None, _loaded(setup, found, held)):
        allocator.take(size)
    peaks = tape.peaks()
    _play(allocator, tape, tape.story[: max(peaks[part + HEAD] for part in PASSES)], {})
    return allocator.reserved, allocator.peak_allocated


def _tapes(setup: Setup) -> tuple[Meter, ...]:
    """The micro-batches of a step that differ: the first makes gradients, a later one adds."""
    if not _keeps_gradients(setup):
        return (_tape(own_recording(setup)),)
    first = _tape(own_recording(replace(setup, accumulates=False)))
    return (first, _tape(own_recording(setup))) if setup.accumulates else (first,)


_tape = lru_cache(maxsize=64)(run)


def _keeps_gradients(setup: Setup) -> bool:
    """Whether gradients are made by the tape, and lie among what it makes until the step."""
    return not own_recording(replace(setup, accumulates=False)).accumulates


def _peak(
    allocator: Allocator,
    setup: Setup,
    found: States,
    held: Share,
    steps: Sequence[tuple[Meter, ...]],
) -> int:
    for size in filter(None, _loaded(setup, found, held)):
        allocator.take(size)
    for step, tapes in enumerate(steps):
        left = [_micro_batch(allocator, tape, held.transit) for tape in tapes]
        if step == 0:
            for size in filter(None, _optimizer(setup, found, held)):
                allocator.take(size)
        temporary = [(allocator.take(size), size) for size in _temporary(setup, found, held)]
        for block, size in temporary:
            allocator.give_back(block, size)
        for tape, blocks in zip(tapes, left, strict=True):
            _play(allocator, tape, tape.story[tape.backward_ends :], blocks)
    return allocator.peak_reserved


def _micro_batch(allocator: Allocator, tape: Meter, transit: int) -> dict[int, Block]:
    """Forward and backward, with the copies of gradients that are there in backward only."""
    blocks = _play(allocator, tape, tape.story[: tape.forward_ends], {})
    buckets = allocator.take(transit) if transit else None
    _play(allocator, tape, tape.story[tape.forward_ends : tape.backward_ends], blocks)
    if buckets is not None:
        allocator.give_back(buckets, transit)
    return blocks


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
    yield from (held.reference, held.buckets)
    yield 0 if _keeps_gradients(setup) else max(held.early, held.late)
    yield gathered(setup, found, MIDDLE, backward=True)
    yield from [8 * setup.tokens] * 3


def _optimizer(setup: Setup, found: States, held: Share) -> Iterator[int]:
    if held.optimizer == found.optimizer:
        yield from _each(optimizer_tensors(setup))
    else:
        yield held.optimizer


def _temporary(setup: Setup, found: States, held: Share) -> Iterator[int]:
    """What the optimizer's step makes: AdamW over all tensors at once makes copies of each."""
    if held.step and held.step == found.step and setup.stack.optimizer == "adamw_foreach":
        for _ in range(setup.stack.step_copies):
            yield from _each(trained_tensors(setup))
    elif held.step:
        yield held.step


def _each(tensors: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Sizes layer by layer, as a model's parameters come."""
    groups = list(tensors)
    for layer in range(max((copies for _, copies in groups), default=0)):
        yield from (size for size, copies in groups if layer < copies)
