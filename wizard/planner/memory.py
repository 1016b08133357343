"""Spec + model → predicted peak memory of one rank, part by part, from closed forms.

For CPU ranks `pytest -m engine -s tests/test_memory_measured.py` prints predicted over measured.
For CUDA ranks nothing here was measured: context, NCCL and allocator are allowances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.spec import Spec
from wizard.facts import GIB, Model
from wizard.plan import Memory, MemoryPart
from wizard.planner.activations import Activations, activations
from wizard.planner.shape import Shape, shape_of
from wizard.wording import counted

MIB = 1024**2
DTYPE_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}

NF4_BYTES = 0.51587
"""Per element: half a byte, a byte of scale for 64, and the scales' own scales."""
BUCKET_PARAMETERS = 5 * 10**8
"""DeepSpeed's bucket for gradients on their way to the other ranks."""
LIVE_PARAMETERS = 10**9
"""DeepSpeed keeps this many gathered parameters that it will need again."""
RANK_PROCESS_BYTES = 960 * MIB
"""A rank's process with the training libraries loaded, measured without the weights."""
CPU_ALLOCATOR_SHARE = 0.7
"""What the C library's allocator holds beyond live short-lived tensors: it seldom gives back."""
SHORT_LIVED = frozenset({"activations", "layer workspace", "loss"})
CPU_TILE_BYTES = 33
"""Without Triton the loss holds eight float32 copies of its tile, and a mask, at once."""
ALLOCATOR_SHARE = 0.05
ALLOCATOR_BYTES = 300 * MIB
"""What a caching allocator holds beyond live tensors."""
CONTEXT_BYTES = 600 * MIB
"""CUDA context with its kernels: 0.3 GiB on Ampere to 0.65 GiB on Hopper."""
NCCL_BYTES = 700 * MIB
DEVICE_SHARE = 0.92
HOST_SHARE = 0.95

LEFT_OUT_ALWAYS = ("page cache of the files read", "evaluation and saving")


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What the ranks may use."""

    device_bytes: int | None
    host_bytes: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """The inputs every formula reads."""

    spec: Spec
    shape: Shape
    weight_bytes: int

    @property
    def full(self) -> bool:
        return self.spec.method.method == "full"

    @property
    def qlora(self) -> bool:
        return self.spec.method.method == "qlora"

    @property
    def zero3(self) -> bool:
        return self.spec.parallel.strategy == "zero3"

    @property
    def cpu(self) -> bool:
        return self.spec.parallel.device_kind == "cpu"

    @property
    def ranks(self) -> int:
        return self.spec.parallel.num_devices

    @property
    def adapter(self) -> int:
        return 0 if self.full else self.shape.adapter(self.spec.method.lora_rank)

    @property
    def trainable(self) -> int:
        return self.shape.parameters if self.full else self.adapter

    @property
    def trainable_bytes(self) -> int:
        """Bytes of a trainable element: adapters are float32, but on 4-bit or sharded weights."""
        if self.full:
            return self.weight_bytes
        return 2 if self.zero3 or (self.qlora and self.spec.model.dtype == "bfloat16") else 4


def estimate(spec: Spec, model: Model, budget: Budget) -> Memory:
    """Predicted peak of the busiest rank and of the host.

    The peak is the largest of four moments, so parts that never meet are not added up.
    """
    shape = shape_of(model)
    if shape is None:
        return _unknown_shape(spec, model, budget)
    case = _Case(spec=spec, shape=shape, weight_bytes=DTYPE_BYTES[spec.model.dtype])
    live = max(_moments(case), key=lambda parts: sum(part.bytes for part in parts))
    parts = (*live, *_around(case, live))
    device_bytes = sum(part.bytes for part in parts)
    host_bytes = case.ranks * (device_bytes if case.cpu else RANK_PROCESS_BYTES) + _offloaded(case)
    return Memory(
        parts=parts,
        device_bytes=device_bytes,
        device_budget_bytes=budget.device_bytes,
        host_bytes=host_bytes,
        host_budget_bytes=budget.host_bytes,
        left_out=_left_out(case, model),
    )


def _moments(case: _Case) -> list[tuple[MemoryPart, ...]]:
    """Live parts at the loss, at the first and the last layer of backward, and at the step."""
    kept = activations(case.spec, case.shape, case.weight_bytes)
    held = (*_weights(case), *_states(case))
    gradients = _gradients(case)
    early = gradients if case.spec.training.gradient_accumulation_steps > 1 else ()
    loss = (*held, *early, kept.kept, _loss(case, kept))
    first = (*held, *early, kept.kept, kept.working)
    last = (*held, *gradients, kept.working)
    tied = _tied_gradient(case)
    step = (*held, *gradients, *tied, *_step(case))
    return [tuple(p for p in moment if p.bytes) for moment in (loss, first, last, step)]


def _weights(case: _Case) -> tuple[MemoryPart, ...]:
    shape, size = case.shape, case.weight_bytes
    if case.qlora:
        base = _part(
            "weights",
            shape.linear * NF4_BYTES + shape.unquantised * size,
            f"{shape.linear:,} 4-bit × {NF4_BYTES} B + {shape.unquantised:,} others × {size} B",
        )
    elif case.zero3:
        base = _sharded_weights(case)
    else:
        base = _part("weights", shape.parameters * size, f"{shape.parameters:,} × {size} B")
    workspace = _dequantised(case) if case.qlora else ()
    if case.full:
        return (base, *workspace)
    bytes_each = case.trainable_bytes
    rank = case.spec.method.lora_rank
    text = f"rank {rank} on all linear layers: {case.adapter:,} × {bytes_each} B"
    return (base, _part("adapter", case.adapter * bytes_each, text), *workspace)


def _sharded_weights(case: _Case) -> MemoryPart:
    shape, size = case.shape, case.weight_bytes
    live = min(shape.parameters, LIVE_PARAMETERS) + shape.head
    own = 0 if case.spec.parallel.offload == "parameters" else shape.parameters // case.ranks
    return _part(
        "weights",
        (own + live) * size,
        f"({own:,} own of {counted(case.ranks, 'shard')} + {live:,} gathered) × {size} B",
    )


def _dequantised(case: _Case) -> tuple[MemoryPart, ...]:
    largest = case.shape.hidden * max(case.shape.intermediate, case.shape.attention)
    size = case.weight_bytes
    return (_part("4-bit workspace", largest * size, f"one matrix of {largest:,} × {size} B"),)


def _states(case: _Case) -> tuple[MemoryPart, ...]:
    count, ranks = case.trainable, case.ranks
    if case.zero3:
        if case.spec.parallel.offload != "none":
            return ()
        text = f"{count:,} × 12 B (float32 copy and two moments) / {counted(ranks, 'rank')}"
        return (_part("optimizer", count * 12 / ranks, text),)
    if case.spec.training.optim == "adamw_bnb_8bit":
        whole = case.shape.head if case.full else 0
        text = f"{count - whole:,} × 2.03 B + {whole:,} of the embedding × 8 B"
        states = _part("optimizer", (count - whole) * 2.03125 + whole * 8, text)
    else:
        each = 2 * case.trainable_bytes
        states = _part("optimizer", count * each, f"two moments of {count:,} × {each // 2} B")
    return (states, *_buckets(case))


def _buckets(case: _Case) -> tuple[MemoryPart, ...]:
    if case.spec.parallel.strategy != "ddp":
        return ()
    size = case.trainable_bytes
    text = f"DDP's copy of the gradients: {case.trainable:,} × {size} B"
    return (_part("gradient buckets", case.trainable * size, text),)


def _gradients(case: _Case) -> tuple[MemoryPart, ...]:
    count, size = case.trainable, case.trainable_bytes
    if case.zero3:
        own = 0 if case.spec.parallel.offload != "none" else count // case.ranks
        head = case.shape.head if case.full else 0
        bucket = f"{BUCKET_PARAMETERS:,} bucket"
        text = f"({own:,} own + {head:,} of the output head + {bucket}) × {size} B"
        return (_part("gradients", (own + head + BUCKET_PARAMETERS) * size, text),)
    return (_part("gradients", count * size, f"{count:,} × {size} B"),)


def _tied_gradient(case: _Case) -> tuple[MemoryPart, ...]:
    if not (case.full and case.shape.tied) or case.zero3:
        return ()
    text = f"second gradient of the tied embedding: {case.shape.head:,} × {case.weight_bytes} B"
    return (_part("embedding gradient", case.shape.head * case.weight_bytes, text),)


def _step(case: _Case) -> tuple[MemoryPart, ...]:
    if not case.zero3 or case.spec.parallel.offload != "none":
        return ()
    shared = f"{case.trainable:,} × 6 B / {counted(case.ranks, 'rank')}"
    text = f"float32 gradients and a flat copy: {shared}"
    return (_part("optimizer step", case.trainable * 6 / case.ranks, text),)


def _loss(case: _Case, kept: Activations) -> MemoryPart:
    """The fused loss: tiles of 4096 tokens × 32768 words, never all logits."""
    tokens, hidden = kept.tokens, case.shape.hidden
    tile = min(tokens, 4096) * min(case.shape.vocabulary, 32768)
    each = CPU_TILE_BYTES if case.cpu else 2
    total = tile * each + tokens * hidden * (4 + 2 * case.weight_bytes)
    text = f"tile of {tile:,} logits × {each} B + gradients of {tokens:,} tokens × {hidden}"
    if case.full:
        total += case.shape.head * (4 + case.weight_bytes)
        text += f" + float32 gradient of the head, {case.shape.head:,}"
    return _part("loss", total, text)


def _around(case: _Case, live: tuple[MemoryPart, ...]) -> tuple[MemoryPart, ...]:
    """What lies around the live tensors."""
    if case.cpu:
        return _around_on_cpu(live)
    slack = sum(part.bytes for part in live) * ALLOCATOR_SHARE + ALLOCATOR_BYTES
    parts = [
        _part("allocator", slack, f"{ALLOCATOR_SHARE:.0%} of the above + {_gib(ALLOCATOR_BYTES)}"),
        _part("context", CONTEXT_BYTES, f"CUDA context and kernels, {_gib(CONTEXT_BYTES)}"),
    ]
    if case.ranks > 1:
        parts.append(_part("communication", NCCL_BYTES, f"NCCL buffers, {_gib(NCCL_BYTES)}"))
    return tuple(parts)


def _around_on_cpu(live: tuple[MemoryPart, ...]) -> tuple[MemoryPart, ...]:
    slack = sum(p.bytes for p in live if p.name in SHORT_LIVED) * CPU_ALLOCATOR_SHARE
    held = f"{CPU_ALLOCATOR_SHARE} × activations and loss: freed, but not given back"
    libraries = f"Python with the training libraries, {_gib(RANK_PROCESS_BYTES)}"
    return (_part("allocator", slack, held), _part("process", RANK_PROCESS_BYTES, libraries))


def _offloaded(case: _Case) -> int:
    """Host bytes of what ZeRO-3 moves off the devices, over all ranks."""
    if case.spec.parallel.offload == "none":
        return 0
    states = case.trainable * 18
    moved = case.spec.parallel.offload == "parameters"
    return states + (case.shape.parameters * case.weight_bytes if moved else 0)


def _left_out(case: _Case, model: Model) -> tuple[str, ...]:
    found = list(LEFT_OUT_ALWAYS)
    if not case.cpu:
        found.append("workspaces inside attention and matrix kernels")
        found.append("host pages of the CUDA libraries")
    if model.architecture and "moe" in model.architecture:
        found.append("activations of routed experts")
    if case.spec.parallel.offload != "none":
        found.append("rounding of pinned host memory, up to twice its size")
    if case.spec.method.lora_dropout > 0 and not case.full:
        found.append("dropout masks of the adapter")
    return tuple(found)


def _unknown_shape(spec: Spec, model: Model, budget: Budget) -> Memory:
    """Weights alone, when config.json does not give the dimensions."""
    size = DTYPE_BYTES[spec.model.dtype]
    count = model.parameters or 0
    weights = _part("weights", count * size, f"{count:,} × {size} B")
    return Memory(
        parts=(weights,),
        device_bytes=weights.bytes,
        device_budget_bytes=budget.device_bytes,
        host_bytes=spec.parallel.num_devices * RANK_PROCESS_BYTES,
        host_budget_bytes=budget.host_bytes,
        left_out=("everything but the weights: the model's dimensions are unknown",),
    )


def _part(name: str, size: float, formula: str) -> MemoryPart:
    return MemoryPart(name=name, bytes=round(size), formula=formula)


def _gib(size: int) -> str:
    return f"{size / GIB:.2f} GiB"
