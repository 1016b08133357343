"""Operations of a decoder: the bytes each makes, saves for backward, and needs in backward.

A function's local names hold tensors exactly as long as those of the code it stands for
(transformers' modeling files, torch's derivatives.yaml), so `del` here is a lifetime, not style.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.meter import COPIES, DEQUANTISED, Buffer

HALF = 2
"""Bytes of what autocast computes in."""
SINGLE = 4
"""Bytes of float32."""


def same(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
    """Backward of what passes its gradient on unchanged."""
    return [gradient]


def same_twice(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
    """Backward of a sum or a concatenation: both inputs get the gradient itself."""
    return [gradient, gradient]


def unary(tape: Tape, x: Tensor, *, saves: bool = False) -> Tensor:
    """An elementwise operation of one input; its gradient is a new tensor."""
    size = x.size
    return tape.apply(x.count, x.width, (x,), (x.buffer,) if saves else (), tape.makes(size))


def cast(tape: Tape, x: Tensor, width: int) -> Tensor:
    """The tensor in elements of `width` bytes; itself where it has them."""
    if x.width == width:
        return x
    size = x.size
    return tape.apply(x.count, width, (x,), (), tape.makes(size))


def cast_weight(tape: Tape, weight: Tensor) -> Tensor:
    """A weight as autocast uses it; a trainable one is cast once in a forward pass."""
    if weight.width == HALF:
        return weight
    key, size = id(weight.node), weight.size
    cached = tape.casts if weight.node is not None else None
    if cached is not None and key in cached:
        return cached[key]

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.gradient(size)]

    copy = tape.buffer(weight.count * HALF, COPIES)
    result = tape.apply(weight.count, HALF, (weight,), (), backward, storage=copy)
    if cached is not None:
        cached[key] = result
    return result


def linear(
    tape: Tape, x: Tensor, weight: Tensor, width_in: int, bias: Tensor | None = None
) -> Tensor:
    """`x @ weight.T + bias`, in bfloat16 under autocast."""
    if tape.autocasts:
        x = cast(tape, x, HALF)
        weight = cast_weight(tape, weight)
        bias = None if bias is None else cast_weight(tape, bias)
    width_out = weight.count // width_in
    x_size, weight_size, bias_size = x.size, weight.size, width_out * weight.width
    x_needs, weight_needs = x.node is not None, weight.node is not None
    bias_needs = bias is not None and bias.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [
            tape.buffer(x_size) if x_needs else None,
            tape.gradient(weight_size) if weight_needs else None,
            tape.gradient(bias_size) if bias_needs else None,
        ]

    inputs = (x, weight) if bias is None else (x, weight, bias)
    saved = (x.buffer if weight_needs else None, weight.buffer if x_needs else None)
    return tape.apply(x.count // width_in * width_out, x.width, inputs, saved, backward)


def embedding(tape: Tape, weight: Tensor, tokens: int, hidden: int) -> Tensor:
    """Rows of the embedding; the gradient is dense, as large as the embedding."""
    size = weight.size

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.gradient(size)]

    return tape.apply(tokens * hidden, weight.width, (weight,), (), backward)


def multiply(tape: Tape, a: Tensor, b: Tensor) -> Tensor:
    """The elementwise product of two activations."""
    a_size, b_size = a.size, b.size
    a_needs, b_needs = a.node is not None, b.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(a_size) if a_needs else None, tape.buffer(b_size) if b_needs else None]

    saved = (a.buffer if b_needs else None, b.buffer if a_needs else None)
    return tape.apply(a.count, max(a.width, b.width), (a, b), saved, backward)


def silu_multiply_fused(tape: Tape, gate: Tensor, up: Tensor) -> Tensor:
    """`silu(gate) * up` in one kernel that keeps both and writes their gradients over them.

    Source: liger_kernel/ops/swiglu.py.
    """
    gate_buffer, up_buffer = gate.buffer, up.buffer

    def backward(_gradient: Buffer, saved: Sequence[Any]) -> Gradients:
        return [saved[0], saved[1]]

    return tape.apply(gate.count, gate.width, (gate, up), (gate_buffer, up_buffer), backward)


def add(tape: Tape, a: Tensor, b: Tensor) -> Tensor:
    """The elementwise sum; an input of fewer bytes has its gradient cast."""
    width = max(a.width, b.width)
    if a.width == b.width:
        return tape.apply(a.count, width, (a, b), (), same_twice)
    a_size = a.size if a.width < width else 0
    b_size = b.size if b.width < width else 0

    def backward(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [
            tape.buffer(a_size) if a_size else gradient,
            tape.buffer(b_size) if b_size else gradient,
        ]

    return tape.apply(a.count, width, (a, b), (), backward)


def clone(tape: Tape, x: Tensor) -> Tensor:
    """A copy; its gradient passes through."""
    return tape.apply(x.count, x.width, (x,), (), same)


def dropout(tape: Tape, x: Tensor, probability: float) -> Tensor:
    """CUDA's fused dropout: keeps a mask of one byte per element."""
    if not probability:
        return x
    size = x.size
    mask = tape.buffer(x.count)
    return tape.apply(x.count, x.width, (x,), (mask,), tape.makes(size))


def rotary(tape: Tape, x: Tensor) -> Tensor:
    """`x * cos + rotate_half(x) * sin`, step by step as transformers writes it."""
    size, count, width = x.size, x.count, x.width

    def half(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(size // 2)]

    cosine = tape.apply(count, width, (x,), (), tape.makes(size))
    first = tape.apply(count // 2, width, (x,), (), tape.makes(size), storage=x.buffer)
    second = tape.apply(count // 2, width, (x,), (), tape.makes(size), storage=x.buffer)
    negative = tape.apply(count // 2, width, (second,), (), half)
    rotated = tape.apply(count, width, (negative, first), (), same_twice)
    del negative, first, second
    sine = tape.apply(count, width, (rotated,), (), tape.makes(size))
    del rotated
    return tape.apply(count, width, (cosine, sine), (), same_twice)


def rotary_fused(tape: Tape, x: Tensor) -> Tensor:
    """Rotation in place, in both directions."""
    return tape.apply(x.count, x.width, (x,), (), same, storage=x.buffer)


def unpacked_linear(
    tape: Tape, x: Tensor, width_in: int, width_out: int, *, computes: int, unpacks_forward: bool
) -> Tensor:
    """A 4-bit matrix: unpacked for backward always, for forward only with many tokens.

    Source: bitsandbytes/autograd/_functions.py and backends/cuda/ops.py. The result has the
    elements of the input, though it is computed in ones of `computes` bytes.
    """
    before = x.width
    x = cast(tape, x, computes)
    elements, x_size, needs = width_in * width_out, x.size, x.node is not None
    scales = elements // 64 * SINGLE

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        if not needs:
            return [None]
        unpacked_scales = tape.buffer(scales, DEQUANTISED)
        unpacked = tape.buffer(elements * computes, DEQUANTISED)
        del unpacked_scales
        result = tape.buffer(x_size)
        del unpacked
        return [result]

    size = elements * computes + 2 * scales
    workspace = tape.buffer(size, DEQUANTISED) if unpacks_forward else None
    result = tape.apply(x.count // width_in * width_out, computes, (x,), (), backward)
    del workspace
    return cast(tape, result, before)
