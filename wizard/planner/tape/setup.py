"""What one simulated training step is told, and what it answers: sizes, stack, sharding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Dtype = Literal["float32", "bfloat16", "float16"]
Attention = Literal["sdpa", "flash", "eager"]
Optimizer = Literal[
    "adamw_fused", "adamw_foreach", "adamw_8bit", "adamw_paged_8bit", "adamw_paged", "sgd",
    "adafactor", "none",
]  # fmt: skip
Strategy = Literal["single", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"]
Family = Literal["llama", "gemma", "gemma2", "gemma3", "phi3", "gpt_oss"]
DTYPE_BYTES: dict[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
"""The seven matrices of a decoder layer, in the order a step uses them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Dimensions of a decoder of equal layers; every size is in elements."""

    hidden: int
    intermediate: int
    """Width of the MLP; unused where every layer routes to experts."""
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool = False
    """Whether the output head is the embedding."""
    qkv_bias: bool = False
    """Qwen 2: a bias on q, k and v."""
    output_bias: bool = False
    """A bias on o as well."""
    qk_norm: bool = False
    """Qwen 3: a norm per head on q and k."""
    experts: int = 0
    """Routed experts of a layer; 0 is a dense MLP."""
    experts_per_token: int = 0
    moe_intermediate: int = 0
    shared_intermediate: int = 0
    """Width of the experts every token passes."""
    float32_scores: bool = False
    """Mixtral: the router's scores stay float32."""
    adapts_experts: bool = False
    """PEFT puts an adapter on the router and on every expert where it is to adapt everything."""
    window: int = 0
    """Tokens back that a layer looks; 0 is all of them."""
    full_every: int = 0
    """Where there is a window: every n-th layer looks at all tokens; 0 is none of them."""
    family: Family = "llama"
    """Which layer code runs: Llama, Qwen and Mistral share one."""

    @property
    def gemma(self) -> bool:
        """Norms add one to their weights in float32, and embedded tokens are scaled."""
        return self.family in ("gemma", "gemma2", "gemma3")

    @property
    def sinks(self) -> bool:
        """gpt-oss: a score more per head, and biases of the router and of every expert."""
        return self.family == "gpt_oss"

    @property
    def norms(self) -> int:
        """Norms of a layer as wide as it; Gemma 2 and 3 have two more after attention and MLP."""
        return 4 if self.family in ("gemma2", "gemma3") else 2

    @property
    def positions(self) -> int:
        """Tables of rotary angles: Gemma 3 has one for each kind of layer."""
        return 2 if self.family == "gemma3" else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """The libraries a step runs on: what differs between releases and trainers."""

    loss_head: Literal["chunked", "full", "full_shifted", "full_upcast", "full_narrow", "fused"] = (
        "chunked"
    )
    """TRL 1.16's tiles; all logits (Hugging Face); with a shifted copy of them (4.46 to 4.49), or
    one in place of the 16-bit ones (before); Qwen 1's own code, whose shifted copy is as wide as
    the logits, so that only autocast makes it float32; or Liger's fused linear cross-entropy, which
    keeps only gradients."""
    kernel_loss: bool = False
    """Cross-entropy in one kernel that writes its gradient over the logits (Unsloth, fms)."""
    outputs_kept: bool = False
    """The returned logits live until backward ends, as measured with PEFT under FSDP1."""
    optimizer: Optimizer = "adamw_fused"
    step_copies: int = 1
    """Copies of what learns that AdamW over all tensors at once makes: torch 2.0 made two."""
    autocast: bool = True
    """bfloat16 autocast, as `bf16=True` gives it."""
    adapter_dtype: Dtype = "float32"
    """PEFT makes float32 adapters; TRL on 4-bit weights, and ZeRO-3, bfloat16 ones."""
    adapter_input_cast: bool = True
    """PEFT copies an adapter's input to the adapter's number format before autocast does; where
    the trainer tells it not to, the copy is never made."""
    kbit_preparation: bool = False
    """`prepare_model_for_kbit_training`: what is not 4-bit becomes float32."""
    float32_outputs: bool = True
    """accelerate's copy of returned logits, where autocast is on."""
    quantised_sharded: bool = False
    """4-bit weights are stored as bfloat16 so that FSDP shards them; else every rank has all."""
    double_quantised: bool = True
    """Scales of 4-bit weights are themselves quantised."""
    fused_4bit_tokens: int = 1536
    """bitsandbytes 0.50 multiplies this many tokens without unpacking; 0 on older ones."""
    fused_norm: bool = False
    """RMSNorm in one kernel that keeps its input and a scale per token (Liger, Unsloth, fms)."""
    fused_rope: bool = False
    """Rotary embedding in place, nothing kept."""
    fused_mlp: bool = False
    """SwiGLU in one kernel that keeps gate and up."""
    ddp_bucket_view: bool = False
    """Gradients are views into DDP's buckets, so there is one copy."""
    fsdp_upcast: bool = True
    """accelerate keeps trainable shards in float32 when mixed precision is on."""
    sync_each_batch: bool = False
    """Gradients are shared after each micro-batch, so that FSDP keeps no whole ones between."""
    live_parameters: int = 10**9
    """DeepSpeed's `stage3_max_live_parameters` and `stage3_max_reuse_distance`."""
    bucket_elements: int | None = None
    """DeepSpeed's reduce bucket; None is Hugging Face's hidden × hidden."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """One rank's step."""

    block: Block
    stack: Stack = field(default_factory=Stack)
    method: Literal["full", "lora", "qlora"] = "full"
    quantisation: Literal["nf4", "gptq4"] = "nf4"
    """How the base of `qlora` is stored."""
    weight_dtype: Dtype = "bfloat16"
    """Base weights as loaded; of `qlora`, what is not quantised."""
    micro_batch: int = 1
    length: int = 1024
    """Padded tokens of a row."""
    scored_fraction: float = 1.0
    """Share of the tokens that the loss counts."""
    checkpointing: bool = True
    checkpoint_every: int = 1
    """Every n-th layer is recomputed, the others keep what they need."""
    attention: Attention = "sdpa"
    padded: bool = False
    """Rows of different length share a micro-batch, so that sdpa is given a mask."""
    accumulates: bool = False
    """More than one micro-batch per step."""
    lora_rank: int = 16
    lora_dropout: float = 0.0
    lora_targets: tuple[str, ...] = MATRICES
    preference: Literal["none", "model", "adapter", "precomputed"] = "none"
    """DPO and where its reference log-probabilities come from; rows are pairs then."""
    single_answers: bool = False
    """KTO: a preference whose rows are single answers; each passes once more beside another's
    prompt, without gradients, and so does the reference."""
    scores: bool = False
    """A reward model: pairs, and a head of one score in place of the head of words."""
    world_size: int = 1
    strategy: Strategy = "single"
    offload: Literal["none", "optimizer", "parameters"] = "none"
    first_step: bool = False
    """The optimizer has no states yet; later steps need more."""

    @property
    def zero(self) -> bool:
        """DeepSpeed shares something."""
        return self.strategy in ("zero1", "zero2", "zero3")

    @property
    def fsdp(self) -> bool:
        """FSDP shards the model."""
        return self.strategy in ("fsdp1", "fsdp2")

    @property
    def shards_gradients(self) -> bool:
        """A gradient leaves for its owner as soon as it is there."""
        return self.strategy in ("zero2", "zero3", "fsdp1", "fsdp2")

    @property
    def adapts_experts(self) -> bool:
        """An adapter is on the router and on every expert."""
        return self.method != "full" and self.block.adapts_experts and self.lora_targets == MATRICES

    @property
    def windowed(self) -> bool:
        """Rows so long that layers with a window are given a mask, even where a row is alone."""
        window = self.block.window
        return self.attention == "sdpa" and not self.padded and 0 < window <= self.length

    @property
    def masks(self) -> int:
        """Masks over all pairs of tokens: one for each kind of layer that differs."""
        return 2 if self.block.window and self.block.full_every else 1

    @property
    def rows(self) -> int:
        """Sequences of one forward pass."""
        pairs = self.scores or (self.preference != "none" and not self.single_answers)
        return self.micro_batch * (2 if pairs else 1)

    @property
    def further_passes(self) -> int:
        """Passes over the rows without gradients: of the reference, and of KTO's other prompts."""
        held = self.preference in ("model", "adapter")
        return (1 + 2 * held) if self.single_answers else int(held)

    @property
    def tokens(self) -> int:
        """Padded tokens of one forward pass."""
        return self.rows * self.length


@dataclass(frozen=True, kw_only=True, slots=True)
class StepMemory:
    """Live tensors of one rank at the worst moment of a step, in bytes."""

    allocated_peak_bytes: int
    moment: str
    """Name of the moment that peaks, one of `moments`."""
    components: tuple[tuple[str, int], ...]
    """At that moment; they sum to `allocated_peak_bytes`."""
    moments: tuple[tuple[str, int], ...]
    """Peak of each moment, in the order of a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """Bytes between two bounds."""

    low: int
    high: int


class UnknownStepError(ValueError):
    """A step the tape cannot simulate; the text says which part of it."""
