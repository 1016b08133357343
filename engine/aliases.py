"""Names of other trainers whose value means something else here: each with its translation."""

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
