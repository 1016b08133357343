"""The fallback ladder: which rungs keep the optimizer's state, and which must start it anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.spec import ZERO_STAGES, Spec

REPLICATED = ("single", "ddp")
"""Strategies in which every rank holds the whole optimizer: their checkpoints are alike."""


def optimizer_form(spec: Spec) -> dict[str, Any]:
    """What decides how a checkpoint's optimizer state is laid out; equal forms resume exactly."""
    parallel = spec.parallel
    replicated = parallel.strategy in REPLICATED
    return {
        # The fused kind computes with the same state.
        "optim": spec.training.optim.removesuffix("_fused"),
        "strategy": "replicated" if replicated else parallel.strategy,
        "offload": parallel.offload,
        # FSDP shares its shards out anew; DeepSpeed's belong to as many ranks as made them.
        "ranks": parallel.ranks if parallel.strategy in ZERO_STAGES else None,
    }


def exact_rungs(main: Spec, rungs: Sequence[Spec]) -> int:
    """How many rungs in a row, from the first, go on with the optimizer's state as it is."""
    form = optimizer_form(main)
    for number, rung in enumerate(rungs):
        if optimizer_form(rung) != form:
            return number
    return len(rungs)
