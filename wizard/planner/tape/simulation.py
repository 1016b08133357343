"""Setup → live bytes of one rank at each moment of a step, and what they are at the worst one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from wizard.planner.tape.meter import ACTIVATIONS, KINDS
from wizard.planner.tape.setup import Setup, StepMemory
from wizard.planner.tape.sharding import Share, gathered, head_bytes, share, unpacked_fsdp2
from wizard.planner.tape.states import States, inputs, states
from wizard.planner.tape.step import (
    BACKWARD,
    EMBEDDING,
    FORWARD,
    HEAD,
    MIDDLE,
    REFERENCE,
    REGIONS,
    TOP,
    Recording,
    record,
)

STEP = "optimizer step"
MOMENTS = ("forward", "reference", "loss", "backward", "embedding gradient", STEP)
"""The moments of a step, in their order."""

Components = Mapping[str, int]


@lru_cache(maxsize=4096)
def simulate(setup: Setup) -> StepMemory:
    """Live tensors of one rank in a step, at each moment and at the worst one.

    Raises UnknownStepError where the block is none the tape knows.
    """
    peaks: dict[str, tuple[int, Components]] = {}
    for moment, components in _moments(setup):
        total = sum(components.values())
        if moment not in peaks or total > peaks[moment][0]:
            peaks[moment] = (total, components)
    worst = max(peaks, key=lambda moment: peaks[moment][0])
    return StepMemory(
        allocated_peak_bytes=peaks[worst][0],
        moment=worst,
        components=tuple((name, size) for name, size in peaks[worst][1].items() if size),
        moments=tuple((name, peaks[name][0]) for name in MOMENTS if name in peaks),
    )


def _moments(setup: Setup) -> Iterator[tuple[str, Components]]:
    """Every region of the step with what is there when it peaks."""
    recording = record(setup)
    found = states(setup)
    held = share(setup, found)
    for region in range(REGIONS):
        if recording.peak(region):
            yield _name(region), _components(setup, found, held, recording, region)
    if setup.strategy == "fsdp2":
        yield "forward", _unpacking(setup, found, held, recording)
    if setup.strategy == "fsdp2" and setup.method == "full":
        yield "loss", _after_head(setup, held, recording)
    yield STEP, _at_step(setup, held)


def _name(region: int) -> str:
    if REFERENCE <= region < BACKWARD:
        return "reference"
    if region in (FORWARD + HEAD, BACKWARD + HEAD):
        return "loss"
    if region == BACKWARD + EMBEDDING:
        return "embedding gradient"
    return "forward" if region < REFERENCE else "backward"


def _held(setup: Setup, held: Share) -> dict[str, int]:
    return {
        "weights": held.weights,
        "adapter": held.adapter,
        "optimizer": held.optimizer,
        "reference model": held.reference,
        "gradient buckets": held.buckets,
        "inputs": inputs(setup),
    }


def _components(
    setup: Setup, found: States, held: Share, recording: Recording, region: int
) -> Components:
    backward = region >= BACKWARD
    components = _held(setup, held)
    components["gradient buckets"] += held.transit if backward else 0
    components["gathered weights"] = gathered(setup, found, region % 5, backward=backward)
    components["gradients"] = _gradients(held, region)
    for kind, size in zip(KINDS, recording.by_kind[region], strict=True):
        components[kind] = components.get(kind, 0) + size
    return components


def _unpacking(setup: Setup, found: States, held: Share, recording: Recording) -> Components:
    """The last layer's weights when they are unpacked, beside what all before it keep."""
    kept = recording.by_kind[FORWARD + MIDDLE][ACTIVATIONS]
    now = {"gathered weights": unpacked_fsdp2(setup, found), "gradients": held.early}
    return {**_held(setup, held), **now, KINDS[ACTIVATIONS]: kept}


def _after_head(setup: Setup, held: Share, recording: Recording) -> Components:
    """Weights of the head, their gradient, and its copy on the way to the other ranks."""
    kept = recording.by_kind[BACKWARD + TOP][ACTIVATIONS]
    copies = 3 * head_bytes(setup)
    now = {"gathered weights": copies, "gradients": held.early, KINDS[ACTIVATIONS]: kept}
    return {**_held(setup, held), **now}


def _gradients(held: Share, region: int) -> int:
    """Sharded gradients that are there in a region of the step."""
    if region < BACKWARD or region == BACKWARD + HEAD:
        return held.early
    upper = region in (BACKWARD + TOP, BACKWARD + MIDDLE)
    return held.late if held.top is None or not upper else held.top


def _at_step(setup: Setup, held: Share) -> Components:
    return {**_held(setup, held), "gradients": held.last, STEP: held.step}
