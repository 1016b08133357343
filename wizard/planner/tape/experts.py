"""Routed experts: each token passes a few of many MLPs, whose weights are one tensor each.

Sources: transformers/integrations/moe.py (`grouped_mm_experts_forward`, which torch 2.9 and later
take on CUDA from Ampere on), models/{mixtral,qwen2_moe,qwen3_moe}/modeling_*.py (the routers);
peft/tuners/lora/layer.py `ParamWrapper` and utils/transformers_weight_conversion.py (adapters).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.gpt_oss import biased, chosen_scores, gate_clamped
from wizard.planner.tape.meter import Buffer
from wizard.planner.tape.operations import SINGLE, cast, linear, multiply, same, unary
from wizard.planner.tape.phi3 import halves
from wizard.planner.tape.setup import DTYPE_BYTES, Block, Setup

INDEX = 8
"""Bytes of an index."""


Factors = tuple[Tensor, Tensor]
"""An adapter's two tensors, of all experts at once."""
FUSED = 2
"""Gate and up are one tensor, so its adapter has twice the rank."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A layer's router, and the experts' matrices: gate and up as one, down."""

    weights: tuple[Tensor, Tensor, Tensor]
    biases: tuple[Tensor, Tensor, Tensor] | None
    """Of the same three (gpt-oss)."""
    adapters: tuple[Factors, Factors, Factors] | None


def expert_sizes(block: Block) -> tuple[tuple[int, int], ...]:
    """(rows, columns) of a layer's router and of its experts' tensors; empty for a dense MLP."""
    if not block.experts:
        return ()
    return (
        (block.experts, block.hidden),
        (block.experts * 2 * block.moe_intermediate, block.hidden),
        (block.experts * block.hidden, block.moe_intermediate),
    )


def bias_sizes(block: Block) -> tuple[int, ...]:
    """Elements of the biases of the router and of a layer's experts; empty where there are none."""
    if not (block.experts and block.sinks):
        return ()
    inner = 2 * block.moe_intermediate
    return block.experts, block.experts * inner, block.experts * block.hidden


def expert_factors(setup: Setup) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """(rows, columns) of the two tensors of each adapter in `expert_sizes`' order."""
    if not setup.adapts_experts:
        return ()
    block, rank = setup.block, setup.lora_rank
    each, hidden, inner = rank * block.experts, block.hidden, block.moe_intermediate
    return (
        ((rank, hidden), (block.experts, rank)),
        ((FUSED * each, hidden), (2 * inner, FUSED * each)),
        ((each, inner), (hidden, each)),
    )


def make_experts(tape: Tape, setup: Setup, width: int, *, trainable: bool) -> Experts | None:
    """A layer's routed weights, of `width` bytes an element; they are never 4-bit."""
    if not setup.block.experts:
        return None
    router, gate_up, down = (
        tape.parameter(rows * columns, width, trainable=trainable)
        for rows, columns in expert_sizes(setup.block)
    )
    adapters = None
    if setup.adapts_experts:
        narrow = DTYPE_BYTES[setup.stack.adapter_dtype]
        first, second, third = (
            (
                tape.parameter(a[0] * a[1], narrow, trainable=True),
                tape.parameter(b[0] * b[1], narrow, trainable=True),
            )
            for a, b in expert_factors(setup)
        )
        adapters = (first, second, third)
    biases = None
    if setup.block.sinks:
        one, two, three = (
            tape.parameter(count, width, trainable=trainable) for count in bias_sizes(setup.block)
        )
        biases = (one, two, three)
    return Experts((router, gate_up, down), biases, adapters)


def routed(tape: Tape, block: Block, experts: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    """(what the chosen experts make of every token, summed by the router's scores; the scores)."""
    router, gate_up, down = experts.weights
    chosen = tape.buffer(x.count // block.hidden * block.experts_per_token * INDEX)
    if experts.adapters is not None:
        router = _merged(tape, router, experts.adapters[0])
    if experts.biases is not None:
        logits = linear(tape, x, router, block.hidden, experts.biases[0])
        picked = x.count // block.hidden * block.experts_per_token
        scores = chosen_scores(tape, logits, chosen, picked)
        biases = experts.biases[1:]
        result = _pass(tape, block, (lambda: gate_up, lambda: down), x, scores, biases)
        del logits, chosen
        return result, scores
    logits, scores = _route(tape, block, router, x, chosen)
    del router
    if experts.adapters is None:
        result = _pass(tape, block, (lambda: gate_up, lambda: down), x, scores)
    else:
        outer = _narrowed(tape, experts.adapters[2], down)
        _try_out(tape, down)
        inner = _narrowed(tape, experts.adapters[1], gate_up)
        _try_out(tape, gate_up)
        merges = (lambda: _folded(tape, gate_up, inner), lambda: _folded(tape, down, outer))
        result = _pass(tape, block, merges, x, scores)
    del logits, chosen
    return result, scores


def _narrowed(tape: Tape, factors: Factors, weight: Tensor) -> Factors:
    """An adapter's tensors in the format of the weights they are added to."""
    return cast(tape, factors[1], weight.width), cast(tape, factors[0], weight.width)


def _try_out(tape: Tape, weight: Tensor) -> None:
    """torch makes the merged weights once to look at their format and shape."""
    whole = tape.buffer(weight.size)
    del whole


def _folded(tape: Tape, weight: Tensor, factors: Factors) -> Tensor:
    """`weight + b @ a` of all experts at once, a tensor as large as the weights."""
    sizes = [factor.size for factor in factors]

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        results: Gradients = []
        for size in sizes:
            product = tape.buffer(size)
            results.append(tape.buffer(size))
            del product
        return results

    saved = [factor.buffer for factor in factors]
    return tape.apply(weight.count, weight.width, factors, saved, backward)


def _merged(tape: Tape, weight: Tensor, factors: Factors) -> Tensor:
    """A matrix with what its adapter adds, both as large as it."""
    delta = _folded(tape, weight, factors)
    return tape.apply(weight.count, weight.width, (delta,), (), same)


def _route(
    tape: Tape, block: Block, router: Tensor, x: Tensor, chosen: Buffer
) -> tuple[Tensor, Tensor]:
    """(logits, scores of the chosen experts); the caller holds on to both."""
    tokens, picked = x.count // block.hidden, block.experts_per_token
    logits = linear(tape, x, router, block.hidden)
    single = cast(tape, logits, SINGLE)
    size, few = single.size, tokens * picked * SINGLE
    probabilities = tape.apply(
        single.count, SINGLE, (single,), (), tape.makes(size), saves_output=True
    )
    del single
    top = tape.apply(tokens * picked, SINGLE, (probabilities,), (chosen,), tape.makes(size))
    total = tape.apply(tokens, SINGLE, (top,), (), same)

    def shared_out(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        of_top = tape.buffer(few)
        product = tape.buffer(few)
        of_total = tape.buffer(tokens * SINGLE)
        del product
        return [of_top, of_total]

    # Divided in place, so what was divided is kept as a copy.
    before = tape.buffer(few) if top.node is not None else None
    scores = tape.apply(
        top.count, SINGLE, (top, total), (before, total.buffer), shared_out, storage=top.buffer
    )
    del top, total, before
    return logits, scores if block.float32_scores else cast(tape, scores, logits.width)


def _pass(
    tape: Tape,
    block: Block,
    weights: tuple[Callable[[], Tensor], Callable[[], Tensor]],
    x: Tensor,
    scores: Tensor,
    biases: Sequence[Tensor] = (),
) -> Tensor:
    """Tokens in the order of their experts, one grouped product after the other, and back."""
    hidden, width = block.hidden, x.width
    pairs = x.count // hidden * block.experts_per_token
    ids, order = tape.buffer(pairs * INDEX), tape.buffer(pairs * INDEX)
    picked = _rows(tape, x, pairs * hidden, tape.buffer(pairs * INDEX))
    sorted_scores = _rows(tape, scores, pairs, order)
    as_numbers = tape.buffer(pairs * SINGLE)
    del as_numbers
    inner, bias = block.moe_intermediate, None
    gate_up = weights[0]()
    if biases:
        bias = _rows(tape, biases[0], pairs * 2 * inner, ids)
    made = biased(tape, _grouped(tape, picked, gate_up, hidden, 2 * inner), bias)
    made = gate_clamped(tape, made) if biases else _gated(tape, made)
    down = weights[1]()
    if biases:
        bias = _rows(tape, biases[1], pairs * hidden, ids)
    made = biased(tape, _grouped(tape, made, down, inner, hidden), bias)
    weighted = scaled_rows(tape, made, sorted_scores)
    back, numbers = tape.buffer(pairs * INDEX), tape.buffer(pairs * INDEX)
    del numbers
    weighted = _rows(tape, weighted, pairs * hidden, back)
    total = _summed(tape, weighted, x.count)
    result = cast(tape, total, width)
    del ids, order, picked, sorted_scores, bias, gate_up, made, down, back, weighted, total
    return result


def _rows(tape: Tape, x: Tensor, count: int, index: Buffer) -> Tensor:
    """Rows that an index picks; their gradients are added into a tensor of zeros."""
    size = x.size
    return tape.apply(count, x.width, (x,), (index,), tape.makes(size))


def _grouped(tape: Tape, x: Tensor, weight: Tensor, width_in: int, width_out: int) -> Tensor:
    """Each row times its own expert's matrix; autocast leaves this product alone."""
    x = cast(tape, x, weight.width)
    x_size, weight_size = x.size, weight.size
    x_needs, weight_needs = x.node is not None, weight.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [
            tape.buffer(x_size) if x_needs else None,
            of_weight(weight_size) if weight_needs else None,
        ]

    # Merged weights are no parameter: their gradient lives until that of the adapter is there.
    of_weight = tape.gradient if weight.buffer is None else tape.buffer
    saved = (x.buffer if weight_needs else None, weight.buffer if x_needs else None)
    return tape.apply(x.count // width_in * width_out, x.width, (x, weight), saved, backward)


def _gated(tape: Tape, joined: Tensor) -> Tensor:
    """`silu(gate) * up` of two halves."""
    gate, up = halves(tape, joined)
    return multiply(tape, unary(tape, gate, saves=True), up)


def scaled_rows(tape: Tape, x: Tensor, scale: Tensor) -> Tensor:
    """Every row times a number of its own; both gradients are as wide as `x` at first."""
    width = max(x.width, scale.width)
    size, narrow_size, scale_size = x.count * width, x.size, scale.size
    narrows, needs = x.width < width, scale.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        of_x = tape.buffer(size)
        product = tape.buffer(size) if needs else None
        if narrows:
            of_x = tape.buffer(narrow_size)
        of_scale = tape.buffer(scale_size) if needs else None
        del product
        return [of_x, of_scale]

    saved = (x.buffer if needs else None, scale.buffer)
    return tape.apply(x.count, width, (x, scale), saved, backward)


def _summed(tape: Tape, x: Tensor, count: int) -> Tensor:
    """The sum over the experts of a token; its gradient is copied out to each of them."""
    size = x.size
    return tape.apply(count, x.width, (x,), (), tape.makes(size))
