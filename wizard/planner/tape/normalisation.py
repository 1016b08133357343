"""RMSNorm as transformers writes it, step by step, and as one fused kernel.

Sources: transformers/models/llama/modeling_llama.py, LlamaRMSNorm; gemma2/modeling_gemma2.py,
Gemma2RMSNorm; liger_kernel/ops/rms_norm.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.meter import Buffer
from wizard.planner.tape.operations import SINGLE, cast, same


def rms_norm(tape: Tape, x: Tensor, weight: Tensor, width: int) -> Tensor:
    """`weight * (x / rms(x))`, in float32 inside; the result has the wider elements of the two."""
    variance, normed = normalised(tape, x, width)
    # The code holds `variance` and the float32 `normed` until it returns.
    result = weighted(tape, cast(tape, normed, x.width), weight)
    del variance, normed
    return result


def normalised(tape: Tape, x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """(`mean(x ** 2)`, `x / rms(x)` in float32)."""
    single = cast(tape, x, SINGLE)
    variance = _variance(tape, single, width)
    scale = _inverse_root(tape, variance)
    return variance, _scaled(tape, single, scale)


def _variance(tape: Tape, x: Tensor, width: int) -> Tensor:
    """`mean(x ** 2)`: one value per token."""
    size, tokens = x.size, x.count // width

    def power(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        factor, doubled = tape.buffer(size), tape.buffer(size)
        result = tape.buffer(size)
        del factor, doubled
        return [result]

    squared = tape.apply(x.count, SINGLE, (x,), (x.buffer,), power)
    return tape.apply(tokens, SINGLE, (squared,), (), tape.makes(size))


def _inverse_root(tape: Tape, variance: Tensor) -> Tensor:
    """`rsqrt(variance + epsilon)`."""
    size = variance.size
    shifted = tape.apply(variance.count, SINGLE, (variance,), (), same)
    return tape.apply(shifted.count, SINGLE, (shifted,), (), tape.makes(size), saves_output=True)


def _scaled(tape: Tape, x: Tensor, scale: Tensor) -> Tensor:
    """Every token times its scale."""
    size, scale_size = x.size, scale.size

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        of_x = tape.buffer(size)
        product = tape.buffer(size)
        of_scale = tape.buffer(scale_size)
        del product
        return [of_x, of_scale]

    return tape.apply(x.count, SINGLE, (x, scale), (x.buffer, scale.buffer), backward)


def weighted(tape: Tape, x: Tensor, weight: Tensor) -> Tensor:
    """Every token times the norm's weight."""
    width = max(x.width, weight.width)
    size, narrow_size, weight_size = x.count * width, x.size, weight.size
    needs, narrows = weight.node is not None, width != x.width

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        of_weight = None
        if needs:
            product = tape.buffer(size)
            of_weight = tape.gradient(weight_size)
            del product
        of_x = tape.buffer(size)
        if narrows:
            of_x = tape.buffer(narrow_size)
        return [of_weight, of_x]

    saved = (x.buffer if needs else None, None)
    return tape.apply(x.count, width, (weight, x), saved, backward)


def rms_norm_gemma(tape: Tape, x: Tensor, weight: Tensor, width: int) -> Tensor:
    """`x / rms(x) * (1 + weight)`, all of it in float32, and only the result cast."""
    single = cast(tape, x, SINGLE)
    variance = _variance(tape, single, width)
    scale = _inverse_root(tape, variance)
    del variance
    normed = _scaled(tape, single, scale)
    del single, scale
    factor = cast(tape, weight, SINGLE)
    factor = tape.apply(factor.count, SINGLE, (factor,), (), same)
    product = _product(tape, normed, factor)
    del normed, factor
    return cast(tape, product, x.width)


def _product(tape: Tape, x: Tensor, factor: Tensor) -> Tensor:
    """Every token times a float32 factor that all share."""
    size, factor_size = x.size, factor.size
    needs, x_needs = factor.node is not None, x.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        of_x = tape.buffer(size) if x_needs else None
        of_factor = None
        if needs:
            whole = tape.buffer(size)
            of_factor = tape.buffer(factor_size)
            del whole
        return [of_x, of_factor]

    saved = (x.buffer if needs else None, factor.buffer if x_needs else None)
    return tape.apply(x.count, SINGLE, (x, factor), saved, backward)


def rms_norm_fused(tape: Tape, x: Tensor, weight: Tensor, width: int) -> Tensor:
    """One kernel that keeps its input and a scale per token."""
    scale = tape.buffer(x.count // width * SINGLE)
    size, weight_size, needs = x.size, weight.size, weight.node is not None

    def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [tape.buffer(size), tape.gradient(weight_size) if needs else None]

    return tape.apply(x.count, x.width, (x, weight), (x.buffer, scale), backward)
