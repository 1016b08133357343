"""PyTorch's eager autograd as far as memory goes: what is saved, recomputed, summed and freed.

Sources: torch/csrc/autograd/engine.cpp and input_buffer.cpp (order by sequence number, sums in
place), functions/accumulate_grad.h (a first gradient is taken over, not copied),
torch/utils/checkpoint.py (non-reentrant checkpointing with early stop).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from wizard.planner.tape.meter import GRADIENTS, WORKSPACE, Buffer, Meter

Gradients = list["Buffer | None"]
Backward = Callable[[Buffer, Sequence[Any]], Sequence["Buffer | None"]]
"""(gradient of the output, saved buffers) → gradient of each input."""

_LAST = 1 << 60
"""Leaves come first out of the engine's queue, as their sequence number is the highest."""


class _EarlyStop(Exception):  # noqa: N818
    """Everything a checkpoint saved has been computed again."""


class Leaf:
    """Where a gradient ends: a trainable parameter, or an input that asks for one."""

    __slots__ = ("gradient", "keeps", "sequence")

    def __init__(self, *, keeps: bool = True) -> None:
        self.sequence = _LAST
        self.keeps = keeps
        """False where the gradient is added to one that is there already."""
        self.gradient: Buffer | None = None


class Node:
    """One recorded operation: its inputs' nodes, what it saved, and how it runs backward."""

    __slots__ = ("backward", "edges", "frame", "place", "saved", "sequence")

    def __init__(
        self, tape: Tape, edges: Sequence[Edge], saved: Sequence[Buffer | None], backward: Backward
    ) -> None:
        tape.sequence += 1
        self.sequence = tape.sequence
        self.place = tape.backward_place
        self.edges = edges
        self.backward: Backward | None = backward
        frame = tape.frames[-1] if tape.frames and saved else None
        self.frame = frame
        self.saved: Sequence[Any] = saved if frame is None else frame.pack(saved)

    def save_output(self, tape: Tape, buffer: Buffer) -> None:
        """Keep the result itself, after the operation has run."""
        frame = tape.frames[-1] if tape.frames else None
        if frame is None:
            self.saved = [*self.saved, buffer]
        else:
            self.frame = frame
            self.saved = [*self.saved, *frame.pack((buffer,))]


Edge = Node | Leaf | None


class Tensor:
    """A handle on storage: elements, bytes of each, and the node that made it."""

    __slots__ = ("buffer", "count", "node", "width")

    def __init__(
        self, count: int, width: int, buffer: Buffer | None = None, node: Edge = None
    ) -> None:
        self.count = count
        self.width = width
        """Bytes of an element."""
        self.buffer = buffer
        """None where the storage is counted elsewhere, as a parameter's is."""
        self.node = node
        """None where no gradient is needed."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.count * self.width


class _Frame:
    """One checkpointed call: empty slots for what it saved, until backward asks for one."""

    __slots__ = ("arguments", "filled", "function", "recomputing", "slots", "tape")

    def __init__(
        self, tape: Tape, function: Callable[..., Tensor], arguments: tuple[Any, ...]
    ) -> None:
        self.tape = tape
        self.function = function
        self.arguments = arguments
        self.slots: list[Buffer | None] = []
        self.filled = 0
        self.recomputing = False

    def pack(self, saved: Sequence[Buffer | None]) -> Sequence[int]:
        """Slots instead of buffers; the second time, the buffers go into them.

        Raises _EarlyStop at the last one, before the operation that saves it runs.
        """
        slots = self.slots
        if not self.recomputing:
            first = len(slots)
            slots.extend([None] * len(saved))
            return range(first, len(slots))
        for buffer in saved:
            slots[self.filled] = buffer
            self.filled += 1
            if self.filled == len(slots):
                raise _EarlyStop
        return ()

    def unpack(self, numbers: Sequence[int]) -> list[Buffer | None]:
        """The saved buffers, computed again at the first call, and no longer kept here."""
        if not self.recomputing:
            self._recompute()
        found = [self.slots[number] for number in numbers]
        for number in numbers:
            self.slots[number] = None
        return found

    def _recompute(self) -> None:
        self.recomputing = True
        tape = self.tape
        tape.frames.append(self)
        try:
            self.function(*self.arguments)
        except _EarlyStop:
            pass
        finally:
            tape.frames.pop()


class Tape:
    """One device's step as it is recorded: the meter, and the modes operations ask for."""

    __slots__ = (
        "autocasts", "backward_place", "casts", "frames", "gradients_enabled",
        "keeps_gradients", "meter", "sequence",
    )  # fmt: skip

    def __init__(self, meter: Meter, *, autocasts: bool, keeps_gradients: bool) -> None:
        self.meter = meter
        self.autocasts = autocasts
        """Matrices and attention run in bfloat16."""
        self.keeps_gradients = keeps_gradients
        """False where gradients of an earlier micro-batch are there to be added to."""
        self.sequence = 0
        self.backward_place = (0, 0)
        """Region of the backward pass, and layer, that nodes made now will run in."""
        self.frames: list[_Frame] = []
        self.gradients_enabled = True
        self.casts: dict[int, Tensor] | None = None
        """Weights that autocast has cast, by their leaf; None outside of `caching_casts`."""

    def buffer(self, size: int, kind: int | None = None) -> Buffer:
        """Take `size` bytes."""
        return Buffer(self.meter, size, kind)

    def gradient(self, size: int) -> Buffer:
        """Take the bytes of a parameter's gradient."""
        return Buffer(self.meter, size, GRADIENTS)

    def makes(self, size: int) -> Backward:
        """A backward that makes one gradient of `size` bytes, whatever it is given."""

        def backward(_gradient: Buffer, _saved: Sequence[Any]) -> Gradients:
            return [self.buffer(size)]

        return backward

    def parameter(self, count: int, width: int, *, trainable: bool) -> Tensor:
        """A weight; its own bytes are not on the tape."""
        node = Leaf(keeps=self.keeps_gradients) if trainable else None
        return Tensor(count, width, None, node)

    def apply(
        self,
        count: int,
        width: int,
        inputs: Sequence[Tensor],
        saved: Sequence[Buffer | None],
        backward: Backward,
        *,
        storage: Buffer | None = None,
        saves_output: bool = False,
    ) -> Tensor:
        """Run one operation; `storage` is given where the result is a view or already there."""
        node = None
        if self.gradients_enabled:
            edges = [one.node for one in inputs]
            if any(edges):
                node = Node(self, edges, saved, backward)
            del edges
        if storage is None:
            storage = Buffer(self.meter, count * width)
        if node is not None and saves_output:
            node.save_output(self, storage)
        return Tensor(count, width, storage, node)

    def checkpoint(self, function: Callable[..., Tensor], *arguments: Any) -> Tensor:
        """Run `function` without keeping what it saves; backward runs it again."""
        if not self.gradients_enabled:
            return function(*arguments)
        self.frames.append(_Frame(self, function, arguments))
        kind, self.meter.kind = self.meter.kind, WORKSPACE
        try:
            result = function(*arguments)
        finally:
            self.frames.pop()
            self.meter.kind = kind
        if result.buffer is not None:
            # The result is what stays, the next layer's input: it is no workspace.
            self.meter.kinds[result.buffer.number] = kind
        return result

    @contextmanager
    def caching_casts(self) -> Iterator[None]:
        """Inside, weights that autocast casts are cast once and kept until the end."""
        before, self.casts = self.casts, {}
        try:
            yield
        finally:
            self.casts = before

    @contextmanager
    def no_grad(self) -> Iterator[None]:
        """Inside, nothing is recorded."""
        before, self.gradients_enabled = self.gradients_enabled, False
        try:
            yield
        finally:
            self.gradients_enabled = before

    def backward(self, root: Tensor) -> None:
        """Run backward from `root`, whose own gradient is one float32."""
        assert isinstance(root.node, Node)
        _Engine(self, root.node).run()


class _Engine:
    """The queue of nodes whose gradients are complete, latest operation first."""

    __slots__ = ("arrived", "gradients", "queue", "tape", "waiting")

    def __init__(self, tape: Tape, root: Node) -> None:
        self.tape = tape
        self.waiting = _dependencies(root)
        self.gradients: dict[int, Buffer | None] = {id(root): tape.buffer(4)}
        self.arrived = 0
        self.queue: list[tuple[int, int, Node | Leaf]] = [(-root.sequence, 0, root)]

    def run(self) -> None:
        """Until no node is left."""
        queue, gradients, meter = self.queue, self.gradients, self.tape.meter
        place = (-1, 0)
        while queue:
            node = heapq.heappop(queue)[2]
            gradient = gradients.pop(id(node), None)
            if isinstance(node, Leaf):
                if gradient is not None and node.keeps and node.gradient is None:
                    node.gradient = gradient
                del gradient, node
                continue
            if place != node.place:
                place = node.place
                meter.enter(place[0])
            results = _results(node, gradient)
            del gradient
            edges, node.edges = node.edges, ()
            del node
            self._hand_on(edges, results)
            del edges, results

    def _hand_on(self, edges: Sequence[Edge], results: Sequence[Buffer | None]) -> None:
        """Give each input its gradient; a second one is added into the first."""
        gradients, waiting = self.gradients, self.waiting
        for edge, result in zip(edges, results, strict=False):
            if edge is None:
                continue
            key = id(edge)
            if result is not None and gradients.get(key) is None:
                gradients[key] = result
            waiting[key] -= 1
            if waiting[key] == 0:
                self.arrived += 1
                heapq.heappush(self.queue, (-edge.sequence, self.arrived, edge))


def _results(node: Node, gradient: Buffer | None) -> Sequence[Buffer | None]:
    saved = node.saved if node.frame is None else node.frame.unpack(node.saved)
    backward, node.backward, node.saved = node.backward, None, ()
    assert backward is not None
    return backward(gradient, saved) if gradient is not None else [None] * len(node.edges)


def _dependencies(root: Node) -> dict[int, int]:
    """How many gradients each node waits for."""
    waiting: dict[int, int] = {}
    stack: list[Node] = [root]
    while stack:
        for edge in stack.pop().edges:
            if edge is None:
                continue
            key = id(edge)
            if key in waiting:
                waiting[key] += 1
                continue
            waiting[key] = 1
            if isinstance(edge, Node):
                stack.append(edge)
    return waiting
