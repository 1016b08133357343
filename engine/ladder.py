"""The fallback ladder: which rungs keep the optimizer's state, and which must start it anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.spec import ZERO_STAGES, Spec

REPLICATED = ("single", "ddp")
"""Strategies in which every rank holds the whole optimizer: their checkpoints are alike."""
ON_DISK = "on_disk"
"""Part of the form of an optimizer that waits on a disk."""


def optimizer_form(spec: Spec) -> dict[str, Any]:
    """What decides how a checkpoint's optimizer state is laid out; see `resumes_exactly`."""
    parallel = spec.parallel
    replicated = parallel.strategy in REPLICATED
    return {
        # The fused kind computes with the same state.
        "optim": spec.training.optim.removesuffix("_fused"),
        "strategy": "replicated" if replicated else parallel.strategy,
        "offload": parallel.offload,
        # FSDP shares its shards out anew; DeepSpeed's belong to as many ranks as made them.
        "ranks": parallel.ranks if parallel.strategy in ZERO_STAGES else None,
        **({ON_DISK: True} if parallel.offload_device == "nvme" else {}),
    }


def resumes_exactly(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether an optimizer of one form goes on with the state of another one's checkpoint.

    Not from a disk: DeepSpeed 0.19.8 loads no optimizer state there but the files it had swapped
    out, neither steps nor rates nor what it kept in memory, and says nothing of it.
    """
    return before == now and ON_DISK not in now


def exact_rungs(main: Spec, rungs: Sequence[Spec]) -> int:
    """How many rungs in a row, from the first, go on with the optimizer's state as it is."""
    form = optimizer_form(main)
    for number, rung in enumerate(rungs):
        if not resumes_exactly(form, optimizer_form(rung)):
            return number
    return len(rungs)
