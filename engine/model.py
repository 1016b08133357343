"""Model: the base weights as the spec asks for them, and the adapter that is trained on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from engine import split
from engine.failure import RunError
from engine.spec import Spec


def dtype_of(spec: Spec) -> torch.dtype:
    """The number format of the base weights and of all arithmetic."""
    dtype: torch.dtype = getattr(torch, spec.model.dtype)
    return dtype


def load_base(spec: Spec, path: Path, local_rank: int, local_ranks: int = 1) -> PreTrainedModel:
    """The base model on this rank's device, or spread over its devices; 4-bit for `qlora`.

    Under ZeRO-3 and FSDP it needs the trainer's arguments to exist: with the first each rank loads
    its share, with the second only rank 0 loads anything, which the others get their shares of.
    """
    settings: dict[str, Any] = {
        "dtype": dtype_of(spec),
        "attn_implementation": spec.model.attn_implementation,
        "trust_remote_code": False,
        "use_safetensors": True,
        "low_cpu_mem_usage": True,
    }
    if spec.method.method == "qlora":
        settings["quantization_config"] = quantization(spec)
    strategy, kind = spec.parallel.strategy, spec.parallel.device_kind
    if strategy == "layer_split":
        own = split.own_devices(spec, local_rank, local_ranks)
        settings["device_map"] = split.device_map(spec, path, own)
    # accelerate cannot hand out shares of 4-bit weights that only one rank has.
    elif strategy != "zero3" and (strategy != "fsdp" or spec.method.method == "qlora"):
        settings["device_map"] = {"": "cpu" if kind == "cpu" else f"{kind}:{local_rank}"}
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(str(path), **settings)
    model.config.use_cache = False
    check_targets(spec, model)
    return model


def check_targets(spec: Spec, model: torch.nn.Module) -> None:
    """Refuse adapters on modules that the model does not have: each name must find one.

    Raises RunError (bad_spec).
    """
    if spec.method.method == "full" or spec.method.target_modules == "all-linear":
        return
    modules = [name for name, _ in model.named_modules()]
    for wanted in target_modules(spec):
        if not any(f".{name}".endswith(f".{wanted}") for name in modules):
            linear = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
            names = ", ".join(sorted({name.rpartition(".")[2] for name in linear}))
            raise RunError(
                "bad_spec", f"target_modules: the model has no `{wanted}`; linear ones are {names}"
            )


def target_modules(spec: Spec) -> list[str]:
    """The module names of `target_modules`, one by one."""
    return [part.strip() for part in spec.method.target_modules.split(",")]


def quantization(spec: Spec) -> Any:
    """Normal-float 4-bit with quantized constants, stored so that shards stay whole."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype_of(spec),
        # FSDP shards what has the number format of the other weights.
        bnb_4bit_quant_storage=dtype_of(spec) if spec.parallel.strategy == "fsdp" else torch.uint8,
    )


def adapter_config(spec: Spec, revision: str | None) -> Any:
    """The LoRA adapter of a spec; None when all weights are trained."""
    if spec.method.method == "full":
        return None
    from peft import LoraConfig

    names = spec.method.target_modules
    return LoraConfig(
        r=spec.method.lora_rank,
        lora_alpha=spec.method.lora_alpha,
        lora_dropout=spec.method.lora_dropout,
        target_modules=names if names == "all-linear" else target_modules(spec),
        bias="none",
        task_type="CAUSAL_LM",
        revision=revision,
    )


def keep_adapter_precise(spec: Spec, model: PreTrainedModel) -> None:
    """Hold a 4-bit model's adapter in float32 where bfloat16 arithmetic is not asked for.

    TRL makes it bfloat16, which float16's gradient scaler cannot handle.
    """
    if spec.method.method != "qlora" or spec.model.dtype == "bfloat16":
        return
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(torch.float32)
