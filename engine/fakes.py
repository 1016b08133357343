"""Fakes: what makes fake CPU tensors go the way that real ones go on a CUDA device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, cast
from unittest import mock

import torch
from torch import nn

BLOCK, OUTER_BLOCK, SMALL_TENSOR = 64, 256, 4096
"""bitsandbytes: elements per scale, scales per scale of scales, and below which 32-bit states."""
FUSED_TOKENS = 1536
"""bitsandbytes 0.50 multiplies up to this many 16-bit tokens without unpacking the matrix."""


class _Kernel:
    """A Triton kernel: it writes where it is told and allocates nothing."""

    def __getitem__(self, _grid: Any) -> Any:
        return lambda *_args, **_options: None


@contextlib.contextmanager
def real_devices_do(tracer: Any) -> Iterator[None]:
    """Inside, the libraries run as on a CUDA device; see each line for what would differ."""
    import bitsandbytes  # noqa: F401  registers the fake kernels of 4-bit layers
    import bitsandbytes.nn.modules as layers
    import torch._meta_registrations as meta
    import transformers.masking_utils
    import trl.kernels.chunked_logprob as loss
    import trl.trainer.utils

    enabled, native_dropout = torch.is_autocast_enabled, torch.native_dropout
    tracer.workspaces[torch.ops.bitsandbytes.gemm_4bit.default] = _unpacked

    def dropout(values: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        return native_dropout(values, p, True)[0] if training and p > 0 else values

    patches = (
        # Fakes look like tracing, for which a mask of all pairs would be made.
        mock.patch.object(transformers.masking_utils, "find_packed_sequence_indices", _nothing),
        # The loss folds its tiles in Triton, in place.
        mock.patch.object(loss, "_use_triton", _yes),
        mock.patch.object(trl.trainer.utils, "_use_triton", _yes),
        mock.patch.object(loss, "_forward_kernel", _Kernel()),
        mock.patch.object(loss, "_backward_kernel", _Kernel()),
        mock.patch.object(loss, "triton", _Triton, create=True),
        mock.patch.object(loss, "_addmm_fp32", _nothing),
        # bitsandbytes' own parameter class cannot hold a fake, so the layer's state is kept beside.
        mock.patch.object(layers, "fix_4bit_weight_quant_state_from_module", _with_state),
        # Grouped products of float32, which a device multiplies one by one, are refused on fakes.
        mock.patch.object(meta, "_meta_grouped_mm_common", _grouped),
        # A CPU's dropout keeps a mask as wide as its values, a CUDA device's keeps bytes.
        mock.patch.object(nn.functional, "dropout", dropout),
        # Without a device in the question, torch answers for CUDA.
        mock.patch.object(
            torch, "is_autocast_enabled", lambda *device: enabled(device[0] if device else "cpu")
        ),
    )
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(cast("contextlib.AbstractContextManager[Any]", patch))
        yield


class _Triton:
    @staticmethod
    def cdiv(a: int, b: int) -> int:
        return -(-a // b)


def _yes(_device: Any) -> bool:
    return True


def _grouped(
    a: torch.Tensor, b: torch.Tensor, *_scales: Any, offs: torch.Tensor, **_options: Any
) -> torch.Tensor:
    """Shape of a grouped product: a matrix for each group of rows, or a product of each group."""
    if b.dim() == 3:
        return a.new_empty(a.shape[0], b.shape[-1])
    return a.new_empty(offs.shape[0], a.shape[0], b.shape[1])


def _nothing(*_args: Any, **_options: Any) -> None:
    return None


def _with_state(layer: Any) -> None:
    """What FSDP gathered is a plain parameter."""
    layer.weight.quant_state = layer.quant_state


def _unpacked(
    values: torch.Tensor, _weight: Any, shape: Sequence[int], *_: Any, **options: Any
) -> int:
    """Bytes of a 4-bit matrix unpacked, with its scales, for more tokens than the kernel takes."""
    rows, columns = shape[0], values.shape[-1]
    if values.numel() // columns <= FUSED_TOKENS and values.dtype != torch.float32:
        return 0
    scales = -(-rows * columns // BLOCK) * 4
    twice = 2 * scales if options.get("absmax_8bit") is not None else 0
    unpacked: int = rows * columns * values.element_size()
    return unpacked + twice


def quantised(model: Any, settings: Any) -> None:
    """Put bitsandbytes' 4-bit layers in place of a meta model's linear ones, but the head."""
    import bitsandbytes

    for name, module in list(model.named_modules()):
        if not isinstance(module, nn.Linear) or name.endswith("lm_head"):
            continue
        parent, _, own = name.rpartition(".")
        layer = bitsandbytes.nn.Linear4bit(
            module.in_features,
            module.out_features,
            bias=module.bias is not None,
            compute_dtype=settings.bnb_4bit_compute_dtype,
            compress_statistics=True,
            quant_type="nf4",
            quant_storage=settings.bnb_4bit_quant_storage,
            device="meta",
        )
        layer.bias = module.bias
        for parameter in layer.parameters():
            parameter.requires_grad_(False)
        setattr(model.get_submodule(parent), own, layer)
    model.is_loaded_in_4bit = True


def with_values(model: Any, compute_dtype: torch.dtype) -> None:
    """Fake tensors in place of a meta model's shapes; tied ones stay one."""
    import bitsandbytes

    made: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, bitsandbytes.nn.Linear4bit):
            _fill_4bit(module, compute_dtype)
        for held in (module._parameters, module._buffers):
            for name, tensor in list(held.items()):
                if tensor is None or tensor.device.type != "meta":
                    continue
                if id(tensor) not in made:
                    # The meta tensor is kept beside, lest another one gets its id.
                    made[id(tensor)] = (_fake(tensor), tensor)
                held[name] = made[id(tensor)][0]


def _fake(tensor: Any) -> Any:
    empty = torch.empty(tensor.shape, dtype=tensor.dtype)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty


def _fill_4bit(layer: Any, compute_dtype: torch.dtype) -> None:
    """A packed matrix with scales of scales, as bitsandbytes makes it on a device.

    Its own parameter class cannot hold a fake tensor, so a plain one carries its state.
    """
    from bitsandbytes.functional import QuantState

    rows, columns = layer.out_features, layer.in_features
    storage: torch.dtype = layer.quant_storage if hasattr(layer, "quant_storage") else torch.uint8
    packed = torch.empty((rows * columns + 1) // 2 // storage.itemsize, 1, dtype=storage)
    scales = -(-rows * columns // BLOCK)
    outer = QuantState(
        absmax=torch.empty(-(-scales // OUTER_BLOCK)),
        code=torch.empty(256),
        blocksize=OUTER_BLOCK,
        dtype=torch.float32,
    )
    state = QuantState(
        absmax=torch.empty(scales, dtype=torch.uint8),
        shape=torch.Size((rows, columns)),
        dtype=compute_dtype,
        blocksize=BLOCK,
        code=torch.empty(16),
        quant_type="nf4",
        offset=torch.empty(()),
        state2=outer,
    )
    weight = nn.Parameter(packed, requires_grad=False)
    weight.quant_state = state
    layer._parameters["weight"] = weight
    layer.quant_state = state
    layer.support_avx512bf16_for_cpu = False


class EightBitAdam:
    """The states of bitsandbytes' 8-bit AdamW, whose kernels need a device: sizes alone.

    Embeddings (`wide`) keep 32-bit states, as the trainer registers them, and so do small tensors.
    """

    def __init__(self, trained: Sequence[Any], wide: Sequence[Any]) -> None:
        self.trained = trained
        self.wide = {id(tensor) for tensor in wide}
        self.states: list[torch.Tensor] = []

    def step(self) -> None:
        """Make the states, once."""
        if self.states:
            return
        self.states += [torch.zeros(256), torch.zeros(256)]
        for tensor in self.trained:
            if tensor.numel() < SMALL_TENSOR or id(tensor) in self.wide:
                self.states += [torch.zeros_like(tensor, dtype=torch.float32) for _ in range(2)]
                continue
            self.states += [torch.zeros_like(tensor, dtype=torch.uint8) for _ in range(2)]
            scales = -(-tensor.numel() // OUTER_BLOCK)
            self.states += [torch.zeros(scales), torch.zeros(scales)]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Let go of the gradients."""
        assert set_to_none
        for tensor in self.trained:
            tensor.grad = None
