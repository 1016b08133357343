"""Activations of one micro-batch: what autograd keeps, and what one layer's backward needs."""

from __future__ import annotations

from dataclasses import dataclass

from engine.rules import joins_rows
from engine.spec import Spec
from wizard.plan import MemoryPart
from wizard.planner.shape import Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Activations:
    """Bytes on one rank."""

    tokens: int
    """Padded tokens of a micro-batch at its longest."""
    kept: MemoryPart
    """Kept from forward to backward over all layers."""
    working: MemoryPart
    """Needed on top while one layer runs backward."""


def activations(spec: Spec, shape: Shape, weight_bytes: int) -> Activations:
    """Activations of the longest micro-batch the spec allows."""
    length = spec.data.max_length
    micro = spec.training.per_device_train_batch_size * spec.method.sequences_per_row
    tokens = micro * length
    saved, peak = _per_token(spec, shape, weight_bytes)
    layers = -(-shape.layers // spec.parallel.devices_per_rank)
    joined = joins_rows(spec)
    sequences, width = (1, tokens) if joined else (micro, length)
    padding = _padding(shape, sequences, width, weight_bytes, masked=joined)
    if spec.training.gradient_checkpointing:
        each, kept_text = shape.hidden * weight_bytes, "each layer's input"
        kept_bytes = layers * tokens * each
        working_bytes = tokens * peak + padding
        working_text = f"one layer computed again: {tokens:,} tokens × {peak:,} B"
    else:
        each, kept_text = saved, "all that backward needs"
        kept_bytes = layers * (tokens * each + padding)
        working_bytes = tokens * (peak - saved)
        working_text = f"gradients inside one layer: {tokens:,} tokens × {peak - saved:,} B"
    kept_formula = f"{kept_text}: {layers} layers × {tokens:,} tokens × {each:,} B"
    return Activations(
        tokens=tokens,
        kept=MemoryPart(name="activations", bytes=kept_bytes, formula=kept_formula),
        working=MemoryPart(name="layer workspace", bytes=working_bytes, formula=working_text),
    )


def _per_token(spec: Spec, shape: Shape, weight_bytes: int) -> tuple[int, int]:
    """(bytes kept, bytes at the peak of its backward) of one token in one layer."""
    h, f, a, kv = shape.hidden, shape.passed, shape.attention, shape.key_value
    rest = 4 * shape.heads + 8
    rank = 0 if spec.method.method == "full" else spec.method.lora_rank
    if weight_bytes == 4:
        kept = (16 if rank else 24) * h + 8 * a + 8 * kv + 16 * f + rest + 28 * rank
        return kept, kept + 4 * h + 8 * f
    if not rank:
        return 16 * h + 4 * a + 4 * kv + 8 * f + rest, 18 * h + 4 * a + 4 * kv + 12 * f + rest
    if not spec.method.use_dora or spec.parallel.strategy in ("zero1", "zero2", "zero3"):
        kept = 12 * h + 4 * a + 4 * kv + 8 * f + rest + 14 * rank
        return kept, kept + 2 * h + 4 * f
    kept = 18 * h + 6 * a + 4 * kv + 8 * f + rest + 14 * rank
    return kept, kept + 10 * h + 6 * f


def _padding(
    shape: Shape, micro: int, length: int, weight_bytes: int, *, masked: bool = False
) -> int:
    """Extra bytes of a layer when rows share a micro-batch, or (`masked`) a sequence.

    Mask and copies.
    """
    if micro == 1 and not masked:
        return 0
    expanded = 2 * micro * length * (shape.attention - shape.key_value) * weight_bytes
    return expanded + micro * length * length * weight_bytes
