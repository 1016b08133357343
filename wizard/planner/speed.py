"""Setup + a device's rates → seconds of an optimizer step, term by term, and which one limits.

A roofline: matrix products run at a share of the peak, everything else at a share of the memory
bandwidth, and no kernel starts faster than the host launches it. Collectives and transfers count
as far as the compute they may hide behind is too short. Three numbers were chosen on measured
rows, see `benchmarks/speed.py`: the matrix shares of Hopper and of consumer cards, and the launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wizard.facts import Device, Measured
from wizard.planner.tape.experts import expert_factors, expert_sizes
from wizard.planner.tape.layers import adapted, matrix_widths
from wizard.planner.tape.setup import DTYPE_BYTES, Setup

AMPERE, HOPPER, CONSUMER = "A100", "Hopper", "consumer"
MATRIX_SHARES: Mapping[str, float] = {AMPERE: 0.65, HOPPER: 0.50, CONSUMER: 0.85}
"""Of the peak that large bfloat16 products reach in training. The tables' figure of a consumer
card is already halved for float32 sums, so that it is nearer to what is reached."""
ATTENTION_SHARES: Mapping[str, float] = {AMPERE: 0.55, HOPPER: 0.35, CONSUMER: 0.55}
"""The same for attention, where only the half that causality leaves is counted: from the figures
of the FlashAttention-2 paper, forward and backward together."""
BANDWIDTH_SHARE = 0.80
"""Of the memory bandwidth that element-wise kernels reach."""
LAUNCH_SECONDS = 15e-6
"""From one kernel to the next when Python, not the device, sets the pace."""
HIDDEN_SHARE = 0.80
"""Of the compute that may overlap a collective that does."""
HOST_LINK_BYTES_PER_SECOND = 22e9
"""PCIe 4 from pinned memory."""
DISK_BYTES_PER_SECOND = 3e9
"""An NVMe disk; `probe --bench` measures this one."""
CPU_ADAM_PARAMETERS_PER_SECOND = 4e9
"""DeepSpeed's on a host of two sockets; `probe --bench` measures this one."""

NF4_BYTES = 0.516
BACKWARD_ATTENTION = 2.5
"""Flash attention's backward over its forward, in operations."""
LAYER_KERNELS = 36
"""Kernels of a layer's forward in plain PyTorch; fused ones save about two thirds."""
ADAPTER_KERNELS = 7
"""A LoRA pair adds: two products, two casts, a scale, an addition, a dropout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What a device attains, not what its data sheet promises."""

    matrix_flops_per_second: float
    attention_flops_per_second: float
    memory_bytes_per_second: float
    link_bytes_per_second: float | None = None
    """Of collectives among the ranks; None when it is unknown."""
    host_link_bytes_per_second: float = HOST_LINK_BYTES_PER_SECOND
    cpu_adam_parameters_per_second: float = CPU_ADAM_PARAMETERS_PER_SECOND
    disk_bytes_per_second: float = DISK_BYTES_PER_SECOND


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTime:
    """One optimizer step of one rank."""

    seconds: float
    terms: tuple[tuple[str, float], ...]
    """Seconds of each; they sum to `seconds`."""
    tokens_per_second: float
    """Of one rank, padding included."""

    @property
    def limited_by(self) -> str:
        """The largest term."""
        return max(self.terms, key=lambda term: term[1])[0]


def rates_of(
    device: Device, *, measured: Measured | None = None, link_gbs: float | None = None
) -> Rates | None:
    """Rates of a device, measured ones first; None when a needed one is unknown."""
    kind = _generation(device)
    matrix = measured.matmul_tflops if measured else None
    memory = measured.memory_gbs if measured else None
    if matrix is None and device.bf16_tflops:
        matrix = device.bf16_tflops * MATRIX_SHARES[kind]
    if memory is None and device.memory_bandwidth_gbs:
        memory = device.memory_bandwidth_gbs * BANDWIDTH_SHARE
    if not matrix or not memory:
        return None
    host = measured.host_to_device_gbs if measured else None
    adam = measured.cpu_adam_parameters_per_second if measured else None
    return Rates(
        matrix_flops_per_second=matrix * 1e12,
        attention_flops_per_second=matrix * 1e12 * ATTENTION_SHARES[kind] / MATRIX_SHARES[kind],
        memory_bytes_per_second=memory * 1e9,
        link_bytes_per_second=None if link_gbs is None else link_gbs * 1e9,
        host_link_bytes_per_second=host * 1e9 if host else HOST_LINK_BYTES_PER_SECOND,
        cpu_adam_parameters_per_second=adam or CPU_ADAM_PARAMETERS_PER_SECOND,
    )


def _generation(device: Device) -> str:
    """Which of the shares a device has; newer ones than Hopper have Hopper's until measured."""
    capability = device.compute_capability or (0, 0)
    if (9, 0) <= capability < (12, 0):
        return HOPPER
    return AMPERE if capability == (8, 0) else CONSUMER


def step_time(
    setup: Setup, rates: Rates | None, *, micro_steps: int = 1, to_disk: bool = False
) -> StepTime | None:
    """Seconds of an optimizer step; None when the device, or the link it needs, is unknown.

    What is offloaded waits in host memory, or `to_disk`.
    """
    if rates is None or (_collective_bytes(setup, 1) and rates.link_bytes_per_second is None):
        return None
    micro = _micro_terms(setup, rates)
    compute = sum(micro.values())
    terms = {name: seconds * micro_steps for name, seconds in micro.items()}
    terms["optimizer"] = _optimizer_seconds(setup, rates)
    terms["communication"] = _exposed_seconds(setup, rates, compute, micro_steps)
    terms["offload"] = _offload_seconds(setup, rates, micro_steps)
    terms["disk"] = _disk_seconds(setup, rates, micro_steps) if to_disk else 0.0
    seconds = sum(terms.values())
    return StepTime(
        seconds=seconds,
        terms=tuple((name, value) for name, value in terms.items() if value),
        tokens_per_second=setup.tokens * micro_steps / seconds,
    )


def _micro_terms(setup: Setup, rates: Rates) -> dict[str, float]:
    """Forward and backward of one micro-batch."""
    flops, memory = rates.matrix_flops_per_second, rates.memory_bytes_per_second
    streamed = _weight_bytes(setup) * _passes(setup) / memory
    terms = {
        "matrix products": max(_matrix_flops(setup) / flops, streamed),
        "adapters": _adapter_flops(setup) / flops + _adapter_bytes(setup) / memory,
        "attention": _attention_flops(setup) / rates.attention_flops_per_second
        + _score_bytes(setup) / memory,
        "element-wise kernels": _elementwise_bytes(setup) / memory,
        "4-bit unpacking": _unpacked_bytes(setup) / memory,
        "loss head": _head_flops(setup) / flops + _head_bytes(setup) / memory,
    }
    launches = _kernels(setup) * LAUNCH_SECONDS
    return {**terms, "kernel launches": max(0.0, launches - sum(terms.values()))}


def _full(setup: Setup) -> bool:
    return setup.method == "full"


def _passes(setup: Setup) -> float:
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


def _weight_bytes(setup: Setup) -> float:
    return _layers_parameters(setup) * 2


def _matrix_flops(setup: Setup) -> float:
    active = setup.block.layers * _layer_parameters(setup, _active_mlp(setup))
    return 2 * active * setup.tokens * _passes(setup)


def _attention_flops(setup: Setup) -> float:
    """Scores and values; a mask, or plain PyTorch, costs the half that causality would save."""
    seen = setup.length if setup.padded or setup.attention == "eager" else setup.length / 2
    forward = 4 * _widths(setup)[0] * seen * setup.tokens * setup.block.layers
    return forward * (1 + BACKWARD_ATTENTION + _again(setup))


def _score_bytes(setup: Setup) -> float:
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
    return 6 * experts * setup.block.layers * _passes(setup)


def _adapter_flops(setup: Setup) -> float:
    return 2 * _adapter_parameters(setup) * setup.tokens * (3 + _again(setup))


def _adapter_bytes(setup: Setup) -> float:
    """Casts of inputs where adapters are float32, scaling and adding of outputs."""
    stack = setup.stack
    copied = stack.adapter_dtype == "float32" and (stack.adapter_input_cast or not stack.autocast)
    each = 10 if copied else 5
    elements = setup.block.layers * _adapter_widths(setup) * setup.tokens
    return elements * each * (2 + _again(setup)) + _merged_bytes(setup)


def _elementwise_bytes(setup: Setup) -> float:
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


def _unpacked_bytes(setup: Setup) -> float:
    """A 4-bit weight is read and written as bfloat16 before each of its uses."""
    if setup.method != "qlora":
        return 0.0
    return _packed_parameters(setup) * (NF4_BYTES + 2) * _passes(setup)


def _scored_tokens(setup: Setup) -> float:
    chunked = setup.stack.loss_head == "chunked"
    return setup.tokens * (setup.scored_fraction if chunked else 1.0)


def _head_flops(setup: Setup) -> float:
    """Logits forward and backward; a head in tiles computes them again."""
    if setup.scores:
        return 0.0
    uses = setup.further_passes + 2 + _full(setup) + (setup.stack.loss_head == "chunked")
    return 2 * _head_parameters(setup) * uses * _scored_tokens(setup)


def _head_bytes(setup: Setup) -> float:
    """Traffic of a logit: float32 copies and their gradients, or tiles that stay small."""
    stack = setup.stack
    if setup.scores:
        return 0.0
    each = 12 if stack.loss_head in ("chunked", "fused") else 24 if stack.kernel_loss else 36
    each += 16 if stack.loss_head in ("full_shifted", "full_upcast") else 0
    return each * setup.block.vocab * _scored_tokens(setup)


def _kernels(setup: Setup) -> float:
    fused = sum((setup.stack.fused_norm, setup.stack.fused_rope, setup.stack.fused_mlp))
    layer = LAYER_KERNELS * (1 - 0.22 * fused)
    adapters = 0 if _full(setup) else ADAPTER_KERNELS * len(setup.lora_targets)
    return setup.block.layers * (layer + adapters) * (3 + _again(setup))


def _trained(setup: Setup) -> int:
    return _parameters(setup) if _full(setup) else _adapter_parameters(setup)


def _shards(setup: Setup) -> int:
    return 1 if setup.strategy in ("single", "ddp") else setup.world_size


def _optimizer_seconds(setup: Setup, rates: Rates) -> float:
    """Weights, gradients and states read and written once; foreach passes over them thrice."""
    if setup.offload != "none":
        return 0.0
    sharded = setup.strategy not in ("single", "ddp")
    wide = sharded or DTYPE_BYTES[_trained_dtype(setup)] == 4
    each = 28 if wide else 14
    if setup.stack.optimizer == "adamw_foreach":
        each *= 3
    elif setup.stack.optimizer in ("adamw_8bit", "adamw_paged_8bit"):
        each = 10
    return each * _trained(setup) / _shards(setup) / rates.memory_bytes_per_second


def _trained_dtype(setup: Setup) -> str:
    return setup.weight_dtype if _full(setup) else setup.stack.adapter_dtype


def _base_bytes(setup: Setup) -> float:
    """Weights that travel where each rank holds a part: 4-bit ones travel packed."""
    packed = _packed_parameters(setup) if setup.method == "qlora" else 0
    return packed * NF4_BYTES + (_parameters(setup) - packed) * 2


def _collective_bytes(setup: Setup, micro_steps: int) -> float:
    """Bytes a rank sends in a step."""
    ranks = setup.world_size
    if ranks == 1:
        return 0.0
    share = (ranks - 1) / ranks
    gradients = 2 * _trained(setup)
    if setup.strategy in ("single", "ddp"):
        return 2 * share * gradients
    if setup.strategy in ("zero1", "zero2"):
        reductions = micro_steps if setup.strategy == "zero2" else 1
        return share * gradients * (reductions + 1)
    return micro_steps * share * (2 * _base_bytes(setup) + gradients)


def _exposed_seconds(setup: Setup, rates: Rates, micro_seconds: float, micro_steps: int) -> float:
    """What of the collectives no compute hides."""
    sent = _collective_bytes(setup, micro_steps)
    if not sent or rates.link_bytes_per_second is None:
        return 0.0
    seconds = sent / rates.link_bytes_per_second
    backward = micro_seconds * 2 / 3
    behind = {
        "ddp": backward,
        "zero1": 0.0,
        "zero2": backward * micro_steps,
    }.get(setup.strategy, micro_seconds * micro_steps)
    return max(0.0, seconds - HIDDEN_SHARE * behind)


def _offload_seconds(setup: Setup, rates: Rates, micro_steps: int) -> float:
    """Gradients down, the CPU's step, weights up; parameters that wait on the host come twice."""
    if setup.offload == "none":
        return 0.0
    own = _trained(setup) / _shards(setup)
    moved = 4 * own
    if setup.offload == "parameters":
        moved += 2 * _base_bytes(setup) / _shards(setup) * micro_steps
    adam = _trained(setup) / rates.cpu_adam_parameters_per_second
    return moved / rates.host_link_bytes_per_second + adam


def _disk_seconds(setup: Setup, rates: Rates, micro_steps: int) -> float:
    """States are read and written in each step, weights read in each pass, by all ranks at once."""
    states = 2 * 12 * _trained(setup)
    weights = 2 * _base_bytes(setup) * micro_steps if setup.offload == "parameters" else 0
    return (states + weights) / rates.disk_bytes_per_second
