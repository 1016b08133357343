"""What several trainers say in the same words: number formats, adapters, DeepSpeed, warm-up."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from engine.spec import SETTINGS
from wizard.formats.reader import PLAIN_FILE, PLANNED, Reader, is_false, is_true, listed
from wizard.formats.writer import Writer

HUGGING_FACE: Mapping[str, str] = {
    name: name
    for name in (
        "num_train_epochs",
        "max_steps",
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "learning_rate",
        "lr_scheduler_type",
        "weight_decay",
        "max_grad_norm",
        "optim",
        "seed",
        "logging_steps",
        "save_steps",
        "save_total_limit",
        "ddp_timeout",
        "gradient_checkpointing",
        "eval_steps",
        "metric_for_best_model",
        "adam_beta1",
        "adam_beta2",
        "adam_epsilon",
        "neftune_noise_alpha",
        "torch_compile",
        "tf32",
        "dataloader_num_workers",
        "dataloader_prefetch_factor",
        "greater_is_better",
        "use_rslora",
        "use_dora",
    )
}
"""Training arguments that mean the same everywhere."""

PREFERENCES: Mapping[str, str] = {
    name: name
    for name in (
        "beta",
        "loss_type",
        "label_smoothing",
        "desirable_weight",
        "undesirable_weight",
        "center_rewards_coefficient",
    )
}
"""What TRL and those on top of it say of DPO, KTO and reward models."""
STAGES_WITH: Mapping[str, tuple[str, ...]] = {
    "beta": ("dpo", "kto"),
    "loss_type": ("dpo", "kto"),
    "label_smoothing": ("dpo",),
    "desirable_weight": ("kto",),
    "undesirable_weight": ("kto",),
    "center_rewards_coefficient": ("reward",),
}
"""Setting → the stages that have it."""

_FOLDER = "where things are written is no part of a preset: --runs says it"
_FOLLOWED = "a preset sends nothing anywhere: --set report_to=… tells a tracker of one run"
_HUB = "nothing is pushed to a hub"
LEFT_BY_ALL: Mapping[str, str] = {
    "output_dir": _FOLDER,
    "logging_dir": _FOLDER,
    "run_name": "a run's name is no part of a preset: --name says it",
    "overwrite_output_dir": "a run folder is never overwritten",
    "do_train": "a run always trains",
    "report_to": _FOLLOWED,
    "logging_strategy": "losses are written every logging_steps",
    "save_strategy": "checkpoints are written every save_steps",
    "push_to_hub": _HUB,
    "hub_model_id": _HUB,
    "hub_strategy": _HUB,
    "hub_token": "secrets come from the environment when a run starts",
    "trust_remote_code": "it would run code that comes with a model",
    "remove_unused_columns": "rows become tokens before training starts",
    "resume_from_checkpoint": "`bash run.sh --resume` goes on with a run",
    "local_rank": "torchrun says it",
    "eval_strategy": "rows that are held out are evaluated every eval_steps",
    "do_eval": "rows that are held out are evaluated every eval_steps",
    "load_best_model_at_end": "the best checkpoint of a run that evaluates becomes its model",
    "deepspeed": "not a configuration that can be read here",
}


def precision(reader: Reader, bf16: str = "bf16", fp16: str = "fp16") -> None:
    """`bf16: true` and `fp16: true` are one setting here."""
    if is_true(reader.get(bf16)):
        reader.carry("dtype", "bfloat16", bf16)
        reader.leave(fp16, "bfloat16 is used")
    elif is_true(reader.get(fp16)):
        reader.carry("dtype", "float16", fp16)
        reader.leave(bf16, "float16 is used")
    elif is_false(reader.get(bf16)) and is_false(reader.get(fp16)):
        reader.carry("dtype", "float32", bf16, fp16)
    for key in (bf16, fp16):
        reader.leave(key, f"{PLANNED}: it knows what the devices compute in")


def warmup(reader: Reader) -> None:
    """`warmup_ratio`, or `warmup_steps` below one, which newer versions read as a ratio."""
    steps = reader.get("warmup_steps")
    if isinstance(steps, str):
        steps = _number(steps)
    if isinstance(steps, int | float) and not isinstance(steps, bool) and 0 <= steps < 1:
        if reader.get("warmup_ratio") is None or steps > 0:
            reader.carry("warmup_ratio", float(steps), "warmup_steps")
        else:
            reader.leave("warmup_steps", "warmup_ratio says it")
    reader.leave("warmup_steps", "a number of steps: here it is a share of them, warmup_ratio")
    reader.carry_each({"warmup_ratio": "warmup_ratio"})


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def modules(reader: Reader, key: str, every: tuple[str, ...] = ("all", "all-linear")) -> None:
    """Target modules as one word, a list, or names separated by commas."""
    found = listed(reader.get(key))
    if len(found) == 1 and found[0] in every:
        reader.carry("target_modules", "all-linear", key)
    names(reader, key, "target_modules")


def attention(reader: Reader, key: str, names: Mapping[str, str]) -> None:
    """Attention kernels by the other trainer's names."""
    value = reader.get(key)
    if isinstance(value, str):
        if value.lower() == "auto":
            reader.leave(key, PLANNED)
        else:
            reader.carry("attn_implementation", names.get(value.lower(), value), key)


def names(reader: Reader, key: str, setting: str) -> None:
    """Several names as one text, separated by commas."""
    found = [str(name) for name in listed(reader.get(key))]
    if found:
        reader.carry(setting, ",".join(found), key)


def held_out(reader: Reader, key: str) -> None:
    """Rows to evaluate on, as a share of all; a number of rows is not said here."""
    share = reader.get(key)
    share = _number(share) if isinstance(share, str) else share
    if isinstance(share, int | float) and share >= 1:
        reader.leave(key, "a number of rows: here it is a share of them, eval_split")
    elif share == 0:
        reader.leave(key, "no row is held out unless eval_split says so")
    else:
        reader.carry_each({key: "eval_split"})


def settle(reader: Reader) -> None:
    """Take back what the other settings do not allow: they would refuse the whole preset."""
    stage = reader.settings.get("stage", "sft")
    evaluates = reader.settings.keys() & {"eval_split", "eval_data"}
    for setting in ("eval_steps", "metric_for_best_model"):
        if not evaluates:
            reader.take_back(setting, "there are no rows to evaluate on: eval_split=0.1 holds some")
    if "metric_for_best_model" not in reader.settings:
        reader.take_back("greater_is_better", "no metric is named that it is said of")
    if not reader.settings.get("dataloader_num_workers"):
        reader.take_back("dataloader_prefetch_factor", "no process makes batches ahead")
    if stage != "sft":
        reader.take_back("packing", "only rows of stage=sft are packed")
    for setting, stages in STAGES_WITH.items():
        if stage not in stages:
            reader.take_back(setting, f"only stage={' and '.join(stages)} has it")


def plain_file(reader: Reader, key: str, elsewhere: str, setting: str = "data") -> None:
    """Data named as one file; anything else is not data that can be read as it is."""
    found = listed(reader.get(key))
    if len(found) == 1 and isinstance(found[0], str) and PLAIN_FILE.fullmatch(found[0]):
        reader.carry(setting, found[0], key)
    elif found:
        reader.leave(key, elsewhere)


def deepspeed(reader: Reader, key: str = "deepspeed") -> None:
    """A DeepSpeed configuration: written out, or the name of a well-known file."""
    value = reader.get(key)
    if isinstance(value, dict):
        _written_out(reader, key, value)
    elif isinstance(value, str) and value:
        _by_name(reader, key, value)


def _written_out(reader: Reader, key: str, value: Mapping[str, Any]) -> None:
    zero = value.get("zero_optimization")
    zero = zero if isinstance(zero, dict) else {}
    stage = zero.get("stage", 0)
    optimizer, parameters = (_device(zero.get(part)) for part in _PARTS)
    _sharing(reader, key, stage, optimizer=optimizer, parameters=parameters)


_PARTS = ("offload_optimizer", "offload_param")


def _device(part: Any) -> str:
    return str(part.get("device", "none")) if isinstance(part, dict) else "none"


def _by_name(reader: Reader, key: str, value: str) -> None:
    name = value.rsplit("/", 1)[-1].lower()
    found = re.search(r"(?:zero|z|stage)[-_]?([0-3])", name)
    if found is None:
        reader.leave(key, "a file that is not here: --set strategy=… says what is in it")
        return
    offload = "offload" in name
    # Names in the trainers' own folders: `…_params` moves weights only, `…_all` and ZeRO-3 both.
    both = offload and found[1] == "3"
    _sharing(
        reader,
        key,
        int(found[1]),
        optimizer="cpu" if offload else "none",
        parameters="cpu" if both else "none",
    )


def _sharing(reader: Reader, key: str, stage: Any, *, optimizer: str, parameters: str) -> None:
    if stage not in (0, 1, 2, 3):
        reader.leave(key, f"ZeRO stage {stage!r} is not one of 0, 1, 2, 3")
        return
    settings = {"strategy": f"zero{stage}" if stage else "ddp"}
    if (optimizer, parameters) != ("none", "none"):
        settings["offload"] = "parameters" if parameters != "none" else "optimizer"
    if "nvme" in (optimizer, parameters):
        settings["offload_device"] = "nvme"
    reader.carry_all(settings, key)


def stage(reader: Reader, key: str, names: Mapping[str, str]) -> None:
    """What is learnt from: `sft` is what every run does unless it says otherwise."""
    value = reader.get(key)
    if not isinstance(value, str):
        return
    name = names.get(value.lower(), value.lower())
    if name == "sft" and "stage" not in SETTINGS:
        reader.leave(key, "a run learns from supervised rows")
    else:
        reader.carry("stage", name, key)


STAGES: Mapping[str, str] = {
    "pt": "pretrain",
    "pretrain": "pretrain",
    "rm": "reward",
    "reward": "reward",
}


def write_precision(writer: Writer) -> None:
    """The number format as two switches; neither is float32."""
    dtype = writer.value("dtype")
    writer.put("bf16", dtype == "bfloat16", "dtype")
    writer.put("fp16", dtype == "float16")


def left_lines(told: Sequence[str]) -> list[str]:
    """What a file says about that which is not in it."""
    return ["Not carried over:", *(f"  {line}" for line in told)] if told else []
