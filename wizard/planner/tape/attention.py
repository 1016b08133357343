"""Attention over one micro-batch: fused kernels with and without a mask, and the eager one.

Sources: transformers/integrations/sdpa_attention.py (a mask expands the key-value heads),
modeling_llama.py `eager_attention_forward`; FlashAttention 2's backward workspace by its layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.meter import Buffer
from wizard.planner.tape.operations import HALF, SINGLE, cast, same, unary


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """Sizes one attention call reads."""

    rows: int
    length: int
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def result(self) -> int:
        """Elements of the result, and of the queries."""
        return self.rows * self.length * self.heads * self.head_dim


def repeat_heads(tape: Tape, x: Tensor, times: int, *, copies: bool = True) -> Tensor:
    """Key-value heads repeated so that there are as many as query heads; else a view of them."""
    size = x.size
    storage = None if copies else x.buffer
    return tape.apply(x.count * times, x.width, (x,), (), tape.makes(size), storage=storage)


def fused_attention(
    tape: Tape, q: Tensor, k: Tensor, v: Tensor, heads: Heads, *, masked: bool
) -> Tensor:
    """A kernel that keeps q, k, v, its result and one value per query."""
    expands = heads.heads != heads.kv_heads
    if masked and expands:
        # A single head is repeated by a stride of zero.
        times, copies = heads.heads // heads.kv_heads, heads.kv_heads > 1
        k = repeat_heads(tape, k, times, copies=copies)
        v = repeat_heads(tape, v, times, copies=copies)
        expands = False
    if tape.autocasts:
        q, k, v = cast(tape, q, HALF), cast(tape, k, HALF), cast(tape, v, HALF)
    rows, length = heads.rows, heads.length
    mask = tape.buffer(rows * length * length * q.width) if masked else None
    result = tape.buffer(heads.result * q.width)
    normaliser = tape.buffer(rows * heads.heads * length * SINGLE)
    q_size, k_size, v_size = q.size, k.size, v.size
    workspace_size = _backward_workspace(heads, expands=expands, width=q.width)

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        workspace = tape.buffer(workspace_size)
        results: Gradients = [tape.buffer(q_size), tape.buffer(k_size), tape.buffer(v_size)]
        del workspace
        return results

    saved = (q.buffer, k.buffer, v.buffer, result, normaliser, mask)
    return tape.apply(heads.result, q.width, (q, k, v), saved, backward, storage=result)


def _backward_workspace(heads: Heads, *, expands: bool, width: int) -> int:
    """Row sums, float32 gradient of the queries, and gradients of expanded keys and values."""
    length = -(-heads.length // 128) * 128
    head_dim = -(-heads.head_dim // 32) * 32
    queries = heads.rows * heads.heads * length * SINGLE * (1 + head_dim)
    return queries + (2 * heads.result * width if expands else 0)


def eager_attention(
    tape: Tape, q: Tensor, k: Tensor, v: Tensor, heads: Heads, *, capped: bool = False
) -> Tensor:
    """Every score is made: its softmax is kept in float32 and in the weights' format.

    `capped` scores pass a hyperbolic tangent, whose result is kept as well (Gemma 2).
    """
    if heads.heads != heads.kv_heads:
        # Of several rows the batched product copies what a stride of zero repeats.
        times, copies = heads.heads // heads.kv_heads, heads.kv_heads > 1 or heads.rows > 1
        k = repeat_heads(tape, k, times, copies=copies)
        v = repeat_heads(tape, v, times, copies=copies)
    before = q.width
    if tape.autocasts:
        q, k, v = cast(tape, q, HALF), cast(tape, k, HALF), cast(tape, v, HALF)
    scores = product(tape, q, k, heads.rows * heads.heads * heads.length * heads.length)
    scores = unary(tape, scores)
    if capped:
        scores = unary(tape, scores)
        scores = saving_result(tape, scores)
        scores = unary(tape, scores)
    scores = tape.apply(scores.count, scores.width, (scores,), (), same)
    scores = cast(tape, scores, SINGLE)
    softmax = saving_result(tape, scores)
    del scores
    weights = cast(tape, cast(tape, softmax, before), q.width)
    del softmax
    result = product(tape, weights, v, heads.result)
    del weights
    return tape.apply(result.count, result.width, (result,), (), same)


def product(tape: Tape, a: Tensor, b: Tensor, count: int) -> Tensor:
    """A batched matrix product of two activations."""
    a_size, b_size = a.size, b.size

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(a_size), tape.buffer(b_size)]

    return tape.apply(count, a.width, (a, b), (a.buffer, b.buffer), backward)


def saving_result(tape: Tape, scores: Tensor) -> Tensor:
    """A softmax, a hyperbolic tangent, a sigmoid: what keeps its own result."""
    size = scores.size
    return tape.apply(
        scores.count, scores.width, (scores,), (), tape.makes(size), saves_output=True
    )
