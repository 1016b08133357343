"""A measured row of a public source → the step it ran on its own libraries, or why not."""

from __future__ import annotations

import csv
import itertools
import math
import random
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, get_args

from benchmarks import stacks
from benchmarks.stacks import SkipRowError, stack_of
from wizard.planner.tape.setup import MATRICES, Block, Dtype, Setup
from wizard.probe import catalog

Row: TypeAlias = Mapping[str, str]
Value = TypeVar("Value")
Kind = Literal["allocated", "active", "reserved", "device"]
KINDS: tuple[Kind, ...] = get_args(Kind)

POINTS = Path(__file__).resolve().parent / "points"

LLAMA_LIKE = frozenset({"llama", "mistral", "granite", "qwen", "qwen2", "qwen3", "baichuan",
                        "chatglm", "mixtral", "qwen3_moe"})  # fmt: skip
"""Architectures whose layer is RMSNorm, rotary attention and SwiGLU, dense or routed."""
FAMILIES: Mapping[str, Literal["gemma", "gemma2", "phi3"]] = {
    "gemma": "gemma",
    "gemma2": "gemma2",
    "phi3": "phi3",
}
QKV_BIAS = frozenset({"qwen", "qwen2", "chatglm"})
QK_NORM = frozenset({"qwen3", "qwen3_moe"})

METHODS: Mapping[str, Literal["full", "lora", "qlora"]] = {
    "full": "full",
    "full (pre-training)": "full",
    "full SFT": "full",
    "full (dpo)": "full",
    "lora": "lora",
    "qlora": "qlora",
    "gptq-lora": "qlora",
}
STRATEGIES: Mapping[str, Literal["single", "ddp", "zero2", "zero3", "fsdp1", "fsdp2"]] = {
    "single": "single",
    "ddp": "ddp",
    "ddp (FSDP NO_SHARD)": "ddp",
    "deepspeed zero2": "zero2",
    "deepspeed zero3": "zero3",
    "DeepSpeed ZeRO-3": "zero3",
    "colossal zero2": "zero2",
    "colossal zero2-cpu": "zero2",
    "fsdp": "fsdp1",
    "fsdp full shard": "fsdp1",
    "fsdp FULL_SHARD": "fsdp1",
    "fsdp FULL_SHARD (fsdp1)": "fsdp1",
    "fsdp FULL_SHARD + CPU offload": "fsdp1",
    "FSDP (aligned)": "fsdp1",
    "fsdp2": "fsdp2",
}
OFFLOADS: Mapping[str, Literal["none", "optimizer", "parameters"]] = {
    "": "none",
    "none": "none",
    "optimizer+grads to CPU": "optimizer",
    "params": "parameters",
    "params (fsdp offload)": "parameters",
}
LENGTH_KNOWN = ("packed", "exact", "longest", "max_length; dataset", '"inputs of different')
"""How a description begins whose length is really reached, not only a limit."""
TARGETS: Mapping[str, tuple[str, ...]] = {
    "": MATRICES,
    "all": MATRICES,
    "all-linear": MATRICES,
    "c_attn,c_proj,w1,w2": MATRICES,
    "q_proj,k_proj,v_proj,o_proj": ("q", "k", "v", "o"),
    "q_proj,k_proj,v_proj,o_proj,c_attn": ("q", "k", "v", "o"),
    "q,v (lora_query, lora_value)": ("q", "v"),
    "q,k,v,up,down,gate_proj (train.py default)": ("q", "k", "v", "gate", "up", "down"),
    "q,v,output_proj + mlp": ("q", "v", "o", "gate", "up", "down"),
    "q,k,v,output_proj + mlp": MATRICES,
    "q_proj,v_proj": ("q", "v"),
    "q,v": ("q", "v"),
    "q,k,v": ("q", "k", "v"),
}
DROPOUTS: Mapping[str, float] = {
    "foundation-model-stack/fms-acceleration": 0.1,
    "AnswerDotAI/fsdp_qlora": 0.1,
    "modelscope/ms-swift": 0.05,
    "QwenLM/Qwen": 0.05,
    "Lightning-AI/litgpt": 0.05,
}
"""LoRA dropout, as the source's scripts set it (fms: scripts/benchmarks/scenarios.yaml; the others
by default); elsewhere there is none."""
SPREAD = re.compile(r"\((\d+)\+-(\d+) tokens\)")
"""How a source gives mean and deviation of its rows' lengths."""
STEPS = 16
"""Steps that are simulated where rows differ in length."""
ORDERS = 3
"""Orders of them: what is held in the end depends on the order."""
FUSED_QKV = ("q", "k", "v")
"""What `DEFAULT` adapts in ms-swift 2: the attention's input projections."""


def read(path: Path) -> list[Row]:
    """Rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_like(path: Path, shipped: str) -> list[Row]:
    """Rows of a table with at least the columns of a shipped one.

    Raises SystemExit with one sentence when the file cannot be read or lacks a column.
    """
    try:
        table = read(path)
    except (OSError, UnicodeDecodeError) as error:
        raise SystemExit(f"{path}: cannot be read: {error}") from error
    if not table:
        raise SystemExit(f"{path}: no rows; give a file with the columns of {POINTS / shipped}")
    lacking = [column for column in read(POINTS / shipped)[0] if column not in table[0]]
    if lacking:
        raise SystemExit(f"{path}: lacks {', '.join(lacking)}, which {POINTS / shipped} has")
    return table


def models() -> Mapping[str, Row]:
    """Dimensions of the models that the rows name."""
    return {row["name"]: row for row in read(POINTS / "models.csv")}


def kind_of(row: Row) -> Kind:
    """Which of the four kinds of device memory the row's number is.

    Raises SkipRowError when the source does not say.
    """
    text = row["mem_kind"]
    if text.startswith(("torch max_memory_allocated", "torch peak allocated")):
        return "allocated"
    if text.startswith("torch peak active"):
        return "active"
    if "reserved or active" in text or "vs reserved not said" in text:
        raise SkipRowError("the source does not say which memory it measured")
    if "reserved" in text and "axolotl" not in text:
        return "reserved"
    if text.startswith("NVML") or "nvidia-smi" in text:
        return "device"
    raise SkipRowError("the source does not say which memory it measured")


def block_of(row: Row, known: Mapping[str, Row]) -> Block:
    """The decoder a row trains.

    Raises SkipRowError when its dimensions or its layer are unknown.
    """
    model = known.get(row["model"])
    if model is None:
        raise SkipRowError("unknown model: its dimensions are not published")
    architecture = model["architecture"]
    if architecture not in LLAMA_LIKE and architecture not in FAMILIES:
        raise SkipRowError(f"architecture {architecture} is not simulated")
    experts = int(model["experts"] or 0)
    return Block(
        hidden=int(model["hidden_size"]),
        intermediate=int(model["intermediate_size"]),
        layers=int(model["num_layers"]),
        heads=int(model["num_heads"]),
        kv_heads=int(model["num_kv_heads"]),
        head_dim=int(model["head_dim"]),
        vocab=int(model["vocab_size"]),
        tied=model["tied_embeddings"] == "yes",
        qkv_bias=architecture in QKV_BIAS,
        qk_norm=architecture in QK_NORM,
        experts=experts,
        experts_per_token=int(model["experts_per_token"] or 0),
        moe_intermediate=int(model["moe_intermediate"] or model["intermediate_size"])
        if experts
        else 0,
        family=FAMILIES.get(architecture, "llama"),
    )


def setup_of(row: Row, known: Mapping[str, Row]) -> Setup:
    """The step that a row of memory_measured.csv ran.

    Raises SkipRowError with the first reason that it cannot be simulated.
    """
    if "INCONSISTENT" in row["notes"]:
        raise SkipRowError("the source's own numbers contradict each other")
    method = _of(METHODS, row["method"], "method")
    strategy = _of(STRATEGIES, row["parallel_strategy"], "parallelism")
    if stacks.by_deepspeed_alone(row):
        strategy = "zero2"
    return Setup(
        block=block_of(row, known),
        stack=stack_of(row),
        method=method,
        quantisation="gptq4" if _four_bit(row) == "gptq" else "nf4",
        weight_dtype=_dtype(row["dtype"]),
        micro_batch=_number(row["per_device_batch"], "micro-batch"),
        length=_length(row),
        checkpointing=_checkpointing(row["gradient_checkpointing"]),
        attention=_attention(row["attn_impl"]),
        accumulates=row["grad_accum"] not in ("", "1"),
        lora_rank=int(row["lora_rank"] or 0) or 16,
        lora_dropout=DROPOUTS.get(row["source"], 0.0),
        lora_targets=_targets(row) if method != "full" else MATRICES,
        preference="model" if "dpo" in row["method"] else "none",
        world_size=int(row["n_gpus"]),
        strategy=strategy,
        offload=_of(OFFLOADS, row["offload"], "offload"),
    )


def orders_of(row: Row, setup: Setup) -> tuple[tuple[int, ...], ...]:
    """Orders in which steps of differing length may come, where the source says how they differ.

    Rows are drawn from the log-normal with its mean and deviation. Those above the limit are left
    out, not cut: `--truncation_strategy delete` is ms-swift 2's default (its pull request 254), and
    were they cut, its rows a second would be twice what the device can compute. A micro-batch is as
    long as its longest row; one reaches the limit.
    """
    spread = SPREAD.search(row["seq_semantics"])
    if spread is None:
        return ()
    mean, deviation = int(spread[1]), int(spread[2])
    return tuple(_order(setup, mean, deviation, random.Random(seed)) for seed in range(ORDERS))


def _order(setup: Setup, mean: int, deviation: int, draw: random.Random) -> tuple[int, ...]:
    variance = math.log(1 + (deviation / mean) ** 2)
    drawn = (
        round(draw.lognormvariate(math.log(mean) - variance / 2, math.sqrt(variance)))
        for _ in itertools.count()
    )
    kept = (max(1, length) for length in drawn if length <= setup.length)
    steps = (max(itertools.islice(kept, setup.micro_batch)) for _ in range(STEPS - 1))
    return (*steps, setup.length)


def _of(table: Mapping[str, Value], text: str, name: str) -> Value:
    if text not in table:
        raise SkipRowError(f"{name} not simulated: {text or 'not given'}")
    return table[text]


def _four_bit(row: Row) -> Literal["none", "nf4", "gptq"]:
    text = row["quantisation"]
    if "int8" in text:
        raise SkipRowError(f"quantisation not simulated: {text}")
    if text.startswith("gptq"):
        return "gptq"
    return "none" if text == "none" else "nf4"


def _dtype(text: str) -> Dtype:
    if text in ("fp32", ""):
        return "float32"
    if text.startswith(("float16", "fp16 (scripts)")):
        return "float16"
    return "bfloat16"


def _number(text: str, name: str) -> int:
    if not text.isdigit():
        raise SkipRowError(f"the source does not give the {name}")
    return int(text)


def _length(row: Row) -> int:
    length = _number(row["seq_len"], "length of a row")
    if not row["seq_semantics"].startswith(LENGTH_KNOWN):
        raise SkipRowError("the source gives a limit, not the length of the longest batch")
    return length


def _checkpointing(text: str) -> bool:
    if text == "":
        raise SkipRowError("the source does not say whether activations are recomputed")
    if "selective" in text:
        raise SkipRowError("selective recomputation is not simulated")
    return text != "n"


def _attention(text: str) -> Literal["sdpa", "flash", "eager"]:
    lowered = text.lower()
    if "flash off" in lowered or "eager" in lowered:
        return "eager"
    return "flash" if lowered.startswith(("flash", "kernels-community")) else "sdpa"


def _targets(row: Row) -> tuple[str, ...]:
    text = row["target_modules"]
    if text.startswith("DEFAULT"):
        return FUSED_QKV
    return _of(TARGETS, text, "adapted modules")


DEVICES: Mapping[str, str] = {
    "A100-SXM4-40GB": "NVIDIA A100-SXM4-40GB",
    "A100-SXM-40GB": "NVIDIA A100-SXM4-40GB",
    "a100_40gb": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA A100-SXM4-80GB",
    "A100-SXM4-80GB": "NVIDIA A100-SXM4-80GB",
    "a100_80gb": "NVIDIA A100-SXM4-80GB",
    "A100-80GB (size not stated)": "NVIDIA A100-SXM4-80GB",
    "A10G-24GB": "NVIDIA A10G",
    "A5000 24GB": "NVIDIA RTX A5000",
    "H800-80GB": "NVIDIA H800",
    "H100-80GB": "NVIDIA H100 80GB HBM3",
    "h100_80gb": "NVIDIA H100 80GB HBM3",
    "H200-141GB": "NVIDIA H200",
    "H200-SXM-141GB": "NVIDIA H200",
    "RTX 3090 24GB": "NVIDIA GeForce RTX 3090",
    "RTX 4090 24GB": "NVIDIA GeForce RTX 4090",
    "RTX A6000 48GB": "NVIDIA RTX A6000",
    "B200": "NVIDIA B200",
}
"""A source's word for its device → the driver's name; other words leave open which one it is."""


def device_of(row: Row) -> Row | None:
    """The row's device in the shipped table of accelerators; None when it is not named."""
    return catalog.accelerator(DEVICES.get(row["gpu_model"], ""))


def capacity_bytes(row: Row) -> int | None:
    """Memory of the row's device as its driver reports it; None when it is not named."""
    device = device_of(row)
    mib = None if device is None else catalog.number(device, "memory_mib")
    return None if mib is None else round(mib) * 1024**2
