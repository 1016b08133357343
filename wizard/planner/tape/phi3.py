"""Phi 3: one matrix for queries, keys and values, one for gate and up, whose results are views.

Source: transformers/models/phi3/modeling_phi3.py. A view keeps the whole result alive, and its
gradient is a tensor of the whole result's size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wizard.planner.tape.autograd import Gradients, Tape, Tensor
from wizard.planner.tape.meter import Buffer
from wizard.planner.tape.operations import rotary, same


def part(tape: Tape, x: Tensor, count: int) -> Tensor:
    """Some columns of a result: `x[..., a:b]`."""
    size = x.size
    return tape.apply(count, x.width, (x,), (), tape.makes(size), storage=x.buffer)


def halves(tape: Tape, x: Tensor) -> tuple[Tensor, Tensor]:
    """`x.chunk(2)`: the two gradients are joined when both are there."""
    size, waiting = x.size, list[Buffer]()

    def join(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        result = tape.buffer(size)
        waiting.clear()
        return [result]

    def wait(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        waiting.append(gradient)
        return [None]

    both = tape.apply(x.count, x.width, (x,), (), join, storage=x.buffer)
    first = tape.apply(x.count // 2, x.width, (both,), (), same, storage=x.buffer)
    second = tape.apply(x.count // 2, x.width, (both,), (), wait, storage=x.buffer)
    return first, second


def rotary_joined(tape: Tape, x: Tensor) -> Tensor:
    """Rotary embedding of all columns, joined with the none that are left as they are."""
    rest = part(tape, x, 0)
    rotated = rotary(tape, x)

    def backward(gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
        return [gradient, tape.buffer(0)]

    return tape.apply(x.count, x.width, (rotated, rest), (), backward)
