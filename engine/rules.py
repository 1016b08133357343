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


EIGHT_BIT = ("adamw_bnb_8bit", "paged_adamw_8bit", "lion_8bit", "paged_lion_8bit")
PAGED = ("paged_adamw_32bit", "paged_adamw_8bit", "paged_lion_32bit", "paged_lion_8bit")
BITSANDBYTES = (*EIGHT_BIT, *PAGED, "lion_32bit")
"""Optimizers of bitsandbytes."""
FLASH = ("flash_attention_2", "flash_attention_3")
PACKED_ALIKE = frozenset({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi", "phi3"})
"""Architectures whose packed rows were seen to give the logits of each row alone, with eager and
(where they have it) sdpa attention, through the library's own collator."""
TRACKER_PACKAGES = {
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "swanlab": "swanlab",
    "mlflow": "mlflow",
}
"""Tracker → the package that is it."""


def _on_cpu(spec: Spec) -> bool:
    return spec.parallel.device_kind == "cpu"


def _zero(spec: Spec) -> bool:
    return spec.parallel.strategy in ZERO_STAGES


def _masters(spec: Spec) -> bool:
    """Whether the strategy keeps a float32 copy of 16-bit weights."""
    return _zero(spec) or spec.parallel.strategy == "fsdp"


def _for_4bit_shards(spec: Spec) -> str:
    """What shards 4-bit weights, or shards what is trained beside them, and keeps the offload."""
    if spec.parallel.offload_device == "nvme":
        return "method=lora"
    return "strategy=zero2" if spec.parallel.offload == "optimizer" else "strategy=fsdp"


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
        setting="strategy",
        broken=lambda s: s.method.method == "qlora" and s.parallel.strategy == "zero3",
        why="what 4-bit weights take under ZeRO-3 is not predicted; FSDP2 shards them too",
        nearest=_for_4bit_shards,
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
        broken=lambda s: s.training.optim in BITSANDBYTES and s.parallel.offload != "none",
        why="offloaded states are stepped on the CPU, where accelerate would put another "
        "optimizer, with another weight decay, in the place of bitsandbytes' own",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in BITSANDBYTES and _zero(s),
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

PLUGIN_RULES = (
    Rule(
        setting="loss",
        broken=lambda s: s.plugins.loss is not None and s.method.stage not in ("sft", "pretrain"),
        why="this stage's loss is its method; only `sft` and `pretrain` take another",
        nearest="loss=none",
    ),
    Rule(
        setting="loss",
        broken=lambda s: s.plugins.loss is not None and s.plugins.trainer is not None,
        why="a trainer of your own has a loss of its own, so plugins.loss would not be used",
        nearest="loss=none",
    ),
    Rule(
        setting="metric",
        broken=lambda s: s.plugins.metric is not None and not s.data.evaluates,
        why="plugins.metric measures rows that are held out, and there are none",
        nearest="eval_split=0.1",
    ),
)

BATCH_RULES = (
    Rule(
        setting="packing",
        broken=lambda s: s.data.packing and s.method.stage == "pretrain",
        why="text is packed into whole blocks already",
        nearest="packing=false",
    ),
    Rule(
        setting="packing",
        broken=lambda s: s.data.packing and s.method.stage not in ("sft", "pretrain"),
        why="packs are made of answers that are learnt one by one; this stage compares them",
        nearest="packing=false",
    ),
    Rule(
        setting="padding_free",
        broken=lambda s: s.training.padding_free and s.method.stage != "sft",
        why="only rows of `sft` are batched without padding: blocks of text have none, and other "
        "stages compare rows",
        nearest="padding_free=false",
    ),
    Rule(
        setting="group_by_length",
        broken=lambda s: s.training.group_by_length and s.data.packing,
        why="packs have one length",
        nearest="group_by_length=false",
    ),
    Rule(
        setting="group_by_length",
        broken=lambda s: s.training.group_by_length and s.method.stage == "pretrain",
        why="blocks of text have one length",
        nearest="group_by_length=false",
    ),
    Rule(
        setting="group_by_length",
        broken=lambda s: s.training.group_by_length and s.method.stage == "kto",
        why="this stage sets each row against its neighbour, so rows stay in their order",
        nearest="group_by_length=false",
    ),
)

LEVER_RULES = (
    Rule(
        setting="tf32",
        broken=lambda s: s.training.tf32 is not None and s.parallel.device_kind != "cuda",
        why="TF32 is a format of NVIDIA's devices",
        nearest="tf32=none",
    ),
    Rule(
        setting="use_liger_kernel",
        broken=lambda s: s.training.use_liger_kernel and s.parallel.device_kind != "cuda",
        why="Liger's kernels are written for CUDA",
        nearest="use_liger_kernel=false",
    ),
    Rule(
        setting="activation_offloading",
        broken=lambda s: s.training.activation_offloading and s.parallel.device_kind != "cuda",
        why="activations are offloaded by CUDA streams; CPU ranks have one memory",
        nearest="activation_offloading=false",
    ),
    Rule(
        setting="activation_offloading",
        broken=lambda s: (
            s.training.activation_offloading and s.parallel.strategy in ("layer_split", "zero3")
        ),
        why="activations come back to one device at the time autograd asks for them: neither "
        "layers on several devices nor reentrant checkpointing are made for that",
        nearest="activation_offloading=false",
    ),
    Rule(
        setting="torch_compile",
        broken=lambda s: (
            s.training.torch_compile
            and s.parallel.strategy in (*ZERO_STAGES, "fsdp", "layer_split")
        ),
        why="sharded and spread weights come and go by hooks, at which compiled code breaks off",
        nearest="torch_compile=false",
    ),
    Rule(
        setting="torch_compile",
        broken=lambda s: s.training.torch_compile and s.method.method == "qlora",
        why="4-bit layers are no code that compiles whole, so that nothing would be faster",
        nearest="torch_compile=false",
    ),
    Rule(
        setting="neftune_noise_alpha",
        broken=lambda s: (
            s.training.neftune_noise_alpha is not None and s.method.stage not in ("sft", "pretrain")
        ),
        why="noise on the embeddings would part the model from the reference, or the score, that "
        "this stage compares",
        nearest="neftune_noise_alpha=none",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in ("adafactor", "sgd") and _zero(s),
        why="DeepSpeed steps flat shards in its own way, made for Adam",
        nearest="optim=adamw_torch",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim == "adafactor" and s.parallel.strategy == "fsdp",
        why="Adafactor keeps sums of whole rows and columns, of which each rank has a share",
        nearest="optim=adamw_torch",
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
    if _zero(spec):
        needed["deepspeed"] = f"strategy={spec.parallel.strategy} is its sharding"
    if spec.model.attn_implementation == "flash_attention_2":
        needed["flash-attn"] = "attn_implementation=flash_attention_2 is its kernel"
    if spec.model.attn_implementation == "flash_attention_3":
        needed["flash-attn-3"] = "attn_implementation=flash_attention_3 is its kernel"
    if spec.training.use_liger_kernel:
        needed["liger-kernel"] = "use_liger_kernel=true are its kernels"
    if spec.training.report_to != "none":
        tracker = spec.training.report_to
        needed[TRACKER_PACKAGES[tracker]] = f"report_to={tracker} writes with it"
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
