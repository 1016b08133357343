"""What combines with what, and why: read by planner, screens and trainer alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.spec import ZERO_STAGES, Spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """Two values of a spec that do not go together."""

    setting: str
    """The setting to change."""
    why: str
    nearest: str
    """The change that helps, as `setting=value`."""

    def __str__(self) -> str:
        """The violation as one line."""
        return f"{self.why}: set {self.nearest}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A combination that is refused."""

    setting: str
    broken: Callable[[Spec], bool]
    why: str
    nearest: str | Callable[[Spec], str]
    """The change, or what tells it where it depends on the rest of the spec."""

    def remedy(self, spec: Spec) -> str:
        """The nearest change that helps, as `setting=value`."""
        return self.nearest if isinstance(self.nearest, str) else self.nearest(spec)


EIGHT_BIT = ("adamw_bnb_8bit", "paged_adamw_8bit")
PAGED = ("paged_adamw_32bit", "paged_adamw_8bit")


def _on_cpu(spec: Spec) -> bool:
    return spec.parallel.device_kind == "cpu"


def _zero(spec: Spec) -> bool:
    return spec.parallel.strategy in ZERO_STAGES


def _masters(spec: Spec) -> bool:
    """Whether the strategy keeps a float32 copy of 16-bit weights."""
    return _zero(spec) or spec.parallel.strategy == "fsdp"


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
        broken=lambda s: s.parallel.strategy == "layer_split" and _on_cpu(s),
        why="all of a machine's CPUs are one device, which layers cannot be split over",
        nearest="device_kind=cuda",
    ),
)

OPTIMIZER_RULES = (
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in PAGED and _on_cpu(s),
        why="paged optimizers move states between a device and host memory; CPU ranks have one",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in (*EIGHT_BIT, *PAGED) and s.parallel.offload != "none",
        why="offloaded states are stepped on the CPU, where accelerate would put another "
        "optimizer, with another weight decay, in the place of bitsandbytes' own",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in (*EIGHT_BIT, *PAGED) and _zero(s),
        why="ZeRO makes flat shards, on which bitsandbytes cannot keep embeddings in 32 bits as it "
        "does elsewhere, and DeepSpeed calls it untested",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in (*EIGHT_BIT, *PAGED) and s.parallel.strategy == "fsdp",
        why="bitsandbytes' optimizers have no way to step the shards that FSDP makes of weights",
        nearest="optim=adamw_torch",
    ),
)

FORMAT_RULES = (
    Rule(
        setting="attn_implementation",
        broken=lambda s: _on_cpu(s) and s.model.attn_implementation == "flash_attention_2",
        why="flash_attention_2 has kernels for CUDA only",
        nearest="attn_implementation=sdpa",
    ),
    Rule(
        setting="attn_implementation",
        broken=lambda s: (
            s.model.attn_implementation == "flash_attention_2" and s.model.dtype == "float32"
        ),
        why="flash_attention_2 computes in 16-bit formats only",
        nearest="attn_implementation=sdpa",
    ),
    Rule(
        setting="dtype",
        broken=lambda s: _on_cpu(s) and s.model.dtype == "float16",
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

RULES: tuple[Rule, ...] = (*METHOD_RULES, *PARALLEL_RULES, *OPTIMIZER_RULES, *FORMAT_RULES)


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
    if spec.training.optim in (*EIGHT_BIT, *PAGED):
        needed["bitsandbytes"] = f"optim={spec.training.optim} is its optimizer"
    if _zero(spec):
        needed["deepspeed"] = f"strategy={spec.parallel.strategy} is its sharding"
    if spec.model.attn_implementation == "flash_attention_2":
        needed["flash-attn"] = "attn_implementation=flash_attention_2 is its kernel"
    return needed
