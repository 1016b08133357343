"""Moments outside of a step: loading the weights, evaluating, gathering them to be saved.

Sources: transformers/core_model_loading.py (tensors come one by one; a layer's experts are stacked
from parts; 4-bit matrices are packed from whole ones); deepspeed/runtime/engine.py
`_zero3_consolidated_16bit_state_dict`; torch/distributed/_state_dict_utils.py.
"""

from __future__ import annotations

from functools import lru_cache

from wizard.planner.tape.experts import expert_sizes
from wizard.planner.tape.layers import matrix_widths, other_bytes
from wizard.planner.tape.setup import DTYPE_BYTES, Setup
from wizard.planner.tape.sharding import gathered, share
from wizard.planner.tape.states import inputs, states
from wizard.planner.tape.step import FORWARD, HEAD, recorded_evaluation

LOADING, EVALUATION, SAVING = "loading", "evaluation", "saving"
SHARDED = ("zero3", "fsdp1", "fsdp2")
PARTS = 2
"""Copies of a layer's experts while they are stacked: gate and up apart, and joined."""


@lru_cache(maxsize=4096)
def loading(setup: Setup) -> int:
    """Bytes on a rank's device when most of the weights are there, and those just being made.

    FSDP shares 4-bit weights out only after each rank has loaded all of them.
    """
    found = states(setup)
    whole = setup.strategy not in SHARDED or (setup.fsdp and setup.method == "qlora")
    weights = found.weights if whole else share(setup, found).weights
    return weights + _being_made(setup)


def _being_made(setup: Setup) -> int:
    """A matrix that is packed into 4 bits, or a layer's experts, as parts and as a whole."""
    width, other = DTYPE_BYTES[setup.weight_dtype], other_bytes(setup)
    experts = [rows * columns for rows, columns in expert_sizes(setup.block)]
    stacked = PARTS * max(experts, default=0) * other
    if setup.method == "qlora":
        matrices = matrix_widths(setup.block).values()
        return max(stacked, *(width_in * width_out * width for width_in, width_out in matrices))
    if setup.strategy in SHARDED:
        return max(stacked, setup.block.vocab * setup.block.hidden * width)
    return stacked


@lru_cache(maxsize=256)
def evaluation(setup: Setup) -> int:
    """Bytes of a pass without gradients over a micro-batch of training's size.

    Raises UnknownStepError where the layers are none the tape knows.
    """
    found = states(setup)
    held = share(setup, found)
    always = (held.weights, held.adapter, held.optimizer, held.reference, held.buckets)
    passing = max(
        recorded_evaluation(setup)[region] + gathered(setup, found, region, backward=False)
        for region in range(FORWARD, HEAD + 1)
    )
    return sum(always) + inputs(setup) + passing


@lru_cache(maxsize=4096)
def saving(setup: Setup) -> int:
    """Bytes while shares are gathered, tensor by tensor, on their way to rank 0's host.

    What is frozen is not gathered, and the tensors of an adapter are small.
    """
    found = states(setup)
    held = share(setup, found)
    resting = held.weights + held.adapter + held.optimizer + held.reference + held.buckets
    if setup.strategy not in SHARDED or setup.method != "full":
        return resting
    width = 4 if setup.fsdp else DTYPE_BYTES[setup.weight_dtype]
    tensors = [setup.block.vocab * setup.block.hidden]
    tensors += [rows * columns for rows, columns in expert_sizes(setup.block)]
    tensors += [rows * columns for rows, columns in matrix_widths(setup.block).values()]
    return resting + max(tensors) * width
