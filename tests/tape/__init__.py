"""Traced steps of the real libraries, which the simulation is held to.

traced.csv: peaks of two steps traced with fake tensors on torch 2.13, transformers 5.24, trl 1.16,
peft 0.21 and bitsandbytes 0.50. `grid` was there while the simulation was written, `held-out` was
not, and `families` are layers of other models. `rounding_bytes` is how far a peak may be off from
being printed with three digits.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from wizard.planner.tape.setup import Block, Setup, Stack

_DIMENSIONS: dict[str, tuple[int, int, int, int, int, int, int, bool]] = {
    "qwen2.5:0.5B": (896, 4864, 24, 14, 2, 64, 151936, True),
    "qwen2.5:1.5B": (1536, 8960, 28, 12, 2, 128, 151936, True),
    "qwen2.5:3B": (2048, 11008, 36, 16, 2, 128, 151936, True),
    "qwen2.5:7B": (3584, 18944, 28, 28, 4, 128, 152064, False),
    "qwen2.5:14B": (5120, 13824, 48, 40, 8, 128, 152064, False),
    "llama:3.2-1B": (2048, 8192, 16, 32, 8, 64, 128256, True),
    "llama:3.2-3B": (3072, 8192, 28, 24, 8, 128, 128256, True),
    "llama:3.1-8B": (4096, 14336, 32, 32, 8, 128, 128256, False),
    "llama:2-7B": (4096, 11008, 32, 32, 32, 128, 32000, False),
    "llama:2-13B": (5120, 13824, 40, 40, 40, 128, 32000, False),
    "qwen3:small": (1024, 3072, 8, 16, 8, 128, 151936, True),
    "phi3:small": (1024, 3072, 8, 16, 8, 64, 32064, False),
}


def block(name: str) -> Block:
    """The dimensions of a traced model."""
    hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, tied = _DIMENSIONS[name]
    return Block(
        hidden=hidden,
        intermediate=intermediate,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=vocab,
        tied=tied,
        qkv_bias=name.startswith("qwen2"),
        qk_norm=name.startswith("qwen3"),
        family="phi3" if name.startswith("phi3") else "llama",
    )


@dataclass(frozen=True)
class Traced:
    """One traced step."""

    source: str
    setup: Setup
    peak_bytes: int
    rounding_bytes: int
    reserved_bytes: int | None
    expandable_bytes: int | None


def traced(source: str) -> list[Traced]:
    """The traced steps of a source, in the order of the file."""
    with (Path(__file__).parent / "traced.csv").open(encoding="utf-8", newline="") as file:
        return [_traced(row) for row in csv.DictReader(file) if row["source"] == source]


def _traced(row: dict[str, str]) -> Traced:
    return Traced(
        source=row["source"],
        setup=_setup(row),
        peak_bytes=int(row["peak_bytes"]),
        rounding_bytes=int(row["rounding_bytes"]),
        reserved_bytes=int(row["reserved_bytes"]) if row["reserved_bytes"] else None,
        expandable_bytes=int(row["expandable_bytes"]) if row["expandable_bytes"] else None,
    )


def _setup(row: dict[str, str]) -> Setup:
    stack = cast(Any, Stack)(
        loss_head=row["loss_head"],
        optimizer=row["optimizer"],
        autocast=row["autocast"] == "y",
        adapter_dtype=row["adapter_dtype"],
        kbit_preparation=row["kbit_preparation"] == "y",
    )
    setup = cast(Any, Setup)(
        block=block(row["model"]),
        stack=stack,
        method=row["method"],
        weight_dtype=row["weight_dtype"],
        micro_batch=int(row["micro_batch"]),
        length=int(row["length"]),
        scored_fraction=float(row["scored_fraction"]),
        checkpointing=row["checkpointing"] == "y",
        checkpoint_every=int(row["checkpoint_every"]),
        attention=row["attention"],
        padded=row["padded"] == "y",
        accumulates=row["accumulates"] == "y",
        lora_rank=int(row["lora_rank"]),
        lora_dropout=float(row["lora_dropout"]),
        preference=row["preference"],
    )
    assert isinstance(setup, Setup)
    return setup
