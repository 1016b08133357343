"""Model: the base weights as the spec asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from engine import split
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
        "trust_remote_code": spec.model.trust_remote_code,
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
    loader: Any = AutoModelForCausalLM
    if spec.method.stage == "reward":
        loader = AutoModelForSequenceClassification
        settings["num_labels"] = 1
    model: PreTrainedModel = loader.from_pretrained(str(path), **settings)
    model.config.use_cache = False
    return model


def quantization(spec: Spec) -> Any:
    """Normal-float 4-bit with quantized constants, stored so that shards stay whole."""
    from transformers import BitsAndBytesConfig

    shared = spec.parallel.strategy in ("fsdp", "zero3")
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype_of(spec),
        # FSDP and ZeRO-3 shard what has the number format of the other weights.
        bnb_4bit_quant_storage=dtype_of(spec) if shared else torch.uint8,
    )
