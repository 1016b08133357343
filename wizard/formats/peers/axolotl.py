"""axolotl: the YAML that `axolotl train` takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wizard.formats import rules, text
from wizard.formats.reader import PLAIN_FILE, Reader, is_false, is_true, listed
from wizard.formats.values import Exported, told
from wizard.formats.writer import SEVERAL_SETS, Writer, is_one_file, say_zero
from wizard.plan import Plan

SAME: Mapping[str, str] = {
    **rules.HUGGING_FACE,
    "base_model": "model",
    "revision_of_model": "revision",
    "sequence_len": "max_length",
    "lora_r": "lora_rank",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "micro_batch_size": "per_device_train_batch_size",
    "num_epochs": "num_train_epochs",
    "lr_scheduler": "lr_scheduler_type",
    "sample_packing": "packing",
    "default_system_message": "system",
    "dpo_beta": "beta",
    "rl_beta": "beta",
    "dpo_label_smoothing": "label_smoothing",
    "kto_desirable_weight": "desirable_weight",
    "kto_undesirable_weight": "undesirable_weight",
    "center_rewards_coefficient": "center_rewards_coefficient",
    "lora_model_dir": "adapter",
    "peft_init_lora_weights": "init_lora_weights",
    "peft_use_rslora": "use_rslora",
    "peft_use_dora": "use_dora",
}
LEFT: Mapping[str, str] = {
    **rules.LEFT_BY_ALL,
    "datasets": "not one plain file: --data names it",
    "test_datasets": "--data names data",
    "pretraining_dataset": "not one plain file: --data names it",
    "chat_template": "the model's own chat template is used, or template=chatml",
    "plugins": "it would load code",
    "dataset_prepared_path": "rows are prepared anew for every run, in its folder",
    "strict": "every unknown setting is refused here",
    "load_in_8bit": "an adapter is trained on 4-bit weights or on whole ones",
    "bnb_config_kwargs": "4-bit weights are nf4, quantised twice",
    "hf_use_auth_token": "secrets come from the environment when a run starts",
    "train_on_inputs": "only answers are learnt",
    "batch_size": "micro_batch_size × gradient_accumulation_steps says it",
    "saves_per_epoch": "checkpoints are written every save_steps",
    "fsdp_config": "its settings are chosen by the planner",
    "fsdp_version": "its settings are chosen by the planner",
}
ATTENTION: Mapping[str, str] = {
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
OPTIMIZERS: Mapping[str, str] = {"adamw_8bit": "adamw_bnb_8bit"}


def read(reader: Reader) -> None:
    """Carry over what an axolotl configuration says."""
    _method(reader)
    _stage(reader)
    if is_true(reader.get("lora_target_linear")):
        reader.carry("target_modules", "all-linear", "lora_target_linear")
    rules.modules(reader, "lora_target_modules", ("all-linear",))
    _attention(reader)
    rules.precision(reader)
    rules.warmup(reader)
    rules.held_out(reader, "val_set_size")
    rules.names(reader, "lora_modules_to_save", "modules_to_save")
    rules.names(reader, "dpo_loss_type", "loss_type")
    rules.deepspeed(reader)
    if reader.get("fsdp_config"):
        reader.carry("strategy", "fsdp", "fsdp_config")
    _data(reader, "datasets")
    _data(reader, "pretraining_dataset")
    if reader.get("chat_template") == "chatml":
        reader.carry("template", "chatml", "chat_template")
    optimizer = reader.get("optimizer")
    if isinstance(optimizer, str):
        reader.carry("optim", OPTIMIZERS.get(optimizer, optimizer), "optimizer")
    if isinstance(reader.get("gradient_checkpointing"), str):
        _checkpointing(reader)
    reader.carry_each(SAME)
    reader.finish(LEFT)


def _method(reader: Reader) -> None:
    adapter, four = reader.get("adapter"), is_true(reader.get("load_in_4bit"))
    if adapter == "qlora" or (adapter == "lora" and four):
        reader.carry("method", "qlora", "adapter", "load_in_4bit")
    elif adapter:
        reader.carry("method", adapter, "adapter")
    elif "adapter" in reader.values or "base_model" in reader.values:
        reader.carry("method", "full", "adapter")
    if is_false(reader.get("load_in_4bit")):
        reader.leave("load_in_4bit", "the method says it")
    if is_false(reader.get("load_in_8bit")):
        reader.leave("load_in_8bit", "the method says it")


def _stage(reader: Reader) -> None:
    rules.stage(reader, "rl", {})
    if reader.get("pretraining_dataset") and "stage" not in reader.settings:
        reader.carry("stage", "pretrain")
    if is_true(reader.get("reward_model")):
        reader.carry("stage", "reward", "reward_model")


def _attention(reader: Reader) -> None:
    for key, kernels in ATTENTION.items():
        if is_true(reader.get(key)):
            reader.carry("attn_implementation", kernels, key)
        elif is_false(reader.get(key)):
            reader.leave(key, "another attention is chosen")
    rules.attention(reader, "attn_implementation", ATTENTION)


def _data(reader: Reader, key: str) -> None:
    """One set that is one plain file; how it is read is found in the file itself."""
    sets = reader.get(key)
    found = listed(sets) if isinstance(sets, list) else [sets] if isinstance(sets, dict) else []
    if len(found) != 1 or not isinstance(found[0], dict):
        return
    one: Mapping[str, Any] = found[0]
    path = one.get("path")
    if one.get("data_files") and len(listed(one["data_files"])) == 1:
        path = listed(one["data_files"])[0]
    if not isinstance(path, str) or not PLAIN_FILE.fullmatch(path):
        return
    others = {name: value for name, value in one.items() if value != path}
    reader.carry("data", path, key)
    for name, value in others.items():
        inner = f"{key}.{name}"
        reader.values[inner] = value
        reader.leave(inner, "how rows are read is found in the file itself")


def _checkpointing(reader: Reader) -> None:
    value = str(reader.get("gradient_checkpointing"))
    if not (is_true(value) or is_false(value)):
        reader.leave("gradient_checkpointing", "a kind of checkpointing that is not here")


SAID: Mapping[str, str] = {
    "model": "base_model",
    "revision": "revision_of_model",
    "attn_implementation": "attn_implementation",
    "max_length": "sequence_len",
    "packing": "sample_packing",
    "beta": "rl_beta",
    "label_smoothing": "dpo_label_smoothing",
    "desirable_weight": "kto_desirable_weight",
    "undesirable_weight": "kto_undesirable_weight",
    "center_rewards_coefficient": "center_rewards_coefficient",
    "adapter": "lora_model_dir",
    "eval_split": "val_set_size",
    "eval_steps": "eval_steps",
    "metric_for_best_model": "metric_for_best_model",
    "adam_beta1": "adam_beta1",
    "adam_beta2": "adam_beta2",
    "adam_epsilon": "adam_epsilon",
    "neftune_noise_alpha": "neftune_noise_alpha",
    "torch_compile": "torch_compile",
    "tf32": "tf32",
    "dataloader_num_workers": "dataloader_num_workers",
    "dataloader_prefetch_factor": "dataloader_prefetch_factor",
    "greater_is_better": "greater_is_better",
    "lora_rank": "lora_r",
    "lora_alpha": "lora_alpha",
    "lora_dropout": "lora_dropout",
    "use_rslora": "peft_use_rslora",
    "use_dora": "peft_use_dora",
    "per_device_train_batch_size": "micro_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "num_train_epochs": "num_epochs",
    "learning_rate": "learning_rate",
    "lr_scheduler_type": "lr_scheduler",
    "warmup_ratio": "warmup_ratio",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
    "optim": "optimizer",
    "gradient_checkpointing": "gradient_checkpointing",
    "seed": "seed",
    "logging_steps": "logging_steps",
    "save_steps": "save_steps",
    "save_total_limit": "save_total_limit",
    "ddp_timeout": "ddp_timeout",
}

KINDS: Mapping[str, str] = {"messages": "chat_template", "alpaca": "alpaca", "text": "completion"}


def write(plan: Plan, name: str) -> Exported:
    """The YAML of a plan."""
    writer = Writer(plan=plan)
    writer.put_each({setting: SAID[setting] for setting in ("model", "revision")})
    _write_method(writer)
    _write_stage(writer)
    writer.put("output_dir", f"outputs/{name}")
    rules.write_precision(writer)
    steps = writer.value("max_steps")
    writer.put("max_steps", steps if steps and steps > 0 else None, "max_steps")
    config = say_zero(writer)
    writer.put("deepspeed", config)
    writer.said("num_devices", "devices", "device_kind")
    writer.put_each(SAID)
    left = writer.finish()
    head = [f"{name}: {plan.title}", *_start(plan), *rules.left_lines(told(left))]
    content = text.comments(head) + text.yaml_text(writer.values)
    return Exported(files={"axolotl.yaml": content}, left=left)


def _write_method(writer: Writer) -> None:
    method = writer.value("method")
    writer.put("adapter", None if method == "full" else method, "method")
    if method == "full":
        return
    writer.put("load_in_4bit", True if method == "qlora" else None)
    target = writer.value("target_modules")
    if target == "all-linear":
        writer.put("lora_target_linear", True, "target_modules")
    else:
        writer.put("lora_target_modules", listed(target), "target_modules")


def _write_stage(writer: Writer) -> None:
    """Data and template, which are named by what is learnt from them."""
    stage = writer.value("stage") or "sft"
    start = writer.value("init_lora_weights")
    given = start not in (None, "default")
    writer.put("peft_init_lora_weights", start if given else None, "init_lora_weights")
    whole = writer.value("modules_to_save")
    writer.put("lora_modules_to_save", listed(whole) or None, "modules_to_save")
    loss = writer.value("loss_type")
    writer.put("dpo_loss_type", [loss] if loss and stage == "dpo" else None, "loss_type")
    if not is_one_file(writer.plan):
        writer.leave("data", SEVERAL_SETS)
    data = writer.plan.spec.data
    one: dict[str, Any] = {"path": data.data, "ds_type": "json"}
    if stage == "pretrain":
        writer.put("datasets", [{**one, "type": "completion"}], "stage", "data", "data_format")
        return
    template = "chatml" if writer.value("template") == "chatml" else "tokenizer_default"
    writer.put("chat_template", template, "template")
    if stage == "sft":
        kind = KINDS.get(data.data_format, "alpaca")
        if data.data_format not in KINDS:
            writer.leave("data_format", "say how its rows are read, under datasets")
        writer.put("datasets", [{**one, "type": kind}], "stage", "data", "data_format")
        if kind == "alpaca":
            writer.put("train_on_inputs", False)
    elif stage in ("dpo", "kto"):
        writer.put("rl", stage, "stage")
        if stage == "kto":
            writer.put("remove_unused_columns", False)
        writer.leave("data_format", "say how its rows are read, under datasets: type")
        writer.put("datasets", [one], "data")
    else:
        writer.leave("stage", "its reward models take rows of another form")
        writer.put("datasets", [one], "data")


def _start(plan: Plan) -> list[str]:
    """How to start it on the same devices."""
    parallel = plan.spec.parallel
    names = f"CUDA_VISIBLE_DEVICES={','.join(parallel.devices)} " if parallel.devices else ""
    return [f"Start it with: {names}axolotl train axolotl.yaml"]
