"""What combines with what, and why: read by planner, screens and trainer alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from engine.spec import Spec


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
    nearest: str


def _on_cpu(spec: Spec) -> bool:
    return spec.parallel.device_kind == "cpu"


def _zero3(spec: Spec) -> bool:
    return spec.parallel.strategy == "zero3"


def _takes_from_weights(spec: Spec) -> bool:
    return spec.method.init_lora_weights not in ("default", "gaussian")


RULES: tuple[Rule, ...] = (
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
        setting="strategy",
        broken=lambda s: s.method.method == "qlora" and _zero3(s),
        why="4-bit weights are not sharded by ZeRO-3: every rank would load all of them",
        nearest="strategy=ddp",
    ),
    Rule(
        setting="optim",
        broken=lambda s: _zero3(s) and s.training.optim == "adamw_bnb_8bit",
        why="the 8-bit optimizer is untested on the flat shards of ZeRO-3",
        nearest="optim=adamw_torch",
    ),
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
        broken=lambda s: s.model.dtype == "float16" and s.method.method == "full" and not _zero3(s),
        why="gradients of float16 weights cannot be unscaled without a float32 copy",
        nearest="dtype=float32",
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


def check(spec: Spec) -> tuple[Violation, ...]:
    """Every rule the spec breaks; empty when it can be trained."""
    return tuple(
        Violation(setting=rule.setting, why=rule.why, nearest=rule.nearest)
        for rule in RULES
        if rule.broken(spec)
    )


def packages(spec: Spec) -> Mapping[str, str]:
    """Packages the spec needs beyond those every run needs → what for."""
    needed = {}
    if spec.method.method == "qlora":
        needed["bitsandbytes"] = "method=qlora keeps the weights in its 4-bit format"
    if spec.training.optim == "adamw_bnb_8bit":
        needed["bitsandbytes"] = "optim=adamw_bnb_8bit is its optimizer"
    if _zero3(spec):
        needed["deepspeed"] = "strategy=zero3 is its sharding"
    if spec.model.attn_implementation == "flash_attention_2":
        needed["flash-attn"] = "attn_implementation=flash_attention_2 is its kernel"
    return needed
