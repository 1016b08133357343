"""LLaMA-Factory: the YAML that `llamafactory-cli train` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from wizard.formats import rules, text
from wizard.formats.reader import PLANNED, Reader, is_true, listed
from wizard.formats.values import Exported, told
from wizard.formats.writer import SEVERAL_SETS, Writer, is_one_file, say_zero
from wizard.plan import Plan

SAME: Mapping[str, str] = {
    **rules.HUGGING_FACE,
    "model_name_or_path": "model",
    "cutoff_len": "max_length",
    "default_system": "system",
    "lora_rank": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "packing": "packing",
    "pref_beta": "beta",
    "pref_loss": "loss_type",
    "dpo_label_smoothing": "label_smoothing",
    "kto_chosen_weight": "desirable_weight",
    "kto_rejected_weight": "undesirable_weight",
    "adapter_name_or_path": "adapter",
}
LEFT: Mapping[str, str] = {
    **rules.LEFT_BY_ALL,
    "dataset": "an entry of its dataset_info.json: --data names the file",
    "dataset_dir": "the folder of its dataset_info.json: --data names the file",
    "eval_dataset": "an entry of its dataset_info.json",
    "template": "a template of its own: the model's chat template is used, or template=chatml",
    "quantization_method": "4-bit weights are those of bitsandbytes",
    "quantization_type": "4-bit weights are nf4",
    "double_quantization": "4-bit weights are quantised twice",
    "preprocessing_num_workers": f"{PLANNED}",
    "overwrite_cache": "rows are prepared anew for every run",
    "plot_loss": "`tunewright watch` draws the loss",
    "hf_hub_token": "secrets come from the environment when a run starts",
    "ms_hub_token": "secrets come from the environment when a run starts",
    "om_hub_token": "secrets come from the environment when a run starts",
    "use_fast_tokenizer": "the fast tokenizer is used",
    "low_cpu_mem_usage": "weights are loaded once, without a copy",
}
ATTENTION: Mapping[str, str] = {
    "disabled": "eager",
    "off": "eager",
    "fa2": "flash_attention_2",
}


def read(reader: Reader) -> None:
    """Carry over what a LLaMA-Factory configuration says."""
    _method(reader)
    rules.stage(reader, "stage", rules.STAGES)
    rules.modules(reader, "lora_target")
    rules.attention(reader, "flash_attn", ATTENTION)
    rules.precision(reader)
    rules.warmup(reader)
    rules.held_out(reader, "val_size")
    rules.names(reader, "additional_target", "modules_to_save")
    if is_true(reader.get("pissa_init")):
        reader.carry("init_lora_weights", "pissa_niter_16", "pissa_init")
    rules.deepspeed(reader)
    if reader.get("template") == "chatml":
        reader.carry("template", "chatml", "template")
    if reader.get("model_revision") == "main":
        reader.leave("model_revision", "the newest is taken, and the run records which it was")
    reader.carry_each({"model_revision": "revision"})
    if is_true(reader.get("disable_gradient_checkpointing")):
        reader.carry("gradient_checkpointing", False, "disable_gradient_checkpointing")
    reader.carry_each(SAME)
    reader.finish(LEFT)


def _method(reader: Reader) -> None:
    kind = reader.get("finetuning_type")
    bits = reader.get("quantization_bit")
    if kind is None and bits is None and not listed(reader.get("lora_rank")):
        return
    if str(bits) == "4" and kind in (None, "lora"):
        reader.carry("method", "qlora", "finetuning_type", "quantization_bit")
        return
    if bits is not None:
        reader.leave("quantization_bit", "an adapter is trained on 4-bit weights or on whole ones")
    reader.carry("method", kind or "lora", "finetuning_type")


DATASET = "tunewright"
"""Name of the data in dataset_info.json."""
SAID: Mapping[str, str] = {
    "model": "model_name_or_path",
    "revision": "model_revision",
    "system": "default_system",
    "template": "template",
    "max_length": "cutoff_len",
    "packing": "packing",
    "beta": "pref_beta",
    "loss_type": "pref_loss",
    "label_smoothing": "dpo_label_smoothing",
    "desirable_weight": "kto_chosen_weight",
    "undesirable_weight": "kto_rejected_weight",
    "adapter": "adapter_name_or_path",
    "modules_to_save": "additional_target",
    "eval_split": "val_size",
    "lora_rank": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    **{setting: key for key, setting in rules.HUGGING_FACE.items()},
    "warmup_ratio": "warmup_ratio",
}
LOSSES = ("sigmoid", "hinge", "ipo")
_TALK: Mapping[str, Any] = {
    "formatting": "sharegpt",
    "columns": {"messages": "messages"},
    "tags": {
        "role_tag": "role",
        "content_tag": "content",
        "user_tag": "user",
        "assistant_tag": "assistant",
        "system_tag": "system",
    },
}
FORMATTING: Mapping[str, Mapping[str, Any]] = {
    "messages": _TALK,
    "query_response": {"columns": {"prompt": "query", "response": "response"}},
    "prompt_completion": {"columns": {"prompt": "prompt", "response": "completion"}},
    "text": {"columns": {"prompt": "text"}},
}
"""Form of the rows → what dataset_info.json says of it; the one without an entry is alpaca."""
KERNELS: Mapping[str, str] = {"eager": "disabled", "sdpa": "sdpa", "flash_attention_2": "fa2"}
STAGE: Mapping[str, str] = {"sft": "sft", "pretrain": "pt", "reward": "rm"}


def write(plan: Plan, name: str) -> Exported:
    """The YAML of a plan, and the dataset_info.json that names its data."""
    writer = Writer(plan=plan)
    stage = writer.value("stage") or "sft"
    writer.put("stage", STAGE.get(stage, stage), "stage")
    writer.put("do_train", True)
    _write_method(writer)
    _write_data(writer)
    writer.put("output_dir", f"saves/{name}")
    writer.put("overwrite_output_dir", False)
    kernels = writer.value("attn_implementation")
    writer.put("flash_attn", KERNELS.get(kernels, "auto"), "attn_implementation")
    if writer.value("gradient_checkpointing") is False:
        writer.put("disable_gradient_checkpointing", True, "gradient_checkpointing")
    writer.said("gradient_checkpointing")  # it is on unless it is disabled
    rules.write_precision(writer)
    config = say_zero(writer)
    writer.put("deepspeed", config)
    _write_devices(writer)
    writer.put_each(SAID)
    left = writer.finish()
    head = [
        f"{name}: {plan.title}",
        *_start(plan),
        f"dataset_info.json beside this file names the data: {_dataset_info(plan)}",
        *rules.left_lines(told(left)),
    ]
    files = {
        "llamafactory.yaml": text.comments(head) + text.yaml_text(writer.values),
        "dataset_info.json": _dataset_info(plan, indent=2) + "\n",
    }
    return Exported(files=files, left=left)


def _write_method(writer: Writer) -> None:
    method = writer.value("method")
    writer.put("finetuning_type", "full" if method == "full" else "lora", "method")
    if method == "qlora":
        writer.put("quantization_bit", 4)
        writer.put("quantization_method", "bnb")
    if method != "full":
        target = writer.value("target_modules")
        writer.put("lora_target", "all" if target == "all-linear" else target, "target_modules")


def _write_data(writer: Writer) -> None:
    """The data by its name in dataset_info.json, which has no words for some forms of rows."""
    one_file = is_one_file(writer.plan)
    formatted = writer.value("data_format") in (*FORMATTING, "alpaca")
    if not one_file:
        writer.leave("data", SEVERAL_SETS)
    if not formatted:
        writer.leave("data_format", "describe its columns in dataset_info.json")
    if writer.value("init_lora_weights") in ("pissa", "pissa_niter_16"):
        writer.put("pissa_init", True, "init_lora_weights")
    if writer.plan.spec.method.stage == writer.value("loss_type") == "kto":
        writer.said("loss_type")
    if writer.value("loss_type") not in (None, *LOSSES):
        writer.leave("loss_type", f"it has {', '.join(LOSSES)}")
    if writer.value("eval_split"):
        writer.put("eval_strategy", "steps")
    writer.put("dataset", DATASET, "data", "data_format")
    writer.put("dataset_dir", ".")


def _write_devices(writer: Writer) -> None:
    writer.said("num_devices", "devices")
    writer.put("use_cpu", True if writer.value("device_kind") == "cpu" else None, "device_kind")


def _start(plan: Plan) -> list[str]:
    """How to start it on the same devices."""
    parallel = plan.spec.parallel
    count = parallel.num_devices
    names = f"CUDA_VISIBLE_DEVICES={','.join(parallel.devices)} " if parallel.devices else ""
    ranks = f"FORCE_TORCHRUN=1 NPROC_PER_NODE={count} " if count > 1 else ""
    return [f"Start it with: {names}{ranks}llamafactory-cli train llamafactory.yaml"]


def _dataset_info(plan: Plan, indent: int | None = None) -> str:
    """How LLaMA-Factory is told what the rows look like."""
    data = plan.spec.data
    entry: dict[str, Any] = {"file_name": data.data, **FORMATTING.get(data.data_format, {})}
    return json.dumps({DATASET: entry}, indent=indent, ensure_ascii=False)
