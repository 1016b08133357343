"""gpt-oss: attention with sinks, experts with biases, and norms and angles of its own.

Source: transformers/models/gpt_oss/modeling_gpt_oss.py, and integrations/moe.py for the experts.
Its weights are simulated as 16-bit ones: those that are stored in MXFP4 cannot be trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wizard.planner.tape.attention import Heads, product, repeat_heads, saving_result
from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.meter import Buffer
from wizard.planner.tape.normalisation import normalised, weighted
from wizard.planner.tape.operations import HALF, add, cast, multiply, same, unary

INDEX = 8
"""Bytes of an index."""


def rms_norm_oss(tape: Tape, x: Tensor, weight: Tensor, width: int) -> Tensor:
    """`(weight * x / rms(x))`, of which only the product is cast."""
    variance, normed = normalised(tape, x, width)
    # The code holds `variance` and the float32 `normed` until it returns.
    result = cast(tape, weighted(tape, normed, weight), x.width)
    del variance, normed
    return result


def rotary_halves(tape: Tape, x: Tensor) -> Tensor:
    """Two halves, each times a cosine less or plus the other times a sine, joined."""
    size, half = x.size, x.size // 2

    def scaled(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(half)]

    def difference(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [gradient, tape.buffer(half)]

    count = x.count // 2
    both = tape.apply(x.count, x.width, (x,), (), tape.makes(size), storage=x.buffer)
    first = tape.apply(count, x.width, (both,), (), same, storage=x.buffer)
    second = tape.apply(count, x.width, (both,), (), same, storage=x.buffer)

    def times(part: Tensor) -> Tensor:
        return tape.apply(count, x.width, (part,), (), scaled)

    upper = tape.apply(count, x.width, (times(first), times(second)), (), difference)
    lower = add(tape, times(second), times(first))
    result = tape.apply(x.count, x.width, (upper, lower), (), _both_same)
    del both, first, second, upper, lower
    return result


def _both_same(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
    return [gradient, gradient]


def sink_attention(
    tape: Tape, q: Tensor, k: Tensor, v: Tensor, heads: Heads, sinks: Tensor
) -> tuple[Tensor, Tensor]:
    """(the result, the scores): a score more a query, which takes weight and gives nothing."""
    if heads.heads != heads.kv_heads:
        times, copies = heads.heads // heads.kv_heads, heads.kv_heads > 1 or heads.rows > 1
        k = repeat_heads(tape, k, times, copies=copies)
        v = repeat_heads(tape, v, times, copies=copies)
    if tape.autocasts:
        q, k, v = cast(tape, q, HALF), cast(tape, k, HALF), cast(tape, v, HALF)
    queries = heads.rows * heads.heads * heads.length
    scores = product(tape, q, k, queries * heads.length)
    scores = unary(tape, scores)
    scores = tape.apply(scores.count, scores.width, (scores,), (), same)
    joined = _with_sinks(tape, scores, sinks, queries)
    joined = _less_largest(tape, joined, queries)
    softmax = saving_result(tape, joined)
    weights = _without_sinks(tape, softmax, queries)
    # What went into the softmax has a name until the end, what came before has one until here.
    del scores
    result = product(tape, weights, v, heads.result)
    result = tape.apply(result.count, result.width, (result,), (), same)
    del joined, softmax
    return result, weights


def _with_sinks(tape: Tape, scores: Tensor, sinks: Tensor, queries: int) -> Tensor:
    """A column more, the same for all queries of a head; a part of its gradient is a view."""
    sink_size, needs = sinks.size, sinks.node is not None

    def backward(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [gradient, tape.gradient(sink_size) if needs else None]

    count = scores.count + queries
    return tape.apply(count, scores.width, (scores, sinks), (), backward)


def _less_largest(tape: Tape, x: Tensor, queries: int) -> Tensor:
    """`x - x.max(-1)`: the gradient of the largest is put where it was among zeros."""
    size, few = x.size, queries * x.width

    def less(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        negative = tape.buffer(size)
        summed = tape.buffer(few)
        del negative
        return [gradient, summed]

    largest = tape.apply(queries, x.width, (x,), (tape.buffer(queries * INDEX),), tape.makes(size))
    return tape.apply(x.count, x.width, (x, largest), (), less)


def _without_sinks(tape: Tape, x: Tensor, queries: int) -> Tensor:
    """All columns but the last, as a view."""
    size = x.size
    return tape.apply(x.count - queries, x.width, (x,), (), tape.makes(size), storage=x.buffer)


def chosen_scores(tape: Tape, logits: Tensor, chosen: Buffer, picked: int) -> Tensor:
    """A softmax over the largest logits alone, in the weights' format."""
    size = logits.size
    top = tape.apply(picked, logits.width, (logits,), (chosen,), tape.makes(size))
    return saving_result(tape, top)


def gate_clamped(tape: Tape, joined: Tensor) -> Tensor:
    """`(up + 1) * gate * sigmoid(gate * alpha)` of every other column, both clamped."""
    size, half, count = joined.size, joined.size // 2, joined.count // 2

    def clamped(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        inside = tape.buffer(count)
        result = tape.buffer(half)
        del inside
        return [result]

    def every_other() -> Tensor:
        return tape.apply(
            count, joined.width, (joined,), (), tape.makes(size), storage=joined.buffer
        )

    gate, up = every_other(), every_other()
    gate = tape.apply(count, gate.width, (gate,), (gate.buffer,), clamped)
    up = tape.apply(count, up.width, (up,), (up.buffer,), clamped)
    glu = multiply(tape, gate, saving_result(tape, unary(tape, gate)))
    result = multiply(tape, tape.apply(count, up.width, (up,), (), same), glu)
    del gate, up, glu
    return result


def biased(tape: Tape, x: Tensor, bias: Tensor | None) -> Tensor:
    """With a bias added in place, where there is one."""
    if bias is None:
        return x

    def backward(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [gradient, gradient]

    return tape.apply(x.count, x.width, (x, bias), (), backward, storage=x.buffer)
