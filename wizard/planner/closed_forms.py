"""Live tensors of one rank by closed formulas: for CPU ranks, and for layers nobody simulates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.spec import Spec
from wizard.plan import MemoryPart
from wizard.planner.activations import Activations, activations
from wizard.planner.shape import Shape
from wizard.wording import counted

DTYPE_BYTES: Mapping[str, int] = {"bfloat16": 2, "float16": 2, "float32": 4}

NF4_BYTES = 0.51587
"""Per element: half a byte, a byte of scale for 64, and the scales' own scales."""
BUCKET_PARAMETERS = 5 * 10**8
"""DeepSpeed's bucket for gradients on their way to the other ranks."""
LIVE_PARAMETERS = 10**9
"""DeepSpeed keeps this many gathered parameters that it will need again."""
CPU_LOGITS, CPU_FOLDED = 2**26, 2**20
"""Logits that a CPU rank's loss makes at once, and those of them that it takes to float32
(`engine.head`, which the wizard does not import: a test holds the two together)."""
CPU_FOLDED_BYTES = 20
"""The latter as they are, their logarithms, their exponentials, and what is made of those."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """The inputs every formula reads."""

    spec: Spec
    shape: Shape
    weight_bytes: int
    """Bytes of an element of the base weights as loaded."""

    @property
    def full(self) -> bool:
        """All weights are trained."""
        return self.spec.method.method == "full"

    @property
    def qlora(self) -> bool:
        """The base weights are 4-bit."""
        return self.spec.method.method == "qlora"

    @property
    def zero3(self) -> bool:
        """Everything is sharded by DeepSpeed."""
        return self.spec.parallel.strategy == "zero3"

    @property
    def fsdp(self) -> bool:
        """Everything is sharded by FSDP."""
        return self.spec.parallel.strategy == "fsdp"

    @property
    def deepspeed(self) -> bool:
        """DeepSpeed shares something, and keeps float32 copies of what is trained."""
        return self.spec.parallel.strategy in ("zero1", "zero2", "zero3")

    @property
    def split(self) -> int:
        """Devices over which a rank's layers are spread."""
        return self.spec.parallel.devices_per_rank

    @property
    def ddp(self) -> bool:
        """Whole models side by side, or groups of devices that hold one each."""
        return self.ranks > 1 and (self.spec.parallel.strategy == "ddp" or self.split > 1)

    @property
    def cpu(self) -> bool:
        """Ranks are CPU processes."""
        return self.spec.parallel.device_kind == "cpu"

    @property
    def ranks(self) -> int:
        """Processes of the run."""
        return self.spec.parallel.ranks

    @property
    def adapter(self) -> int:
        """Elements of the adapter."""
        return 0 if self.full else self.shape.adapter(self.spec.method.lora_rank)

    @property
    def trainable(self) -> int:
        """Elements that are trained."""
        return self.shape.parameters if self.full else self.adapter

    @property
    def trainable_bytes(self) -> int:
        """Bytes of a trainable element: adapters are float32, but on 4-bit or sharded weights."""
        if self.fsdp:
            return 4
        if self.full:
            return self.weight_bytes
        if self.deepspeed:
            return self.weight_bytes
        return 2 if self.qlora and self.spec.model.dtype == "bfloat16" else 4


def live_parts(case: Case) -> tuple[MemoryPart, ...]:
    """Live tensors at the worst of four moments: parts that never meet are not added up."""
    return max(_moments(case), key=lambda parts: sum(part.bytes for part in parts))


def _moments(case: Case) -> list[tuple[MemoryPart, ...]]:
    """Live parts at the loss, at the first and the last layer of backward, and at the step."""
    kept = activations(case.spec, case.shape, case.weight_bytes)
    held = (*_weights(case), *_states(case))
    gradients = _gradients(case)
    # DDP's buckets are the gradients, and stay from step to step.
    stay = case.spec.training.gradient_accumulation_steps > 1 or case.ddp
    early = gradients if stay else ()
    loss = (*held, *early, kept.kept, _loss(case, kept))
    first = (*held, *early, kept.kept, kept.working)
    last = (*held, *gradients, kept.working)
    tied = _tied_gradient(case)
    step = (*held, *gradients, *tied, *_step(case))
    return [tuple(p for p in moment if p.bytes) for moment in (loss, first, last, step)]


def _weights(case: Case) -> tuple[MemoryPart, ...]:
    shape, size = case.shape, case.weight_bytes
    if case.qlora:
        shares = case.ranks if case.fsdp or case.zero3 else case.split
        base = _part(
            "weights",
            (shape.linear * NF4_BYTES + shape.unquantised * size) / shares,
            f"({shape.linear:,} 4-bit × {NF4_BYTES} B + {shape.unquantised:,} others × {size} B)"
            + (f" / {shares}" if shares > 1 else ""),
        )
    elif case.zero3 or case.fsdp:
        base = _sharded_weights(case)
    else:
        text = f"{shape.parameters:,} × {size} B" + (f" / {case.split}" if case.split > 1 else "")
        base = _part("weights", shape.parameters * size / case.split, text)
    workspace = _dequantised(case) if case.qlora else ()
    if case.full:
        return (base, *workspace)
    bytes_each = case.trainable_bytes
    rank = case.spec.method.lora_rank
    text = f"rank {rank} on all linear layers: {case.adapter:,} × {bytes_each} B"
    return (base, _part("adapter", case.adapter * bytes_each, text), *workspace)


def _sharded_weights(case: Case) -> MemoryPart:
    shape, size = case.shape, case.weight_bytes
    kept = LIVE_PARAMETERS if case.zero3 else 4 * shape.layer_linear
    live = min(shape.parameters, kept) + shape.head
    own = 0 if case.spec.parallel.offload == "parameters" else shape.parameters // case.ranks
    each = 4 if case.fsdp and case.full else size
    return _part(
        "weights",
        own * each + live * size,
        f"{own:,} own of {counted(case.ranks, 'shard')} × {each} B "
        f"+ {live:,} gathered in use × {size} B",
    )


def _dequantised(case: Case) -> tuple[MemoryPart, ...]:
    largest = case.shape.hidden * max(case.shape.intermediate, case.shape.attention)
    size = case.weight_bytes
    return (_part("4-bit workspace", largest * size, f"one matrix of {largest:,} × {size} B"),)


FEWER_STATES: Mapping[str, tuple[float, str]] = {
    "adafactor": (0.05, "sums of rows and columns"),
    "lion_32bit": (4, "one moment"),
    "lion_8bit": (1.016, "one 8-bit moment"),
    "paged_lion_32bit": (4, "one moment"),
    "paged_lion_8bit": (1.016, "one 8-bit moment"),
    "sgd": (0, "nothing"),
}
"""Optimizer → bytes it keeps of each trained number, and what that is. Adafactor's sums are a row's
and a column's for each matrix: 2 / 128 of 4 B for one of 128 × 128, less for a larger."""


def _states(case: Case) -> tuple[MemoryPart, ...]:
    count, ranks = case.trainable, case.ranks
    if case.spec.parallel.offload != "none":
        return ()
    if case.deepspeed:
        text = f"{count:,} × 12 B (float32 copy and two moments) / {counted(ranks, 'rank')}"
        return (_part("optimizer", count * 12 / ranks, text),)
    if case.fsdp:
        text = f"two moments of {count:,} × 4 B / {counted(ranks, 'rank')}"
        return (_part("optimizer", count * 8 / ranks, text),)
    if case.spec.training.optim in FEWER_STATES:
        each, text = FEWER_STATES[case.spec.training.optim]
        said = f"{text} of {count:,}: {each:g} B each"
        return (_part("optimizer", count * each / case.split, said),)
    if case.spec.training.optim == "adamw_bnb_8bit":
        whole = case.shape.head if case.full else 0
        text = f"{count - whole:,} × 2.03 B + {whole:,} of the embedding × 8 B"
        states = _part("optimizer", (count - whole) * 2.03125 + whole * 8, text)
    else:
        each = 2 * case.trainable_bytes / case.split
        text = f"two moments of {count:,} × {case.trainable_bytes} B"
        text += f" / {case.split}" if case.split > 1 else ""
        states = _part("optimizer", count * each, text)
    return (states,)


def _gradients(case: Case) -> tuple[MemoryPart, ...]:
    count, size = case.trainable, case.trainable_bytes
    if case.zero3 or case.spec.parallel.strategy == "zero2":
        own = 0 if case.spec.parallel.offload != "none" else count // case.ranks
        head = case.shape.head if case.full else 0
        bucket = f"{BUCKET_PARAMETERS:,} bucket"
        text = f"({own:,} own + {head:,} of the output head + {bucket}) × {size} B"
        return (_part("gradients", (own + head + BUCKET_PARAMETERS) * size, text),)
    if case.fsdp:
        text = f"own share of {count:,} × {size} B / {counted(case.ranks, 'rank')}"
        return (_part("gradients", count * size / case.ranks, text),)
    text = f"{count:,} × {size} B" + (f" / {case.split}" if case.split > 1 else "")
    return (_part("gradients", count * size / case.split, text),)


def _tied_gradient(case: Case) -> tuple[MemoryPart, ...]:
    if not (case.full and case.shape.tied) or case.deepspeed or case.fsdp:
        return ()
    text = f"second gradient of the tied embedding: {case.shape.head:,} × {case.weight_bytes} B"
    return (_part("embedding gradient", case.shape.head * case.weight_bytes, text),)


def _step(case: Case) -> tuple[MemoryPart, ...]:
    if not case.deepspeed or case.spec.parallel.offload != "none":
        return ()
    each = f"{case.trainable:,} × 6 B / {counted(case.ranks, 'rank')}"
    text = f"float32 gradients and a flat copy: {each}"
    return (_part("optimizer step", case.trainable * 6 / case.ranks, text),)


def _loss(case: Case, kept: Activations) -> MemoryPart:
    """The fused loss: tiles of 4096 tokens × 32768 words, never all logits."""
    if case.cpu:
        return _cpu_loss(case, kept)
    tokens, hidden = kept.tokens, case.shape.hidden
    tile = min(tokens, 4096) * min(case.shape.vocabulary, 32768)
    total = tile * 2 + tokens * hidden * (4 + 2 * case.weight_bytes)
    text = f"tile of {tile:,} logits × 2 B + gradients of {tokens:,} tokens × {hidden}"
    if case.full:
        total += case.shape.head * (4 + case.weight_bytes)
        text += f" + float32 gradient of the head, {case.shape.head:,}"
    return _part("loss", total, text)


def _cpu_loss(case: Case, kept: Activations) -> MemoryPart:
    """All words of some tokens at once; a trained head adds up the gradients of such blocks."""
    tokens, hidden, words = kept.tokens, case.shape.hidden, case.shape.vocabulary
    size = DTYPE_BYTES[case.spec.model.dtype]
    block = min(tokens, max(1, CPU_LOGITS // words))
    logits, folded = block * words, max(words, CPU_FOLDED)
    total = logits * size + folded * CPU_FOLDED_BYTES + tokens * hidden * 4 * size
    text = (
        f"{logits:,} logits × {size} B + {folded:,} of them × {CPU_FOLDED_BYTES} B + gradients of "
        f"{tokens:,} tokens × {hidden}"
    )
    if case.full:
        anew = block < tokens
        total += case.shape.head * (case.weight_bytes + 4 * anew) + 4 * logits * anew
        text += f" + gradient of the head, {case.shape.head:,}"
    return _part("loss", total, text)


def _part(name: str, size: float, formula: str) -> MemoryPart:
    return MemoryPart(name=name, bytes=round(size), formula=formula)
