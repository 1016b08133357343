"""Setup → what a step works: operations, bytes of memory traffic, kernels; whatever runs it."""

from __future__ import annotations

from wizard.planner.tape.experts import expert_factors, expert_sizes
from wizard.planner.tape.layers import adapted, matrix_widths
from wizard.planner.tape.setup import Setup

NF4_BYTES = 0.516
BACKWARD_ATTENTION = 2.5
"""Flash attention's backward over its forward, in operations."""
LAYER_KERNELS = 36
"""Kernels of a layer's forward in plain PyTorch; fused ones save about two thirds."""
ADAPTER_KERNELS = 7
"""A LoRA pair adds: two products, two casts, a scale, an addition, a dropout."""


def _full(setup: Setup) -> bool:
    return setup.method == "full"


def passes(setup: Setup) -> float:
    """Times a layer's weights are used: forward, backward, and what is computed again."""
    return 2 + _again(setup) + _full(setup)


def _again(setup: Setup) -> float:
    """Times a layer's forward runs beyond the first: computed again, and without gradients."""
    recomputed = 1 / setup.checkpoint_every if setup.checkpointing else 0.0
    return recomputed + setup.further_passes


def _widths(setup: Setup) -> tuple[int, int]:
    """Widths of all query heads and of all key heads."""
    block = setup.block
    return block.heads * block.head_dim, block.kv_heads * block.head_dim


def _active_mlp(setup: Setup) -> int:
    """Width of the MLP a token passes, its routed and shared experts together."""
    block = setup.block
    if not block.experts:
        return block.intermediate
    return block.experts_per_token * block.moe_intermediate + block.shared_intermediate


def _layer_parameters(setup: Setup, mlp: int) -> int:
    attention, key_value = _widths(setup)
    hidden = setup.block.hidden
    return 2 * hidden * (attention + key_value) + 3 * hidden * mlp + setup.block.experts * hidden


def _stored_mlp(setup: Setup) -> int:
    block = setup.block
    if not block.experts:
        return block.intermediate
    return block.experts * block.moe_intermediate + block.shared_intermediate


def _layers_parameters(setup: Setup) -> int:
    """Elements of all matrices of all layers."""
    return setup.block.layers * _layer_parameters(setup, _stored_mlp(setup))


def _packed_parameters(setup: Setup) -> int:
    """Elements that 4-bit formats take: all matrices of all layers but those of routed experts."""
    widths = matrix_widths(setup.block).values()
    return setup.block.layers * sum(width_in * width_out for width_in, width_out in widths)


def _head_parameters(setup: Setup) -> int:
    return setup.block.vocab * setup.block.hidden


def _parameters(setup: Setup) -> int:
    return _layers_parameters(setup) + _head_parameters(setup) * (2 - setup.block.tied)


def weight_bytes(setup: Setup) -> float:
    """All matrices of all layers, in 16 bits."""
    return _layers_parameters(setup) * 2


def matrix_flops(setup: Setup) -> float:
    """Products of the layers' matrices, in both directions."""
    active = setup.block.layers * _layer_parameters(setup, _active_mlp(setup))
    return 2 * active * setup.tokens * passes(setup)


def attention_flops(setup: Setup) -> float:
    """Scores and values; a mask, or plain PyTorch, costs the half that causality would save."""
    seen = setup.length if setup.padded or setup.attention == "eager" else setup.length / 2
    forward = 4 * _widths(setup)[0] * seen * setup.tokens * setup.block.layers
    return forward * (1 + BACKWARD_ATTENTION + _again(setup))


def score_bytes(setup: Setup) -> float:
    """Traffic of the scores, where attention writes them out: about 16 bytes a pass."""
    if setup.attention != "eager":
        return 0.0
    scores = setup.block.heads * setup.length * setup.tokens * setup.block.layers
    return scores * 16 * (2 + _again(setup))


def _adapter_widths(setup: Setup) -> int:
    """Inputs and outputs of a layer's adapted matrices, added up; of experts only shared ones."""
    block = setup.block
    attention, key_value = _widths(setup)
    mlp = block.shared_intermediate if block.experts else block.intermediate
    each = {
        "q": block.hidden + attention,
        "k": block.hidden + key_value,
        "v": block.hidden + key_value,
        "o": attention + block.hidden,
        "gate": block.hidden + mlp,
        "up": block.hidden + mlp,
        "down": mlp + block.hidden,
    }
    if _full(setup):
        return 0
    return sum(each.get(name, 0) for name in setup.lora_targets if adapted(setup, name))


def _adapter_parameters(setup: Setup) -> int:
    factors = [rows * columns for pair in expert_factors(setup) for rows, columns in pair]
    return setup.block.layers * (setup.lora_rank * _adapter_widths(setup) + sum(factors))


def _merged_bytes(setup: Setup) -> float:
    """Adapted experts are added to their adapters as a whole: read once, written twice a pass."""
    if not setup.adapts_experts:
        return 0.0
    experts = sum(rows * columns for rows, columns in expert_sizes(setup.block))
    return 6 * experts * setup.block.layers * passes(setup)


def adapter_flops(setup: Setup) -> float:
    """Products of all adapters, in both directions."""
    return 2 * _adapter_parameters(setup) * setup.tokens * (3 + _again(setup))


def adapter_bytes(setup: Setup) -> float:
    """Casts of inputs where adapters are float32, scaling and adding of outputs."""
    stack = setup.stack
    copied = stack.adapter_dtype == "float32" and (stack.adapter_input_cast or not stack.autocast)
    each = 10 if copied else 5
    elements = setup.block.layers * _adapter_widths(setup) * setup.tokens
    return elements * each * (2 + _again(setup)) + _merged_bytes(setup)


def elementwise_bytes(setup: Setup) -> float:
    """Norms, rotary embedding, SwiGLU, residuals: bytes read and written, per token and layer."""
    block, stack = setup.block, setup.stack
    attention, key_value = _widths(setup)
    mlp = _active_mlp(setup)
    norm = (4, 8) if stack.fused_norm else (36, 68)
    rotary = (4, 4) if stack.fused_rope else (20, 20)
    gated = (6, 10) if stack.fused_mlp else (10, 18)
    forward = (2 * norm[0] + 12) * block.hidden + rotary[0] * (attention + key_value)
    backward = (2 * norm[1] + 12) * block.hidden + rotary[1] * (attention + key_value)
    forward += gated[0] * mlp
    backward += gated[1] * mlp
    if _full(setup):
        backward += 8 * block.hidden
    per_token = forward * (1 + _again(setup)) + backward
    return per_token * block.layers * setup.tokens


def unpacked_bytes(setup: Setup) -> float:
    """A 4-bit weight is read and written as bfloat16 before each of its uses."""
    if setup.method != "qlora":
        return 0.0
    return _packed_parameters(setup) * (NF4_BYTES + 2) * passes(setup)


def _scored_tokens(setup: Setup) -> float:
    chunked = setup.stack.loss_head == "chunked"
    return setup.tokens * (setup.scored_fraction if chunked else 1.0)


def head_flops(setup: Setup) -> float:
    """Logits forward and backward; a head in tiles computes them again."""
    if setup.scores:
        return 0.0
    uses = setup.further_passes + 2 + _full(setup) + (setup.stack.loss_head == "chunked")
    return 2 * _head_parameters(setup) * uses * _scored_tokens(setup)


def head_bytes(setup: Setup) -> float:
    """Traffic of a logit: float32 copies and their gradients, or tiles that stay small."""
    stack = setup.stack
    if setup.scores:
        return 0.0
    each = 12 if stack.loss_head in ("chunked", "fused") else 24 if stack.kernel_loss else 36
    each += {"full_shifted": 16, "full_upcast": 16, "full_narrow": 8}.get(stack.loss_head, 0)
    return each * setup.block.vocab * _scored_tokens(setup)


def kernels(setup: Setup) -> float:
    """Kernels that the host launches in a micro-batch."""
    fused = sum((setup.stack.fused_norm, setup.stack.fused_rope, setup.stack.fused_mlp))
    layer = LAYER_KERNELS * (1 - 0.22 * fused)
    adapters = 0 if _full(setup) else ADAPTER_KERNELS * len(setup.lora_targets)
    return setup.block.layers * (layer + adapters) * (3 + _again(setup))


def trained(setup: Setup) -> int:
    """Elements that learn."""
    return _parameters(setup) if _full(setup) else _adapter_parameters(setup)


def shards(setup: Setup) -> int:
    """Ranks among which states are shared out."""
    return 1 if setup.strategy in ("single", "ddp") else setup.world_size


def trained_dtype(setup: Setup) -> str:
    """The number format of what learns."""
    return setup.weight_dtype if _full(setup) else setup.stack.adapter_dtype


def base_bytes(setup: Setup) -> float:
    """Weights that travel where each rank holds a part: 4-bit ones travel packed."""
    packed = _packed_parameters(setup) if setup.method == "qlora" else 0
    return packed * NF4_BYTES + (_parameters(setup) - packed) * 2
