"""The least a step can need, without running it: what rules a setup out for the price of sums."""

from __future__ import annotations

from functools import lru_cache

from wizard.planner.tape.layers import other_bytes
from wizard.planner.tape.operations import HALF
from wizard.planner.tape.setup import MATRICES, Setup
from wizard.planner.tape.sharding import gathered, share
from wizard.planner.tape.states import inputs, states
from wizard.planner.tape.step import HEAD


def at_least(setup: Setup) -> int:
    """Bytes no more than `simulate(setup)` finds: states, and what the layers keep for backward."""
    return sum(size for _, size in least_parts(setup))


@lru_cache(maxsize=4096)
def least_parts(setup: Setup) -> tuple[tuple[str, int], ...]:
    """(component, bytes) of `at_least(setup)`: at the loss, or at the optimizer's step."""
    found = states(setup)
    held = share(setup, found)
    always = (
        ("weights", held.weights),
        ("adapter", held.adapter),
        ("optimizer", held.optimizer),
        ("reference model", held.reference),
        ("gradient buckets", held.buckets),
        ("inputs", inputs(setup)),
    )
    forward = (
        ("gradients", held.early),
        ("gathered weights", gathered(setup, found, HEAD, backward=False)),
        ("activations", _kept(setup)),
    )
    step = (("gradients", held.last), ("optimizer step", held.step))
    return (*always, *max(forward, step, key=lambda parts: sum(size for _, size in parts)))


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
    inner = block.intermediate
    if block.experts:
        inner = block.experts_per_token * block.moe_intermediate + block.shared_intermediate
    learnt_from = 4 * block.hidden + 2 * inner if learning else 0
    each = 8 * block.hidden + 4 * queries + 4 * keys + 6 * inner + learnt_from
    return layers * setup.tokens * each
