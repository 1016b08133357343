"""ms-swift: its args.json, its YAML, and the command `swift sft`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from wizard.formats import rules, text
from wizard.formats.reader import PLANNED, Reader, is_false, is_true
from wizard.formats.values import Exported, told
from wizard.formats.writer import SEVERAL_SETS, Writer, is_one_file, say_zero
from wizard.plan import Plan

SAME: Mapping[str, str] = {
    **rules.HUGGING_FACE,
    "model": "model",
    "torch_dtype": "dtype",
    "max_length": "max_length",
    "system": "system",
    "lora_rank": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "packing": "packing",
    **rules.PREFERENCES,
    "NPROC_PER_NODE": "num_devices",
}
ENVIRONMENT = "a preset changes no environment"
LEFT: Mapping[str, str] = {
    **rules.LEFT_BY_ALL,
    "dataset": "not one plain file: --data names it",
    "val_dataset": "--data names data",
    "template": "a template of its own: the model's chat template is used, or template=chatml",
    "quant_method": "4-bit weights are those of bitsandbytes",
    "quant_bits": "an adapter is trained on 4-bit weights or on whole ones",
    "bnb_4bit_quant_type": "4-bit weights are nf4",
    "bnb_4bit_use_double_quant": "4-bit weights are quantised twice",
    "truncation_strategy": "longer rows are cut at the end",
    "custom_register_path": "it would load code",
    "external_plugins": "it would load code",
    "callbacks": "it would load code",
    "dataloader_num_workers": PLANNED,
    "dataset_num_proc": PLANNED,
    "load_from_cache_file": "rows are prepared anew for every run",
    "add_version": "a run folder is named once",
    "CUDA_VISIBLE_DEVICES": "it names devices of one machine: --devices does",
    "ASCEND_RT_VISIBLE_DEVICES": "it names devices of one machine: --devices does",
    "NNODES": "--nodes says it when a job is exported",
    "NODE_RANK": "it names one of several machines",
    "MASTER_ADDR": "it names one machine",
    "MASTER_PORT": "it belongs to one machine",
    "swanlab_token": "secrets come from the environment when a run starts",
}
ATTENTION: Mapping[str, str] = {
    "flash_attn": "flash_attention_2",
    "flash_attention": "flash_attention_2",
}
TUNER = ("tuner_type", "train_type", "sft_type")
"""The setting's name, and the names it had."""


def read(reader: Reader) -> None:
    """Carry over what an ms-swift configuration says."""
    _method(reader)
    rules.stage(reader, "rlhf_type", {"rm": "reward"})
    rules.stage(reader, "command", rules.STAGES)
    rules.modules(reader, "target_modules")
    rules.attention(reader, "attn_impl", ATTENTION)
    reader.carry_each({"torch_dtype": "dtype"})
    if "dtype" in reader.settings:
        for key in ("bf16", "fp16"):
            reader.leave(key, "torch_dtype says it")
    rules.precision(reader)
    rules.warmup(reader)
    rules.deepspeed(reader)
    rules.plain_file(reader, "dataset", LEFT["dataset"])
    rules.plain_file(reader, "val_dataset", LEFT["val_dataset"], "eval_data")
    if "eval_data" in reader.settings:
        reader.leave("split_dataset_ratio", "val_dataset says what is evaluated on")
    rules.held_out(reader, "split_dataset_ratio")
    rules.names(reader, "modules_to_save", "modules_to_save")
    rules.names(reader, "adapters", "adapter")
    if str(reader.get("init_weights")).lower() == "true":
        reader.leave("init_weights", "an adapter starts with no effect unless it is told otherwise")
    reader.carry_each({"init_weights": "init_lora_weights"})
    for key in ("model_name", "model_author"):
        rules.names(reader, key, key)
    _source(reader)
    if reader.get("template") == "chatml":
        reader.carry("template", "chatml", "template")
    reader.carry_each({"model_revision": "revision"})
    reader.carry_each(SAME)
    for key in [key for key in reader.values if key.isupper() and key not in LEFT]:
        reader.leave(key, ENVIRONMENT)
    reader.finish(LEFT)


def _method(reader: Reader) -> None:
    key = next((key for key in TUNER if reader.get(key) is not None), None)
    kind = reader.get(key) if key else None
    if str(reader.get("quant_bits")) == "4" and kind in (None, "lora"):
        reader.carry("method", "qlora", *TUNER, "quant_bits")
    elif key is not None:
        reader.carry("method", kind, key)


def _source(reader: Reader) -> None:
    if is_true(reader.get("use_hf")):
        reader.carry("source", "huggingface", "use_hf")
    elif is_false(reader.get("use_hf")):
        reader.carry("source", "modelscope", "use_hf")


SAID: Mapping[str, str] = {
    "model": "model",
    "revision": "model_revision",
    "dtype": "torch_dtype",
    "template": "template",
    "system": "system",
    "max_length": "max_length",
    "packing": "packing",
    "lora_rank": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "adapter": "adapters",
    "eval_split": "split_dataset_ratio",
    "model_name": "model_name",
    "model_author": "model_author",
    **rules.PREFERENCES,
    **{setting: key for key, setting in rules.HUGGING_FACE.items()},
    "warmup_ratio": "warmup_ratio",
}
KERNELS: Mapping[str, str] = {"flash_attention_2": "flash_attn"}
COMMANDS: Mapping[str, tuple[str, str | None]] = {
    "sft": ("sft", None),
    "pretrain": ("pt", None),
    "dpo": ("rlhf", "dpo"),
    "kto": ("rlhf", "kto"),
    "reward": ("rlhf", "rm"),
}
VISIBLE: Mapping[str, str] = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
}
SUBSET = "in it `#` and `:` would mean a part of a set: rename the file, or link to it"


def write(plan: Plan, name: str) -> Exported:
    """The command `swift sft` of a plan, as a bash script."""
    writer = Writer(plan=plan)
    command, kind = COMMANDS.get(str(writer.value("stage") or "sft"), ("sft", None))
    writer.put("rlhf_type", kind, "stage")
    _write_method(writer)
    _write_data(writer)
    kernels = str(writer.value("attn_implementation"))
    writer.put("attn_impl", KERNELS.get(kernels, kernels), "attn_implementation")
    _write_sharing(writer)
    environment = _environment(writer)
    writer.put_each(SAID)
    writer.put("use_hf", plan.spec.model.source != "modelscope", "source")
    writer.put("output_dir", f"output/{name}")
    writer.put("add_version", False)
    left = writer.finish()
    head = [f"{name}: {plan.title}", *rules.left_lines(told(left))]
    words = [text.quoted(f"--{key}={_word(value)}") for key, value in writer.values.items()]
    script = "#!/usr/bin/env bash\n" + text.comments(head) + "set -euo pipefail\n"
    script += "".join(f"export {key}={text.quoted(value)}\n" for key, value in environment.items())
    script += "# shellcheck disable=SC2016,SC1003 # names stay in single quotes\n"
    lines = [f"exec swift {command}", *words]
    return Exported(files={"swift.sh": script + " \\\n  ".join(lines) + "\n"}, left=left)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _write_method(writer: Writer) -> None:
    method = writer.value("method")
    writer.put("tuner_type", "full" if method == "full" else "lora", "method")
    if method == "qlora":
        writer.put("quant_method", "bnb")
        writer.put("quant_bits", 4)
    target = writer.value("target_modules")
    if target is not None and "," in target:
        writer.leave("target_modules", "several names need an option each: --target_modules a b")
    writer.put("target_modules", target if writer.value("target_modules") else None)
    writer.said("target_modules")


def _write_data(writer: Writer) -> None:
    for setting, key in (("data", "dataset"), ("eval_data", "val_dataset")):
        value = writer.value(setting)
        if value and not set("#:") & set(value) and is_one_file(writer.plan):
            writer.put(key, value, setting)
        elif value:
            writer.leave(setting, SEVERAL_SETS if "," in value else SUBSET)
    writer.said("data_format")  # it is found in the rows
    start = writer.value("init_lora_weights")
    writer.put("init_weights", None if start == "default" else start, "init_lora_weights")
    whole = writer.value("modules_to_save")
    if whole and "," not in whole:
        writer.put("modules_to_save", whole, "modules_to_save")
    elif whole:
        writer.leave("modules_to_save", "several names need a word each: --modules_to_save a b")


def _write_sharing(writer: Writer) -> None:
    parallel = writer.plan.spec.parallel
    config = say_zero(writer)
    named = {("zero3", "parameters"): "zero3_offload", ("zero2", "optimizer"): "zero2_offload"}
    name = named.get((parallel.strategy, parallel.offload))
    if config is not None and parallel.offload == "none":
        name = parallel.strategy
    writer.put("deepspeed", name or config)


def _environment(writer: Writer) -> dict[str, str]:
    parallel = writer.plan.spec.parallel
    environment = {}
    if parallel.num_devices > 1:
        environment["NPROC_PER_NODE"] = str(parallel.num_devices)
    if parallel.devices and parallel.device_kind in VISIBLE:
        environment[VISIBLE[parallel.device_kind]] = ",".join(parallel.devices)
    writer.said("num_devices", "devices")
    writer.put("use_cpu", True if parallel.device_kind == "cpu" else None, "device_kind")
    return environment
