"""Names and values of other trainers, and what they are called here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

TRUE, FALSE = ("true", "yes", "1"), ("false", "no", "0")
ZERO = re.compile(r"(?:zero|z|stage)[-_]?([0-3])")
FLASH = {
    "fa2": "flash_attention_2",
    "flash_attn": "flash_attention_2",
    "disabled": "eager",
    **dict.fromkeys(TRUE, "flash_attention_2"),
}


def _switch(on: str, off: str, instead: str) -> Callable[[str], str]:
    """What true and false mean; an empty one means nothing here, and `instead` says what to set."""

    def translated(value: str) -> str:
        meant = on if value in TRUE else off if value in FALSE else ""
        if not meant:
            raise ValueError(f"set {instead}")
        return meant

    return translated


def _sharing(value: str) -> str:
    found = ZERO.search(value.rsplit("/", 1)[-1])
    if found is None or "offload" in value:
        raise ValueError("set strategy=zero1, zero2 or zero3, and offload=optimizer or parameters")
    return "ddp" if found[1] == "0" else f"zero{found[1]}"


def _share(setting: str, of: str) -> Callable[[str], str]:
    """A share as it is; a count says nothing before there is something to count."""

    def translated(value: str) -> str:
        try:
            share = float(value)
        except ValueError:
            share = -1.0
        if not 0 <= share < 1:
            raise ValueError(f"set {setting}, a share of {of} from 0 to below 1")
        return value

    return translated


def _four_bits(value: str) -> str:
    if value != "4":
        raise ValueError("set method=qlora, which is 4-bit, or method=lora")
    return "qlora"


def _indices(_: str) -> str:
    raise ValueError("set --devices 0,1, or num_devices")


TRANSLATED: Mapping[str, tuple[str, Callable[[str], str]]] = {
    "bf16": ("dtype", _switch("bfloat16", "", "dtype=float32 or dtype=float16")),
    "fp16": ("dtype", _switch("float16", "", "dtype=float32 or dtype=bfloat16")),
    "deepspeed": ("strategy", _sharing),
    "use_peft": ("method", _switch("lora", "full", "method=lora, qlora or full")),
    "load_in_4bit": ("method", _switch("qlora", "", "method=lora or method=full")),
    "quantization_bit": ("method", _four_bits),
    "quant_bits": ("method", _four_bits),
    "flash_attn": ("attn_implementation", lambda value: FLASH.get(value, value)),
    "flash_attention": ("attn_implementation", lambda value: FLASH.get(value, value)),
    "use_hf": ("source", _switch("huggingface", "modelscope", "source=huggingface or modelscope")),
    "val_set_size": ("eval_split", _share("eval_split", "the rows")),
    "val_size": ("eval_split", _share("eval_split", "the rows")),
    "split_dataset_ratio": ("eval_split", _share("eval_split", "the rows")),
    "warmup_steps": ("warmup_ratio", _share("warmup_ratio", "the steps")),
    "cuda_visible_devices": ("devices", _indices),
}
"""Name elsewhere → our setting, and what makes a value of ours of theirs, in lower case.

Raises ValueError, saying what to set, for a value that has no single one.
"""

ALIASES: Mapping[str, str] = {
    "lr": "learning_rate",
    "epochs": "num_train_epochs",
    "batch_size": "effective_batch_size",
    "global_batch_size": "effective_batch_size",
    "total_batch_size": "effective_batch_size",
    "micro_batch_size": "per_device_train_batch_size",
    "train_batch_size": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
    "r": "lora_rank",
    "rank": "lora_rank",
    "lora_r": "lora_rank",
    "alpha": "lora_alpha",
    "max_seq_length": "max_length",
    "cutoff_len": "max_length",
    "sequence_len": "max_length",
    "tuner_type": "method",
    "train_type": "method",
    "finetuning_type": "method",
    "optimizer": "optim",
    "scheduler": "lr_scheduler_type",
    "system_prompt": "system",
    "chat_template": "template",
    "num_gpus": "num_devices",
    "torch_dtype": "dtype",
    "attn_impl": "attn_implementation",
    "rlhf_type": "stage",
    "pref_beta": "beta",
    "pref_loss": "loss_type",
    "kto_chosen_weight": "desirable_weight",
    "kto_rejected_weight": "undesirable_weight",
    "eval_dataset": "eval_data",
    "val_dataset": "eval_data",
    "adapters": "adapter",
    "adapter_name_or_path": "adapter",
    "additional_target": "modules_to_save",
    "init_weights": "init_lora_weights",
    "model_name_or_path": "model",
    "base_model": "model",
    "model_revision": "revision",
    "revision_of_model": "revision",
    "chat_template_path": "template",
    "dataset": "data",
    "datasets": "data",
    "dataset_name": "data",
    "default_system": "system",
    "default_system_message": "system",
    "lora_target": "target_modules",
    "lora_target_modules": "target_modules",
    "num_epochs": "num_train_epochs",
    "lr_scheduler": "lr_scheduler_type",
    "num_processes": "num_devices",
    "nproc_per_node": "num_devices",
    "sample_packing": "packing",
    "cosine_min_lr_ratio": "min_lr_rate",
    "neat_packing": "packing",
    "neftune_alpha": "neftune_noise_alpha",
    "enable_liger_kernel": "use_liger_kernel",
    "liger_kernel": "use_liger_kernel",
    "compile": "torch_compile",
    "train_sampling_strategy": "group_by_length",
    "num_workers": "dataloader_num_workers",
    "prefetch_factor": "dataloader_prefetch_factor",
    "tracker": "report_to",
    "trainer_cls": "trainer",
    "compute_loss_func": "loss",
    "compute_metrics": "metric",
    "callbacks": "callback",
}
"""Names other trainers use → ours; accepted on input only."""

VALUE_ALIASES: Mapping[str, Mapping[str, str]] = {
    "stage": {"pt": "pretrain", "rm": "reward"},
    "strategy": {"fsdp2": "fsdp"},
    "init_lora_weights": {"true": "default"},
    "target_modules": {"all": "all-linear"},
    "dtype": {"bf16": "bfloat16", "fp16": "float16", "half": "float16", "fp32": "float32"},
    "optim": {
        "adamw_8bit": "adamw_bnb_8bit",
        "paged_adamw": "paged_adamw_32bit",
        "lion": "lion_32bit",
        "paged_lion": "paged_lion_32bit",
    },
    "attn_implementation": {
        "fa2": "flash_attention_2",
        "fa3": "flash_attention_3",
        "flash_attn": "flash_attention_2",
    },
    "group_by_length": {"group_by_length": "true", "random": "false"},
}
"""Setting → values other trainers use → ours; accepted on input only."""
