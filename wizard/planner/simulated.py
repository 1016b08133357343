"""Spec + model → the simulated step of one rank, as parts with a formula each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from engine.rules import joins_rows
from engine.spec import Spec
from wizard.facts import Model
from wizard.plan import MemoryPart
from wizard.planner.shape import Shape
from wizard.planner.tape.bounds import least_parts
from wizard.planner.tape.layers import SHARED_GATE, matrix_widths
from wizard.planner.tape.lifetime import EVALUATION, LOADING, SAVING, evaluation, loading, saving
from wizard.planner.tape.setup import (
    DTYPE_BYTES,
    MATRICES,
    Attention,
    Block,
    Dtype,
    Family,
    Optimizer,
    Setup,
    Stack,
    Strategy,
    UnknownStepError,
)
from wizard.planner.tape.simulation import simulate
from wizard.planner.tape.states import States, states
from wizard.wording import counted

FAMILIES: Mapping[str, Family] = {
    "llama": "llama",
    "mistral": "llama",
    "qwen2": "llama",
    "qwen3": "llama",
    "mixtral": "llama",
    "qwen2_moe": "llama",
    "qwen3_moe": "llama",
    "phi3": "phi3",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "gpt_oss": "gpt_oss",
}
"""Architectures (`model_type`) whose layers the tape has → whose code they run."""
ROUTED = frozenset({"mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss"})
ADAPTED_EXPERTS = frozenset({"mixtral", "qwen3_moe"})
"""Architectures on whose experts PEFT 0.21 puts `all-linear` (transformers_weight_conversion)."""
QKV_BIAS = frozenset({"qwen2", "qwen2_moe", "gpt_oss"})
QK_NORM = frozenset({"qwen3", "qwen3_moe", "gemma3_text"})
BUCKET_ELEMENTS = 5 * 10**8
"""DeepSpeed's own default, which the engine leaves as it is."""
ATTENTIONS: Mapping[str, Attention] = {
    "sdpa": "sdpa",
    "eager": "eager",
    "flash_attention_2": "flash",
    "flash_attention_3": "flash",
}
OPTIMIZERS: Mapping[str, Optimizer] = {
    "adamw_torch": "adamw_foreach",
    "adamw_torch_fused": "adamw_fused",
    "adamw_bnb_8bit": "adamw_8bit",
    "paged_adamw_32bit": "adamw_paged",
    "paged_adamw_8bit": "adamw_paged_8bit",
}
"""On an accelerator torch's plain AdamW goes through all tensors at once. Steps of the others are
not simulated; they take about as long as a fused AdamW's."""
STRATEGIES: Mapping[str, Strategy] = {
    "single": "single",
    "ddp": "ddp",
    "zero1": "zero1",
    "zero2": "zero2",
    "zero3": "zero3",
    "fsdp": "fsdp2",
}
"""Strategy of a spec → the tape's; ranks of a split model are `single` or `ddp`."""
MODULES = {SHARED_GATE: SHARED_GATE}
"""Matrices whose module has another name than `<matrix>_proj`."""
ZERO = ("zero1", "zero2", "zero3")
SHARED = ("zero3", "fsdp1", "fsdp2")
"""Strategies whose ranks hold a share of the weights, in the tape's words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulated:
    """Live tensors of one rank at the worst moment of a step."""

    parts: tuple[MemoryPart, ...]
    moment: str
    moments: tuple[tuple[str, int], ...]
    """Peak of each moment of a run, in its order: of all, not only of the step."""


def simulated(setup: Setup, *, evaluates: bool) -> Simulated | None:
    """The simulated step, and an evaluation where there are any; None where the tape cannot."""
    try:
        memory = simulate(setup)
    except UnknownStepError:
        return None
    found = states(setup)
    parts = tuple(
        MemoryPart(name=name, bytes=size, formula=FORMULAS[name](setup, found, size))
        for name, size in memory.components
    )
    moments = [(LOADING, loading(setup)), *memory.moments]
    if evaluates:
        moments.append((EVALUATION, evaluation(setup)))
    moments.append((SAVING, saving(setup)))
    return Simulated(parts=parts, moment=memory.moment, moments=tuple(moments))


def bounded(setup: Setup) -> tuple[MemoryPart, ...]:
    """The parts of the least a step can need, which sum to `at_least(setup)`."""
    found = states(setup)
    return tuple(
        MemoryPart(name=name, bytes=size, formula=FORMULAS[name](setup, found, size))
        for name, size in least_parts(setup)
        if size
    )


def setup_of(spec: Spec, model: Model, shape: Shape, *, whole: bool = False) -> Setup | None:
    """What the tape is told of a run; None where it is no step the tape knows.

    A split model's device has its share of the layers, and room for embedding and head both;
    `whole` gives all layers, which is what one step takes time for.
    """
    if not whole and spec.training.optim not in OPTIMIZERS:
        return None
    block = block_of(model, shape)
    targets = None if block is None else _targets(spec, block)
    if block is None or targets is None or _counted(block) != shape.parameters:
        return None
    if block.sinks and spec.model.attn_implementation != "eager":
        return None  # kernels that know sinks are none of torch's
    training, parallel, method = spec.training, spec.parallel, spec.method
    micro, stage = training.per_device_train_batch_size, method.stage
    if not whole and parallel.devices_per_rank > 1:
        block = replace(block, layers=-(-block.layers // parallel.devices_per_rank))
    return Setup(
        block=block,
        stack=_stack(
            parallel.strategy, method.method, spec.model.dtype, training.optim, dora=method.use_dora
        ),
        method=method.method,
        weight_dtype=spec.model.dtype,
        micro_batch=1 if joins_rows(spec) else micro,
        length=spec.data.max_length * (micro if joins_rows(spec) else 1),
        checkpointing=training.gradient_checkpointing,
        attention=ATTENTIONS[spec.model.attn_implementation],
        # Rows in one sequence have a mask too: what each may see.
        padded=micro * method.sequences_per_row > 1 or joins_rows(spec),
        accumulates=training.gradient_accumulation_steps > 1,
        lora_rank=method.lora_rank,
        lora_dropout=method.lora_dropout,
        lora_targets=targets,
        preference=_reference(spec),
        single_answers=stage == "kto",
        scores=stage == "reward",
        world_size=parallel.ranks,
        strategy=STRATEGIES.get(parallel.strategy, "ddp" if parallel.ranks > 1 else "single"),
        offload=parallel.offload,
    )


@lru_cache(maxsize=64)
def _counted(block: Block) -> int:
    """Parameters of a model of these dimensions."""
    return states(Setup(block=block)).parameters


@lru_cache(maxsize=64)
def block_of(model: Model, shape: Shape) -> Block | None:
    """The dimensions of a layer; None where its code is not the tape's."""
    family = FAMILIES.get(model.architecture or "")
    if family is None or model.intermediate_size is None:
        return None
    routed = model.architecture in ROUTED
    if routed and not (model.experts and model.experts_per_token and model.expert_size):
        return None
    head_dim = shape.attention // shape.heads
    return Block(
        hidden=shape.hidden,
        intermediate=model.intermediate_size,
        layers=shape.layers,
        heads=shape.heads,
        kv_heads=shape.key_value // head_dim,
        head_dim=head_dim,
        vocab=shape.vocabulary,
        tied=shape.tied,
        qkv_bias=model.architecture in QKV_BIAS,
        output_bias=model.architecture == "gpt_oss",
        qk_norm=model.architecture in QK_NORM,
        experts=model.experts or 0 if routed else 0,
        experts_per_token=model.experts_per_token or 0,
        moe_intermediate=model.expert_size or 0,
        shared_intermediate=model.shared_expert_size or 0,
        adapts_experts=model.architecture in ADAPTED_EXPERTS,
        float32_scores=model.architecture == "mixtral",
        window=model.window or 0,
        full_every=model.full_every or 0,
        family=family,
    )


@lru_cache(maxsize=256)
def _stack(strategy: str, method: str, dtype: Dtype, optim: str, *, dora: bool) -> Stack:
    """The engine's libraries: TRL's tiled loss; DeepSpeed computes without autocast."""
    return Stack(
        loss_head="chunked",
        optimizer=OPTIMIZERS.get(optim, "adamw_fused"),
        autocast=dtype != "float32" and strategy not in ZERO,
        adapter_dtype=_adapter_dtype(strategy, method, dtype),
        adapter_input_cast=dora,
        quantised_sharded=strategy in ("fsdp", "zero3"),
        sync_each_batch=strategy == "fsdp",
        ddp_bucket_view=True,
        bucket_elements=BUCKET_ELEMENTS,
    )


def _reference(spec: Spec) -> Literal["none", "adapter", "precomputed"]:
    """Where a preference's reference comes from, as the engine's recipes have it."""
    if spec.method.stage not in ("dpo", "kto"):
        return "none"
    return "precomputed" if spec.method.method == "full" else "adapter"


def _adapter_dtype(strategy: str, method: str, dtype: Dtype) -> Dtype:
    """float32, but on 4-bit weights and under DeepSpeed that of the other weights."""
    if method == "lora" and strategy in ZERO:
        return dtype
    return "bfloat16" if method == "qlora" and dtype == "bfloat16" else "float32"


def _targets(spec: Spec, block: Block) -> tuple[str, ...] | None:
    """The matrices the adapter is on; None where one of them is no matrix of a layer."""
    if spec.method.method == "full" or spec.method.target_modules == "all-linear":
        return MATRICES
    wanted = {name.strip() for name in spec.method.target_modules.split(",") if name.strip()}
    modules = {MODULES.get(matrix, f"{matrix}_proj"): matrix for matrix in matrix_widths(block)}
    if not wanted or not wanted <= set(modules):
        return None
    return tuple(matrix for module, matrix in modules.items() if module in wanted)


Formula = Callable[[Setup, States, int], str]


def _weights(setup: Setup, found: States, _size: int) -> str:
    width = DTYPE_BYTES[setup.weight_dtype]
    if setup.method == "qlora":
        other = f"embeddings, head and norms × {width} B{_over_ranks(setup)}"
        return f"{found.parameters:,} parameters: matrices in 4 bits with scales, {other}"
    if setup.strategy in SHARED:
        width = 4 if setup.fsdp and setup.method == "full" else width
        each = "none stays here" if setup.offload == "parameters" else "own share"
        return f"{found.parameters:,} × {width} B / {counted(setup.world_size, 'rank')}, {each}"
    return f"{found.parameters:,} × {width} B, and the rotary table"


def _adapter(setup: Setup, found: States, _size: int) -> str:
    each = f"{found.trainable:,} × {found.trainable_width} B{_over_ranks(setup)}"
    if setup.lora_targets == MATRICES:
        return f"rank {setup.lora_rank} on all linear layers: {each}"
    return f"rank {setup.lora_rank} on {', '.join(setup.lora_targets)}: {each}"


def _optimizer(setup: Setup, found: States, _size: int) -> str:
    if setup.zero:
        each = f"{found.trainable:,} × 12 B (float32 copy, two moments)"
        return f"{each} / {counted(setup.world_size, 'rank')}"
    if setup.stack.optimizer == "adamw_8bit":
        return f"two 8-bit moments of {found.trainable:,}, 32-bit ones of the embedding"
    width = 4 if setup.fsdp else found.trainable_width
    return f"two moments of {found.trainable:,} × {width} B" + _over_ranks(setup)


def _buckets(_setup: Setup, found: States, _size: int) -> str:
    return f"DeepSpeed's bucket: {BUCKET_ELEMENTS:,} × {found.trainable_width} B"


def _gradients(setup: Setup, found: States, _size: int) -> str:
    if setup.shards_gradients:
        share = f"own share of {found.trainable:,} × {found.trainable_width} B"
        ranks = counted(setup.world_size, "rank")
        return f"{share} / {ranks}, and those just made"
    return f"of {found.trainable:,} × {found.trainable_width} B, those there at this moment"


def _gathered(setup: Setup, _found: States, size: int) -> str:
    width = DTYPE_BYTES[setup.weight_dtype]
    return f"of other ranks, while in use or needed soon: {size // width:,} × {width} B"


def _activations(setup: Setup, _found: States, size: int) -> str:
    kept = "each layer's input" if setup.checkpointing else "all that backward needs"
    layers, tokens = setup.block.layers, setup.tokens
    each = size / (layers * tokens)
    return f"{kept}, simulated: {layers} layers × {tokens:,} tokens × {each:,.0f} B"


def _workspace(setup: Setup, _found: States, size: int) -> str:
    what = "one layer computed again" if setup.checkpointing else "gradients inside one layer"
    return f"{what}, simulated: {setup.tokens:,} tokens × {size / setup.tokens:,.0f} B"


def _loss(setup: Setup, _found: States, size: int) -> str:
    return f"final norm, head and loss, simulated: {setup.tokens:,} tokens × " + (
        f"{size / setup.tokens:,.0f} B"
    )


def _inputs(setup: Setup, _found: States, _size: int) -> str:
    return f"ids, mask and labels: {setup.tokens:,} × 24 B"


def _over_ranks(setup: Setup) -> str:
    return f" / {counted(setup.world_size, 'rank')}" if setup.strategy in SHARED else ""


FORMULAS: Mapping[str, Formula] = {
    "weights": _weights,
    "adapter": _adapter,
    "optimizer": _optimizer,
    "reference model": lambda _setup, found, _size: f"a second model of {found.parameters:,}",
    "gradient buckets": _buckets,
    "inputs": _inputs,
    "gathered weights": _gathered,
    "gradients": _gradients,
    "activations": _activations,
    "layer workspace": _workspace,
    "loss": _loss,
    "autocast copies": lambda _setup, _found, _size: "16-bit copies of weights, kept for backward",
    "4-bit workspace": lambda _setup, _found, _size: "one matrix unpacked, with its scales",
    "optimizer step": lambda _setup, _found, _size: "temporary copies while the optimizer runs",
}
"""Component of the simulated step → its formula with its inputs."""
