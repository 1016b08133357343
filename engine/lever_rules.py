"""Rules of levers, batches and plug-ins: where one would do nothing, or harm, it is refused."""

from __future__ import annotations

from engine.rule import Rule, is_zero
from engine.spec import ZERO_STAGES

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
        broken=lambda s: s.plugins.metric is not None and s.method.stage == "reward",
        why="a reward model says no tokens to measure; its scores have eval_accuracy and "
        "eval_margin",
        nearest="metric=none",
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
        setting="trust_remote_code",
        broken=lambda s: s.model.trust_remote_code and s.method.stage not in ("sft", "pretrain"),
        why="this stage takes a model's layers and its head apart, and code of its own may join "
        "them otherwise",
        nearest="trust_remote_code=false",
    ),
    Rule(
        setting="optim",
        broken=lambda s: s.training.optim in ("adafactor", "sgd") and is_zero(s),
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
