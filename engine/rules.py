"""What combines with what, and why: read by planner, screens and trainer alike."""

from __future__ import annotations

from collections.abc import Mapping

from engine.lever_rules import BATCH_RULES, LEVER_RULES, PLUGIN_RULES
from engine.rule import Rule, Violation, is_zero, on_cpu
from engine.spec import Spec

EIGHT_BIT = ("adamw_bnb_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit")
PAGED = ("paged_adamw_32bit", "paged_adamw_8bit", "paged_lion_32bit", "paged_lion_8bit")
BITSANDBYTES = (*EIGHT_BIT, *PAGED, "lion_32bit")
"""Optimizers of bitsandbytes."""
FLASH = ("flash_attention_2", "flash_attention_3")
PACKED_ALIKE = frozenset((
    "cohere", "falcon", "gemma", "gemma2", "gemma3_text", "glm4", "gpt2", "gpt_neox", "granite",
    "llama", "mistral", "olmo2", "phi", "phi3", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
    "smollm3", "stablelm", "starcoder2",
))  # fmt: skip
"""Architectures whose packed rows were seen to give the logits of each row alone, to 2e-7, with
eager and (where they have it) sdpa attention, through the library's own collator. OPT's are wrong
by 0.1, without a word."""


def _masters(spec: Spec) -> bool:
    """Whether the strategy keeps a float32 copy of 16-bit weights."""
    return is_zero(spec) or spec.parallel.strategy == "fsdp"


def _takes_from_weights(spec: Spec) -> bool:
    return spec.method.init_lora_weights not in ("default", "gaussian")


METHOD_RULES = (
    Rule(
        setting="per_device_train_batch_size",
        broken=lambda s: (
            s.method.stage == "kto"
            and s.method.loss_type in (None, "kto")
            and s.training.per_device_train_batch_size < 2
        ),
        why="loss_type=kto sets each row against another of its micro-batch, and 1 row has none",
        nearest="per_device_train_batch_size=2",
    ),
    Rule(
        setting="init_lora_weights",
        broken=lambda s: _takes_from_weights(s) and s.method.stage in ("dpo", "kto"),
        why="the reference is the model with its adapter off, which then lacks what the adapter "
        "took from its weights",
        nearest="init_lora_weights=default",
    ),
    Rule(
        setting="init_lora_weights",
        broken=lambda s: _takes_from_weights(s) and s.method.method == "qlora",
        why="a part taken out of 4-bit weights leaves them rounded differently",
        nearest="init_lora_weights=default",
    ),
    Rule(
        setting="init_lora_weights",
        broken=lambda s: _takes_from_weights(s) and s.parallel.strategy in ("zero3", "fsdp"),
        why="the adapter starts from whole matrices, of which each rank has a share",
        nearest="init_lora_weights=default",
    ),
    Rule(
        setting="init_lora_weights",
        broken=lambda s: (
            _takes_from_weights(s)
            and (s.method.use_dora or bool(s.method.modules_to_save) or s.method.stage == "reward")
        ),
        why="it is saved as the difference to its start, which has only the adapter's two matrices",
        nearest="init_lora_weights=default",
    ),
    Rule(
        setting="method",
        broken=lambda s: (
            s.method.method == "qlora"
            and s.parallel.strategy == "layer_split"
            and s.parallel.ranks > 1
        ),
        why="accelerate trains 4-bit weights that are spread over devices in one process only",
        nearest="method=lora",
    ),
    Rule(
        setting="target_modules",
        broken=lambda s: (
            s.method.method != "full"
            and "lm_head" in [part.strip() for part in s.method.target_modules.split(",")]
        ),
        why="the fused loss reads the output head's weights directly, an adapter on it is skipped",
        nearest="target_modules=all-linear",
    ),
)

PARALLEL_RULES = (
    Rule(
        setting="device_kind",
        broken=lambda s: s.parallel.strategy == "layer_split" and on_cpu(s),
        why="all of a machine's CPUs are one device, which layers cannot be split over",
        nearest="device_kind=cuda",
    ),
)

OPTIMIZER_RULES = (
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in PAGED and on_cpu(s),
        why="paged optimizers move states between a device and host memory; CPU ranks have one",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in BITSANDBYTES and s.parallel.offload != "none",
        why="offloaded states are stepped on the CPU, where accelerate would put another "
        "optimizer, with another weight decay, in the place of bitsandbytes' own",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in BITSANDBYTES and is_zero(s),
        why="ZeRO makes flat shards, on which bitsandbytes cannot keep embeddings in 32 bits as it "
        "does elsewhere, and DeepSpeed calls it untested",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in BITSANDBYTES and s.parallel.strategy == "fsdp",
        why="bitsandbytes' optimizers have no way to step the shards that FSDP makes of weights",
        nearest="optim=adamw_torch",
    ),
)

FORMAT_RULES = (
    Rule(
        setting="attn_implementation",
        broken=lambda s: s.parallel.device_kind != "cuda" and s.model.attn_implementation in FLASH,
        why="flash attention has kernels for CUDA only",
        nearest="attn_implementation=sdpa",
    ),
    Rule(
        setting="attn_implementation",
        broken=lambda s: s.model.attn_implementation in FLASH and s.model.dtype == "float32",
        why="flash attention computes in 16-bit formats only",
        nearest="attn_implementation=sdpa",
    ),
    Rule(
        setting="dtype",
        broken=lambda s: on_cpu(s) and s.model.dtype == "float16",
        why="float16 needs loss scaling, which is made for CUDA, and CPUs are slow in it",
        nearest="dtype=float32",
    ),
    Rule(
        setting="dtype",
        broken=lambda s: (
            s.model.dtype == "float16" and s.method.method == "full" and not _masters(s)
        ),
        why="gradients of float16 weights cannot be unscaled without a float32 copy",
        nearest="dtype=float32",
    ),
)

RULES: tuple[Rule, ...] = (
    *METHOD_RULES,
    *PARALLEL_RULES,
    *OPTIMIZER_RULES,
    *FORMAT_RULES,
    *PLUGIN_RULES,
    *BATCH_RULES,
    *LEVER_RULES,
)


def check(spec: Spec) -> tuple[Violation, ...]:
    """Every rule the spec breaks; empty when it can be trained."""
    return tuple(
        Violation(setting=rule.setting, why=rule.why, nearest=rule.remedy(spec))
        for rule in RULES
        if rule.broken(spec)
    )


def packages(spec: Spec) -> Mapping[str, str]:
    """Packages the spec needs beyond those every run needs → what for."""
    needed = {}
    if spec.method.method == "qlora":
        needed["bitsandbytes"] = "method=qlora keeps the weights in its 4-bit format"
    if spec.training.optim in BITSANDBYTES:
        needed["bitsandbytes"] = f"optim={spec.training.optim} is its optimizer"
    if is_zero(spec):
        needed["deepspeed"] = f"strategy={spec.parallel.strategy} is its sharding"
    if spec.model.attn_implementation == "flash_attention_2":
        needed["flash-attn"] = "attn_implementation=flash_attention_2 is its kernel"
    if spec.model.attn_implementation == "flash_attention_3":
        needed["flash-attn-3"] = "attn_implementation=flash_attention_3 is its kernel"
    if spec.training.use_liger_kernel:
        needed["liger-kernel"] = "use_liger_kernel=true are its kernels"
    if spec.training.report_to != "none":
        needed[spec.training.report_to] = f"report_to={spec.training.report_to} writes with it"
    return needed


def joins_rows(spec: Spec) -> bool:
    """Whether rows go through the model one behind the other in one sequence."""
    return spec.data.packing or spec.training.padding_free


def not_alike(spec: Spec, architecture: str | None) -> str | None:
    """Why a model's rows are not joined into one sequence; None where they are, or may be."""
    if not joins_rows(spec) or architecture in PACKED_ALIKE:
        return None
    setting = "packing" if spec.data.packing else "padding_free"
    return (
        f"{setting} is not known to keep rows apart in {architecture or 'this'} models: one row "
        f"would see another without a word; set {setting}=false"
    )
