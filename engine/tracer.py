"""Tracer: counts the live tensors of a step that runs on fake tensors, so that no device is needed.

A dispatch mode sees each storage that an operation returns, and a weak reference tells when it is
freed. What operations hold inside themselves is added by formulas; what fake CPU tensors do
otherwise than real CUDA ones is put right, each with its reason beside it.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._guards import active_fake_mode
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
QUERY_ROWS, QUERY_WIDTH = 128, 32
"""The flash kernel's backward rounds rows and head width up to these."""
WRAPPERS = frozenset({"_fn", "inner", "wrapper", "__torch_dispatch__"})
"""Frames that torch puts between the engine and a dispatch mode."""
TEMPORARY_USES = 4
"""References to a gradient that only the engine holds: beyond these somebody else needs it."""


class Tracer(TorchDispatchMode):  # type: ignore[misc]
    """Bytes of live storages, and their peak in each moment.

    `scored_tokens` is how many tokens the loss counts, which fake labels cannot say.
    """

    def __init__(self, scored_tokens: int) -> None:
        super().__init__()
        self.scored_tokens = scored_tokens
        self.live_bytes = 0
        self.moment = ""
        self.peaks: dict[str, int] = {}
        self._held: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._mode: Any = None
        self.workspaces: dict[Any, Callable[..., int]] = {
            aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _flash_backward,
        }

    def __enter__(self) -> Tracer:
        self._mode = active_fake_mode()
        found: Tracer = super().__enter__()
        return found

    @contextlib.contextmanager
    def seeing_resizes(self) -> Iterator[None]:
        """Inside, storages that are made longer or shorter are counted anew.

        FSDP gives gathered weights back so, which no operation and no reference tells of.
        """
        resize = torch.UntypedStorage.resize_

        def counted(storage: Any, size: int) -> Any:
            result = resize(storage, size)
            if storage._cdata in self._held:
                before, reference = self._held[storage._cdata]
                self._held[storage._cdata] = (size, reference)
                self.live_bytes += size - before
                self._note(0)
            return result

        torch.UntypedStorage.resize_ = counted
        try:
            yield
        finally:
            torch.UntypedStorage.resize_ = resize

    def hold(self, tensor: torch.Tensor | None) -> None:
        """Count a tensor that was there before the step."""
        if tensor is not None:
            self._add(tensor.untyped_storage())

    @contextlib.contextmanager
    def during(self, moment: str) -> Iterator[None]:
        """Peaks belong to this moment; moments may lie inside one another."""
        before, self.moment = self.moment, moment
        try:
            yield
        finally:
            self.moment = before

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # what it does with a rank's share comes by here again
        if active_fake_mode() is not self._mode:
            return func(*args, **kwargs)  # shapes of the whole are worked out, on no device
        if func is aten.index.Tensor and _is_mask(args[1]):
            return self._select(args[0], args[1][0])
        if func is aten.add.Tensor and _sums_gradients(args):
            # The engine adds in place, but under any dispatch mode it makes a new tensor.
            result = aten.add_.Tensor(*args)
            self._note(0)
            return result
        workspace = self.workspaces.get(func)
        extra = workspace(*args, **kwargs) if workspace else 0
        result = func(*args, **kwargs)
        self._visit(result)
        self._note(extra)
        return result

    def _select(self, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Rows that a mask keeps; their number is told, since a fake mask has no values."""
        kept = values.new_empty([self.scored_tokens, *values.shape[mask.dim() :]])
        self._visit(kept)
        # nonzero: a byte and an index a row to scan, two indices for each row kept.
        self._note(mask.numel() * 9 + self.scored_tokens * 16)
        return kept

    def _visit(self, result: Any) -> None:
        if isinstance(result, torch.Tensor):
            if result.device.type != "meta":
                self._add(result.untyped_storage())
        elif isinstance(result, (tuple, list)):
            for part in result:
                self._visit(part)

    def _add(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._held:
            return
        self._held[key] = (size, weakref.ref(storage, lambda gone: self._drop(key, gone)))
        self.live_bytes += size

    def _drop(self, key: int, gone: Any) -> None:
        # The address may belong to a newer storage already.
        if key in self._held and self._held[key][1] is gone:
            self.live_bytes -= self._held.pop(key)[0]

    def _note(self, extra_bytes: int) -> None:
        total = self.live_bytes + extra_bytes
        if total > self.peaks.get(self.moment, 0):
            self.peaks[self.moment] = total


def _is_mask(indices: Any) -> bool:
    return len(indices) == 1 and indices[0] is not None and indices[0].dtype == torch.bool


def _sums_gradients(args: Any) -> bool:
    """Whether autograd sums two gradients of one tensor, of which only it knows the first."""
    if len(args) < 2 or not isinstance(args[1], torch.Tensor):
        return False
    first, second = args[0], args[1]
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    frame: Any = sys._getframe(2)
    while frame is not None and frame.f_code.co_name in WRAPPERS:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "_engine_run_backward":
        return False
    return bool(first._use_count() <= TEMPORARY_USES and first.is_contiguous())


def _flash_backward(
    _grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, *_: Any, **__: Any
) -> int:
    """Workspace of the CUDA kernel: softmax sums and float32 query gradients, rounded up; and, with
    fewer key heads, their gradients once per query head (FlashAttention 2, `mha_bwd`)."""
    rows, heads, length, width = query.shape
    length = -(-length // QUERY_ROWS) * QUERY_ROWS
    width_rounded = -(-width // QUERY_WIDTH) * QUERY_WIDTH
    size: int = rows * heads * length * 4 * (1 + width_rounded)
    if key.shape[1] != heads:
        size += 2 * rows * key.shape[2] * heads * width * query.element_size()
    return size
