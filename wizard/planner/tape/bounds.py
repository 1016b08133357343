"""The least a step can need, without running it: what rules a setup out for the price of sums."""

from __future__ import annotations

from wizard.planner.tape.layers import other_bytes
from wizard.planner.tape.operations import HALF
from wizard.planner.tape.setup import MATRICES, Setup
from wizard.planner.tape.sharding import gathered, share
from wizard.planner.tape.states import states
from wizard.planner.tape.step import HEAD


def at_least(setup: Setup) -> int:
    """Bytes no more than `simulate(setup)` finds: states, and what the layers keep for backward."""
    found = states(setup)
    held = share(setup, found)
    kept = held.weights + held.adapter + held.optimizer + held.reference + held.buckets
    forward = held.early + gathered(setup, found, HEAD, backward=False) + _kept(setup)
    return kept + found.inputs + max(forward, held.last + held.step)


def _kept(setup: Setup) -> int:
    """Least bytes all layers keep when the loss is reached: a frozen block in 16 bits."""
    block, stack = setup.block, setup.stack
    if setup.checkpointing or stack.fused_norm or stack.fused_rope or stack.fused_mlp:
        width = HALF if setup.fsdp else other_bytes(setup)
        return block.layers * setup.tokens * block.hidden * width
    queries, keys = block.heads * block.head_dim, block.kv_heads * block.head_dim
    # Inputs of matrices are kept where these learn; a frozen embedding needs no gradient.
    learning = setup.method == "full" or setup.lora_targets == MATRICES
    layers = block.layers if setup.method == "full" else block.layers - 1
    inputs = 4 * block.hidden + 2 * block.intermediate if learning else 0
    each = 8 * block.hidden + 4 * queries + 4 * keys + 6 * block.intermediate + inputs
    return layers * setup.tokens * each
