"""What public estimators would have said, from their published formulas: beside ours, not in it.

accelerate: `estimate_training_usage` of accelerate 1.15 (commands/estimate.py), float32 row.
DeepSpeed: `estimate_zero2_model_states_mem_needs`, `estimate_zero3_model_states_mem_needs` of
DeepSpeed 0.19 (runtime/zero). LLaMA-Factory: the hardware table of its README, per billion
parameters. Each is applied only where its authors say it applies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from wizard.planner.tape.setup import Block, Setup

GB = 10**9
TABLE_BYTES: Mapping[str, float] = {"mixed": 18, "full": 8, "lora": 2, "qlora": 0.5}
"""LLaMA-Factory: gigabytes for each billion parameters; `mixed` keeps float32 masters."""


def parameters(block: Block) -> int:
    """All parameters, tied weights once; biases and norms per head included."""
    attention, key_value = block.heads * block.head_dim, block.kv_heads * block.head_dim
    square = 2 * block.hidden * (attention + key_value)
    experts = block.experts * (3 * block.hidden * block.moe_intermediate + block.hidden)
    dense = 0 if block.experts else 3 * block.hidden * block.intermediate
    small = 2 * block.hidden + block.qkv_bias * (attention + 2 * key_value)
    small += block.qk_norm * 2 * block.head_dim
    embeddings = block.vocab * block.hidden * (1 if block.tied else 2)
    return block.layers * (square + dense + experts + small) + embeddings + block.hidden


def accelerate(setup: Setup) -> float:
    """Four times the float32 weights, whatever the method, batch and sharding."""
    return 4 * 4 * parameters(setup.block)


def deepspeed(setup: Setup) -> float | None:
    """Model states of ZeRO-2 or ZeRO-3 for full tuning; None for anything else."""
    if setup.method != "full":
        return None
    count, ranks = parameters(setup.block), setup.world_size
    if setup.strategy == "zero2":
        return 2 * count + (0 if setup.offload == "optimizer" else 18 * count / ranks)
    if setup.strategy != "zero3":
        return None
    largest = 4 * setup.block.vocab * setup.block.hidden
    if setup.offload == "parameters":
        return largest
    return largest + (2 if setup.offload == "optimizer" else 18) * count / ranks


def llama_factory(setup: Setup) -> float:
    """The table's rule for the method; on several ranks still the whole, as the table stands."""
    mixed = setup.weight_dtype == "float32" or setup.strategy in ("zero2", "zero3", "fsdp2")
    method = "mixed" if setup.method == "full" and mixed else setup.method
    return TABLE_BYTES[method] * parameters(setup.block) * GB / 10**9


BASELINES: Mapping[str, Callable[[Setup], float | None]] = {
    "accelerate estimate-memory": accelerate,
    "DeepSpeed estimator": deepspeed,
    "LLaMA-Factory table": llama_factory,
}
