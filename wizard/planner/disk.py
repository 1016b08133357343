"""Spec + model → bytes a run leaves on disk: its checkpoints and the model folder."""

from __future__ import annotations

from engine.spec import Spec
from wizard.facts import Model
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.tape.states import states

ZERO_STATE_BYTES = 12
"""A trainable element in DeepSpeed's ZeRO checkpoints: float32 copy and two moments."""


def disk_bytes(spec: Spec, model: Model) -> int | None:
    """Most bytes at once: the checkpoints kept, one more while it is written, and the result.

    None where the layers are not known. Prepared data and logs are left out.
    """
    shape = shape_of(model)
    setup = None if shape is None else setup_of(spec, model, shape)
    if setup is None:
        return None
    found = states(setup)
    trained = found.weights if spec.method.method == "full" else found.adapter
    sharded = spec.parallel.strategy.startswith("zero")
    optimizer = found.trainable * ZERO_STATE_BYTES if sharded else found.optimizer
    return (spec.training.save_total_limit + 1) * (trained + optimizer) + trained
