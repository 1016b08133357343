"""A decoder's weights and the forward pass of one layer, full or with an adapter.

Sources: transformers/models/{llama,qwen2,qwen3,mistral,gemma2,gemma3}/modeling_*.py;
peft/tuners/lora/layer.py (float32 or bfloat16 adapters beside plain matrices) and lora/bnb.py
(beside 4-bit ones).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from wizard.planner.tape.attention import Heads, eager_attention, fused_attention, saving_result
from wizard.planner.tape.autograd import Tape, Tensor
from wizard.planner.tape.experts import Experts, make_experts, routed, scaled_rows
from wizard.planner.tape.gpt_oss import rms_norm_oss, rotary_halves, sink_attention
from wizard.planner.tape.normalisation import rms_norm, rms_norm_fused, rms_norm_gemma
from wizard.planner.tape.operations import (
    HALF,
    add,
    cast,
    clone,
    dropout,
    linear,
    multiply,
    rotary,
    rotary_fused,
    silu_multiply_fused,
    unary,
    unpacked_linear,
)
from wizard.planner.tape.phi3 import halves, part, rotary_joined
from wizard.planner.tape.setup import DTYPE_BYTES, MATRICES, Block, Setup

SHARED_GATE = "shared_expert_gate"
"""Qwen 2 MoE: how much each token takes of the shared experts."""


def matrix_widths(block: Block) -> dict[str, tuple[int, int]]:
    """(input, output) of each matrix of a layer; routed experts are none, shared ones are."""
    attention, key_value = block.heads * block.head_dim, block.kv_heads * block.head_dim
    hidden, intermediate = block.hidden, block.intermediate
    if block.family == "phi3":
        return {
            "qkv": (hidden, attention + 2 * key_value),
            "o": (attention, hidden),
            "gate_up": (hidden, 2 * intermediate),
            "down": (intermediate, hidden),
        }
    found = {
        "q": (hidden, attention),
        "k": (hidden, key_value),
        "v": (hidden, key_value),
        "o": (attention, hidden),
    }
    if block.experts:
        intermediate = block.shared_intermediate
    if intermediate:
        found["gate"] = found["up"] = (hidden, intermediate)
        found["down"] = (intermediate, hidden)
    if block.experts and intermediate:
        found[SHARED_GATE] = (hidden, 1)
    return found


def has_bias(block: Block, matrix: str) -> bool:
    """Whether this matrix of every layer has a bias."""
    return (block.qkv_bias and matrix in "qkv") or (block.output_bias and matrix == "o")


def adapted(setup: Setup, matrix: str) -> bool:
    """Whether an adapter is on this matrix of every layer."""
    if setup.adapts_experts and matrix in ("gate", "up", "down"):
        # These names are taken for the experts'.
        return False
    return setup.lora_targets == MATRICES or matrix in setup.lora_targets


def other_bytes(setup: Setup) -> int:
    """Bytes of an element of what is never quantised: embeddings, norms, biases."""
    return 4 if setup.stack.kbit_preparation else DTYPE_BYTES[setup.weight_dtype]


@dataclass(frozen=True, slots=True)
class Matrix:
    """One matrix of a layer with its bias and adapter."""

    width_in: int
    width_out: int
    weight: Tensor
    bias: Tensor | None
    adapter: tuple[Tensor, Tensor] | None


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights of one decoder layer."""

    matrices: dict[str, Matrix]
    norms: tuple[Tensor, ...]
    """Before attention and before the MLP; where there are four, then after either."""
    head_norms: tuple[Tensor, Tensor] | None
    sinks: Tensor | None
    """A score more per head (gpt-oss)."""
    experts: Experts | None
    masked: bool
    """Whether its attention is given a mask over all pairs of tokens."""

    def without_adapter(self) -> Layer:
        """The same layer with its adapter switched off."""
        plain = {
            name: Matrix(m.width_in, m.width_out, m.weight, m.bias, None)
            for name, m in self.matrices.items()
        }
        experts = None if self.experts is None else replace(self.experts, adapters=None)
        return replace(self, matrices=plain, experts=experts)


def make_layer(tape: Tape, setup: Setup, index: int, *, trainable: bool) -> Layer:
    """A layer's weights; `trainable` where all of them are, not just an adapter."""
    block, other = setup.block, other_bytes(setup)
    width = DTYPE_BYTES[setup.weight_dtype]
    matrices = {}
    for name, (width_in, width_out) in matrix_widths(block).items():
        bias = None
        if has_bias(block, name):
            bias = tape.parameter(width_out, other, trainable=trainable)
        weight = tape.parameter(width_in * width_out, width, trainable=trainable)
        adapter = _adapter(tape, setup, name, width_in, width_out)
        matrices[name] = Matrix(width_in, width_out, weight, bias, adapter)
    norms = tuple(
        tape.parameter(block.hidden, other, trainable=trainable) for _ in range(block.norms)
    )
    head_norms = None
    if block.qk_norm:
        head_norms = (
            tape.parameter(block.head_dim, other, trainable=trainable),
            tape.parameter(block.head_dim, other, trainable=trainable),
        )
    sinks = tape.parameter(block.heads, other, trainable=trainable) if block.sinks else None
    experts = make_experts(tape, setup, other, trainable=trainable)
    sees_all = bool(block.full_every) and (index + 1) % block.full_every == 0
    masked = setup.padded or (setup.windowed and not sees_all)
    return Layer(matrices, norms, head_norms, sinks, experts, masked)


def _adapter(
    tape: Tape, setup: Setup, name: str, width_in: int, width_out: int
) -> tuple[Tensor, Tensor] | None:
    if setup.method == "full" or not adapted(setup, name):
        return None
    width, rank = DTYPE_BYTES[setup.stack.adapter_dtype], setup.lora_rank
    return (
        tape.parameter(width_in * rank, width, trainable=True),
        tape.parameter(rank * width_out, width, trainable=True),
    )


class Decoder:
    """Runs layers of one setup on one tape."""

    __slots__ = ("computes", "heads", "quantised", "setup", "tape", "unpacks_forward")

    def __init__(self, tape: Tape, setup: Setup) -> None:
        block = setup.block
        self.tape = tape
        self.setup = setup
        self.quantised = setup.method == "qlora"
        self.computes = HALF if setup.stack.autocast else DTYPE_BYTES[setup.weight_dtype]
        """Bytes of what 4-bit matrices are unpacked to; the kernel that needs no unpacking has
        none of float32."""
        tokens = setup.stack.fused_4bit_tokens if self.computes == HALF else 0
        self.unpacks_forward = setup.tokens > tokens
        self.heads = Heads(
            rows=setup.rows,
            length=setup.length,
            heads=block.heads,
            kv_heads=block.kv_heads,
            head_dim=block.head_dim,
        )

    def layer(self, layer: Layer, hidden: Tensor, _mask: object = None) -> Tensor:
        """One decoder layer; `_mask` is held as long as the call can be repeated."""
        width, norms = self.setup.block.hidden, layer.norms
        residual = hidden
        hidden = self.norm(hidden, norms[0], width)
        hidden, beside = self._attention(layer, hidden)
        if len(norms) > 2:
            hidden = self.norm(hidden, norms[2], width)
        hidden = add(self.tape, residual, hidden)
        residual = hidden
        hidden = self.norm(hidden, norms[1], width)
        hidden, beside = self._mlp(layer, hidden)
        if len(norms) > 2:
            hidden = self.norm(hidden, norms[3], width)
        hidden = add(self.tape, residual, hidden)
        del beside
        return hidden

    def norm(self, x: Tensor, weight: Tensor, width: int) -> Tensor:
        """RMSNorm in the kernel the stack has."""
        if self.setup.stack.fused_norm:
            return rms_norm_fused(self.tape, x, weight, width)
        if self.setup.block.sinks:
            return rms_norm_oss(self.tape, x, weight, width)
        if self.setup.block.gemma:
            return rms_norm_gemma(self.tape, x, weight, width)
        return rms_norm(self.tape, x, weight, width)

    def _attention(self, layer: Layer, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        """(the result, the scores where the layer's code keeps them by name)."""
        tape, setup = self.tape, self.setup
        family = setup.block.family
        if family == "phi3":
            q, k, v = self._queries_joined(layer, hidden)
        else:
            q, k, v = self._queries(layer, hidden)
        scores = None
        if layer.sinks is not None:
            result, scores = sink_attention(tape, q, k, v, self.heads, layer.sinks)
        elif setup.attention == "eager":
            result = eager_attention(tape, q, k, v, self.heads, capped=family == "gemma2")
        else:
            masked = layer.masked and setup.attention == "sdpa"
            result = fused_attention(tape, q, k, v, self.heads, masked=masked)
            if family == "phi3":
                # Its queries are joined head by head, so the result has to be put in order.
                result = clone(tape, result)
        return self._project(layer.matrices["o"], result), scores

    def _queries(self, layer: Layer, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values."""
        tape, matrices, head_dim = self.tape, layer.matrices, self.setup.block.head_dim
        norms, late = layer.head_norms, self.setup.block.gemma
        q = self._project(matrices["q"], hidden)
        if norms and not late:
            q = self.norm(q, norms[0], head_dim)
        k = self._project(matrices["k"], hidden)
        if norms and not late:
            k = self.norm(k, norms[1], head_dim)
        v = self._project(matrices["v"], hidden)
        if norms and late:
            q = self.norm(q, norms[0], head_dim)
            k = self.norm(k, norms[1], head_dim)
        if self.setup.block.sinks:
            return rotary_halves(tape, q), rotary_halves(tape, k), v
        rotate = rotary_fused if self.setup.stack.fused_rope else rotary
        return rotate(tape, q), rotate(tape, k), v

    def _queries_joined(self, layer: Layer, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The same from one matrix: all three are views of its result."""
        tape, heads = self.tape, self.heads
        joined = self._project(layer.matrices["qkv"], hidden)
        columns = heads.rows * heads.length * heads.head_dim
        q = part(tape, joined, columns * heads.heads)
        k = part(tape, joined, columns * heads.kv_heads)
        v = part(tape, joined, columns * heads.kv_heads)
        return rotary_joined(tape, q), rotary_joined(tape, k), v

    def _mlp(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """(the result, the router's scores where the layer's code keeps them by name)."""
        tape, block = self.tape, self.setup.block
        if layer.experts is None:
            return self._dense(layer, x), None
        if not block.shared_intermediate:
            result, scores = routed(tape, block, layer.experts, x)
            return result, scores if block.sinks else None
        shared = self._dense(layer, x)
        result, _ = routed(tape, block, layer.experts, x)
        gate = self._project(layer.matrices[SHARED_GATE], x)
        gate = saving_result(tape, gate)
        shared = scaled_rows(tape, shared, gate)
        del gate
        return add(tape, result, shared), None

    def _dense(self, layer: Layer, x: Tensor) -> Tensor:
        tape, matrices = self.tape, layer.matrices
        if self.setup.block.family == "phi3":
            gate, up = halves(tape, self._project(matrices["gate_up"], x))
            product = multiply(tape, up, unary(tape, gate, saves=True))
            return self._project(matrices["down"], product)
        gate = self._project(matrices["gate"], x)
        if self.setup.stack.fused_mlp:
            up = self._project(matrices["up"], x)
            product = silu_multiply_fused(tape, gate, up)
            del gate, up
            return self._project(matrices["down"], product)
        activated = unary(tape, gate, saves=True)
        del gate
        up = self._project(matrices["up"], x)
        product = multiply(tape, activated, up)
        del activated, up
        return self._project(matrices["down"], product)

    def _project(self, matrix: Matrix, x: Tensor) -> Tensor:
        if self.quantised:
            return self._project_quantised(matrix, x)
        result = linear(self.tape, x, matrix.weight, matrix.width_in, matrix.bias)
        if matrix.adapter is None:
            return result
        before = result.width
        if self.setup.stack.adapter_input_cast or not self.tape.autocasts:
            x = cast(self.tape, x, matrix.adapter[0].width)
        scaled = self._adapted(matrix, matrix.adapter, x)
        result = add(self.tape, result, scaled)
        del scaled
        return cast(self.tape, result, before)

    def _project_quantised(self, matrix: Matrix, x: Tensor) -> Tensor:
        tape = self.tape
        result = unpacked_linear(
            tape,
            x,
            matrix.width_in,
            matrix.width_out,
            computes=self.computes,
            unpacks_forward=self.unpacks_forward,
        )
        if matrix.adapter is None:
            return result
        result = clone(tape, result)
        if not tape.autocasts:
            x = cast(tape, x, matrix.adapter[0].width)
        output = self._adapted(matrix, matrix.adapter, x)
        if not tape.autocasts:
            output = cast(tape, output, result.width)
        return add(tape, result, output)

    def _adapted(self, matrix: Matrix, adapter: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        """`(dropout(x) @ A @ B) * scale`."""
        tape, (down, up) = self.tape, adapter
        dropped = dropout(tape, x, self.setup.lora_dropout)
        narrow = linear(tape, dropped, down, matrix.width_in)
        del dropped
        wide = linear(tape, narrow, up, self.setup.lora_rank)
        del narrow
        return unary(tape, wide)
