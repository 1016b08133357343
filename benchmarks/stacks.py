"""The library stack a row was measured on: loss head, optimizer, autocast, adapters, kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from wizard.planner.tape.device import CONTEXT
from wizard.planner.tape.setup import Dtype, Interval, Stack

Row: TypeAlias = Mapping[str, str]
LossHead: TypeAlias = Literal[
    "chunked", "full", "full_shifted", "full_upcast", "full_narrow", "fused"
]
Optimizer: TypeAlias = Literal[
    "adamw_fused", "adamw_foreach", "adamw_8bit", "adamw_paged_8bit", "adamw_paged", "sgd",
    "adafactor",
]  # fmt: skip

SHIFTED_COPY = ((4, 46), (4, 50))
"""From this release until that one the loss copies the shifted logits beside the model's own;
before, float32 logits replaced those."""

OPTIMIZERS: Mapping[str, Optimizer] = {
    "adamw_torch (HF default, foreach)": "adamw_foreach",
    "adamw_torch": "adamw_foreach",
    "adamw (framework default)": "adamw_foreach",
    "adamw": "adamw_foreach",
    "AdamW": "adamw_foreach",
    "torch.optim.AdamW": "adamw_foreach",
    "AdamW fused": "adamw_fused",
    "adamw_torch_fused": "adamw_fused",
    "HybridAdam": "adamw_fused",
    "bnb PagedAdamW": "adamw_paged",
    "bnb PagedAdamW (forced for bnb)": "adamw_paged",
    "8-bit AdamW": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "SGD": "sgd",
    "Adafactor": "adafactor",
}
"""`adamw_torch` is foreach on CUDA before transformers 5; the trainers' plain AdamW as well."""

MIB = 1024**2
CUDA_11_CONTEXT = Interval(low=300 * MIB, high=1536 * MIB)
"""CUDA 11 loads every kernel of a library unless lazy loading is in force, which is a driver's
default since 12.2 (pytorch #152695): torch's own kernels came to 1.0 to 1.5 GB (pytorch #107667,
#4918)."""

QWEN_BUCKET = 2 * 10**8
"""Elements of the reduce bucket of QwenLM/Qwen's finetune/ds_config_zero2.json."""

PURE_BFLOAT16 = frozenset(
    {
        "Lightning-AI/litgpt",
        "pytorch/torchtune",
        "AnswerDotAI/fsdp_qlora",
        "pytorch/torchtitan",
        "hpcaitech/ColossalAI",
    }
)
"""Trainers that cast the whole model, adapters included, and use no autocast."""


class SkipRowError(ValueError):
    """A row that cannot be scored; the text is the reason it is counted under."""


def stack_of(row: Row) -> Stack:
    """The stack of a row of memory_measured.csv.

    Raises SkipRowError when a part of it is not simulated.
    """
    kernels = _kernels(row["fused_loss_or_kernels"])
    liger, fms = "liger" in kernels, "foak" in kernels
    shared_adapter = _adapter_under_fsdp(row)
    autocast = _autocast(row)
    return Stack(
        loss_head=_loss_head(row, "" if shared_adapter else kernels),
        kernel_loss=fms and not liger and not shared_adapter,
        outputs_kept=shared_adapter,
        optimizer=_optimizer(row["optimizer"]),
        step_copies=2 if "torch 2.0" in row["framework_versions"] else 1,
        autocast=autocast,
        adapter_dtype=_adapter_dtype(row),
        kbit_preparation="prepare_model_for_kbit_training" in row["notes"],
        float32_outputs=autocast,
        quantised_sharded="fsdp" in row["parallel_strategy"].lower(),
        double_quantised=row["source"] != "Lightning-AI/litgpt" or "double" in row["quantisation"],
        fused_4bit_tokens=0,
        fused_norm=liger or fms,
        fused_rope=liger or fms,
        fused_mlp=liger and not fms,
        fsdp_upcast=autocast or "fp32 master" in row["dtype"],
        bucket_elements=QWEN_BUCKET if by_deepspeed_alone(row) else None,
    )


def context_of(row: Row) -> Interval:
    """What lies outside of the allocator before a step runs, on the row's CUDA."""
    return CUDA_11_CONTEXT if "CUDA 11" in row["framework_versions"] else CONTEXT


def by_deepspeed_alone(row: Row) -> bool:
    """Whether a run on one device went through DeepSpeed's ZeRO-2 all the same.

    Source: QwenLM/Qwen finetune/finetune_qlora_single_gpu.sh and ds_config_zero2.json.
    """
    return row["source"] == "QwenLM/Qwen" and row["method"] == "gptq-lora"


def _adapter_under_fsdp(row: Row) -> bool:
    """Whether an fms row trained an adapter on Mistral inside of FSDP, with accelerate 1.0.

    Read off the rows, not off code: they have the same bytes with and without the kernels for the
    loss, to the megabyte (138 and 142, 145 and 149 of the Liger table), and 16 bytes a logit, as
    if the returned float32 logits stayed. Rows on one device, of full tuning, or of Granite with
    accelerate 0.34 have neither. Figures without this rule are in docs/results.
    """
    wrapped = "fsdp" in row["parallel_strategy"].lower() and row["method"] != "full"
    fms = row["source"] == "foundation-model-stack/fms-acceleration"
    return wrapped and fms and "Mistral" in row["model"]


def _kernels(text: str) -> str:
    if "compile" in text:
        raise SkipRowError("a compiled graph chooses itself what it keeps")
    return text.lower()


def _optimizer(text: str) -> Optimizer:
    if text not in OPTIMIZERS:
        raise SkipRowError(f"optimizer not simulated: {text or 'not given'}")
    return OPTIMIZERS[text]


def _autocast(row: Row) -> bool:
    if row["source"] in PURE_BFLOAT16 or by_deepspeed_alone(row):
        return False
    return not ("no AMP" in row["dtype"] or row["dtype"] in ("fp32", ""))


def _adapter_dtype(row: Row) -> Dtype:
    """PEFT's adapters are float32; FSDP1 flattens them with the frozen base, so they match it."""
    if row["source"] in PURE_BFLOAT16:
        return "bfloat16"
    if by_deepspeed_alone(row):
        return "float16"
    if "fsdp" in row["parallel_strategy"].lower() or "zero3" in row["parallel_strategy"]:
        return "float16" if row["dtype"].startswith("float16") else "bfloat16"
    return "float32"


def _loss_head(row: Row, kernels: str) -> LossHead:
    """The loss of the release, or of the model's own code: Qwen 1 came with modeling_qwen.py."""
    if "chunked" in kernels:
        return "chunked"
    if "liger" in kernels or "cutcrossentropy" in kernels or "cross-entropy fusion" in kernels:
        return "fused"
    if row["model"].startswith("Qwen/Qwen-"):
        return "full_narrow"
    version = re.search(r"transformers (\d+)\.(\d+)", row["framework_versions"])
    if version is None:
        return "full_upcast"
    release = (int(version[1]), int(version[2]))
    if release < SHIFTED_COPY[0]:
        return "full_upcast"
    return "full_shifted" if release < SHIFTED_COPY[1] else "full"
