"""Routed experts: each token passes a few of many MLPs, whose weights are one tensor each.

Sources: transformers/integrations/moe.py (`grouped_mm_experts_forward`, which torch 2.9 and later
take on CUDA from Ampere on), models/{mixtral,qwen2_moe,qwen3_moe}/modeling_*.py (the routers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.meter import Buffer
from wizard.planner.tape.operations import SINGLE, cast, linear, multiply, same, unary
from wizard.planner.tape.phi3 import halves
from wizard.planner.tape.setup import Block

INDEX = 8
"""Bytes of an index."""


@dataclass(frozen=True, slots=True)
class Experts:
    """A layer's router, and the experts' matrices: gate and up as one, down."""

    router: Tensor
    gate_up: Tensor
    down: Tensor


def expert_sizes(block: Block) -> tuple[tuple[int, int], ...]:
    """(rows, columns) of a layer's router and of its experts' tensors; empty for a dense MLP."""
    if not block.experts:
        return ()
    return (
        (block.experts, block.hidden),
        (block.experts * 2 * block.moe_intermediate, block.hidden),
        (block.experts * block.hidden, block.moe_intermediate),
    )


def make_experts(tape: Tape, block: Block, width: int, *, trainable: bool) -> Experts | None:
    """A layer's routed weights, of `width` bytes an element; they are never 4-bit."""
    made = [
        tape.parameter(rows * columns, width, trainable=trainable)
        for rows, columns in expert_sizes(block)
    ]
    return Experts(*made) if made else None


def routed(tape: Tape, block: Block, experts: Experts, x: Tensor) -> Tensor:
    """What the chosen experts make of every token, summed by the router's scores."""
    chosen = tape.buffer(x.count // block.hidden * block.experts_per_token * INDEX)
    logits, scores = _route(tape, block, experts.router, x, chosen)
    result = _pass(tape, block, experts, x, scores)
    del logits, scores, chosen
    return result


def _route(
    tape: Tape, block: Block, router: Tensor, x: Tensor, chosen: Buffer
) -> tuple[Tensor, Tensor]:
    """(logits, scores of the chosen experts); the caller holds on to both."""
    tokens, picked = x.count // block.hidden, block.experts_per_token
    logits = linear(tape, x, router, block.hidden)
    single = cast(tape, logits, SINGLE)
    size, few = single.size, tokens * picked * SINGLE

    def whole(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(size)]

    probabilities = tape.apply(single.count, SINGLE, (single,), (), whole, saves_output=True)
    del single
    top = tape.apply(tokens * picked, SINGLE, (probabilities,), (chosen,), whole)
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


def _pass(tape: Tape, block: Block, experts: Experts, x: Tensor, scores: Tensor) -> Tensor:
    """Tokens in the order of their experts, one grouped product after the other, and back."""
    hidden, width = block.hidden, x.width
    pairs = x.count // hidden * block.experts_per_token
    ids, order = tape.buffer(pairs * INDEX), tape.buffer(pairs * INDEX)
    picked = _rows(tape, x, pairs * hidden, tape.buffer(pairs * INDEX))
    sorted_scores = _rows(tape, scores, pairs, order)
    as_numbers = tape.buffer(pairs * SINGLE)
    del as_numbers
    made = _grouped(tape, picked, experts.gate_up, hidden, 2 * block.moe_intermediate)
    made = _gated(tape, made)
    made = _grouped(tape, made, experts.down, block.moe_intermediate, hidden)
    weighted = scaled_rows(tape, made, sorted_scores)
    back, numbers = tape.buffer(pairs * INDEX), tape.buffer(pairs * INDEX)
    del numbers
    weighted = _rows(tape, weighted, pairs * hidden, back)
    total = _summed(tape, weighted, x.count)
    result = cast(tape, total, width)
    del ids, order, picked, sorted_scores, made, back, weighted, total
    return result


def _rows(tape: Tape, x: Tensor, count: int, index: Buffer) -> Tensor:
    """Rows that an index picks; their gradients are added into a tensor of zeros."""
    size = x.size

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(size)]

    return tape.apply(count, x.width, (x,), (index,), backward)


def _grouped(tape: Tape, x: Tensor, weight: Tensor, width_in: int, width_out: int) -> Tensor:
    """Each row times its own expert's matrix; autocast leaves this product alone."""
    x = cast(tape, x, weight.width)
    x_size, weight_size = x.size, weight.size
    x_needs, weight_needs = x.node is not None, weight.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [
            tape.buffer(x_size) if x_needs else None,
            tape.gradient(weight_size) if weight_needs else None,
        ]

    saved = (x.buffer if weight_needs else None, None)
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

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(size)]

    return tape.apply(count, x.width, (x,), (), backward)
