"""TRL: the YAML or the command line of `trl sft` and its kin."""

from __future__ import annotations

from collections.abc import Mapping

from wizard.formats import rules
from wizard.formats.reader import PLANNED, Reader, is_true

SAME: Mapping[str, str] = {
    **rules.HUGGING_FACE,
    "model_name_or_path": "model",
    "dtype": "dtype",
    "max_length": "max_length",
    "attn_implementation": "attn_implementation",
    "lora_r": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "packing": "packing",
    **rules.PREFERENCES,
}
LEFT: Mapping[str, str] = {
    **rules.LEFT_BY_ALL,
    "dataset_name": "not one plain file: --data names it",
    "dataset_config": "--data names one file",
    "dataset_train_split": "--data names one file",
    "dataset_test_split": "--data names one file",
    "datasets": "not one plain file: --data names it",
    "load_in_8bit": "an adapter is trained on 4-bit weights or on whole ones",
    "bnb_4bit_quant_type": "4-bit weights are nf4",
    "use_bnb_nested_quant": "4-bit weights are quantised twice",
    "chat_template_path": "the model's own chat template is used, or template=chatml",
    "dataset_num_proc": PLANNED,
    "dataloader_num_workers": PLANNED,
    "env": "a preset changes no environment",
    "config": "the file it names is not read: import that one too",
    "accelerate_config": "the file it names is not read: import that one too",
    "num_processes": "the number of devices is planned, or --set num_devices says it",
}


def read(reader: Reader) -> None:
    """Carry over what a TRL configuration says."""
    _method(reader)
    rules.stage(reader, "command", rules.STAGES)
    rules.modules(reader, "lora_target_modules")
    rules.names(reader, "lora_modules_to_save", "modules_to_save")
    if isinstance(reader.get("loss_type"), list):
        rules.names(reader, "loss_type", "loss_type")
    if reader.get("dtype") == "auto":
        reader.leave("dtype", PLANNED)
    reader.carry_each({"dtype": "dtype"})
    if "dtype" in reader.settings:
        for key in ("bf16", "fp16"):
            reader.leave(key, "dtype says it")
    rules.precision(reader)
    rules.warmup(reader)
    rules.deepspeed(reader)
    rules.plain_file(reader, "dataset_name", LEFT["dataset_name"])
    if reader.get("model_revision") == "main":
        reader.leave("model_revision", "the newest is taken, and the run records which it was")
    reader.carry_each({"model_revision": "revision"})
    reader.carry_each(SAME)
    reader.finish(LEFT)


def _method(reader: Reader) -> None:
    adapter = is_true(reader.get("use_peft"))
    if is_true(reader.get("load_in_4bit")):
        reader.carry("method", "qlora", "use_peft", "load_in_4bit")
    elif "use_peft" in reader.values:
        reader.carry("method", "lora" if adapter else "full", "use_peft")
    if "load_in_4bit" in reader.values:
        reader.leave("load_in_4bit", "the method says it")
