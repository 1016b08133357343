"""A plan that does not fit → what would make it fit, each on its own, by closed formulas."""

from __future__ import annotations

import math
from dataclasses import replace

from engine.spec import Spec
from wizard.facts import Model
from wizard.plan import ON_DISK, Memory, Plan
from wizard.planner.budgets import DEVICE_SHARE, DISK_SHARE, HOST_SHARE
from wizard.planner.defaults import LENGTH_STEP
from wizard.planner.memory import least_bytes
from wizard.planner.tape.lifetime import LOADING
from wizard.wording import gib

SHARING = ("zero1", "zero2", "zero3", "fsdp", "layer_split")
MOST_DEVICES = 64
GROWS = frozenset({"activations", "layer workspace", "loss", "inputs"})
"""Parts that shrink with the length of rows."""
GIB = 1024**3


def with_ways_out(plan: Plan, model: Model) -> Plan:
    """The plan, and what would make it fit where it does not."""
    memory = plan.memory
    if memory.over_bytes <= 0:
        return plan
    if memory.over_where == ON_DISK:
        ways = [f"{gib(memory.disk_bytes / DISK_SHARE)} free on the disk of the runs"]
    elif memory.over_where != "per rank":
        ways = [f"{gib(memory.host_bytes / HOST_SHARE)} of free host memory"]
    else:
        ways = _on_devices(plan, model)
    return replace(plan, would_fit=tuple(ways))


def while_loading(memory: Memory) -> str:
    """Said after how much is missing, where the step itself needs less than loading does."""
    loads = memory.moment == LOADING and memory.over_where == "per rank"
    return "; while loading, when a rank holds more weights than later" if loads else ""


def _on_devices(plan: Plan, model: Model) -> list[str]:
    memory, parallel = plan.memory, plan.spec.parallel
    least = "at least " if memory.at_least else ""
    size = math.ceil(memory.device_bytes / DEVICE_SHARE / GIB)
    ways = [f"devices of {least}{size:,} GiB"] if parallel.device_kind != "cpu" else []
    more = _devices(plan, model)
    if more is not None:
        ways.append(f"about {more} such devices")
    shorter = _length(plan.spec, memory)
    if shorter is not None:
        ways.append(f"max_length={shorter} or less")
    return ways


def _devices(plan: Plan, model: Model) -> int | None:
    """The fewest devices, in doubles, over which the shared parts shrink by what is missing.

    What every rank has whole does not shrink, so often no number of devices helps.
    """
    parallel, memory = plan.spec.parallel, plan.memory
    if parallel.strategy not in SHARING or parallel.device_kind == "cpu":
        return None
    here = least_bytes(_on(plan.spec, parallel.num_devices), model)
    if here is None:
        return None
    devices = parallel.num_devices * 2
    while devices <= MOST_DEVICES:
        there = least_bytes(_on(plan.spec, devices), model)
        if there is not None and here - there >= memory.over_bytes:
            return devices
        devices *= 2
    return None


def _on(spec: Spec, devices: int) -> Spec:
    """The spec on more devices, with the smallest micro-batch."""
    each = devices if spec.parallel.strategy == "layer_split" else 1
    values = {"num_devices": devices, "devices_per_rank": each}
    parallel = spec.parallel.model_copy(update=values)
    training = spec.training.model_copy(
        update={"per_device_train_batch_size": 1, "gradient_accumulation_steps": 1}
    )
    return spec.model_copy(update={"parallel": parallel, "training": training})


def _length(spec: Spec, memory: Memory) -> int | None:
    """A length at which what grows with the tokens has shrunk by what is missing."""
    grows = sum(part.bytes for part in memory.parts if part.name in GROWS)
    if not grows or memory.at_least or spec.training.per_device_train_batch_size > 1:
        return None
    share = 1 - memory.over_bytes * 1.05 / grows
    shorter = math.floor(spec.data.max_length * share / LENGTH_STEP) * LENGTH_STEP
    return shorter if shorter >= LENGTH_STEP else None
