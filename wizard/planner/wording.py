"""Titles and reasons of whole plans."""

from __future__ import annotations

from engine.spec import Spec
from wizard.planner.candidates import Candidate
from wizard.planner.pool import Pool

METHOD_REASONS = {
    "full": "all weights move: the most it can learn, and the most memory",
    "lora": "an adapter beside unchanged weights: nearly full quality, a fraction of the memory",
    "qlora": "an adapter on 4-bit weights: far less weight memory, expanded anew in each pass",
}
STAGES = {"pretrain": "Pre-training", "dpo": "DPO", "kto": "KTO", "reward": "Reward model"}
SHARDED = {
    "none": "ZeRO-3",
    "optimizer": "ZeRO-3, optimizer on the host",
    "parameters": "ZeRO-3, weights and optimizer on the host",
}


def describe(method: str) -> str:
    """What a method means, in one sentence."""
    return METHOD_REASONS[method]


def sharing_reason(candidate: Candidate, pool: Pool) -> str:
    """Why this strategy is a way to use these devices."""
    if candidate.strategy == "single":
        return "one device: nothing to synchronise"
    if candidate.strategy == "ddp":
        return f"a whole copy on each of {candidate.devices} devices: fastest where it fits"
    return f"weights, gradients and states are split over {candidate.devices}"


def title(spec: Spec) -> str:
    """As the table of plans shows it."""
    method = {"full": "Full", "lora": "LoRA", "qlora": "QLoRA"}[spec.method.method]
    rank = "" if spec.method.method == "full" else f" r{spec.method.lora_rank}"
    dtype = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[spec.model.dtype]
    stage = "" if spec.method.stage == "sft" else f"{STAGES[spec.method.stage]}, "
    return f"{stage}{method}{rank} {dtype}, {_sharing(spec)}"


def _sharing(spec: Spec) -> str:
    parallel = spec.parallel
    unit = "CPU rank" if parallel.device_kind == "cpu" else "device"
    count = f"{parallel.num_devices} {unit}" + "s" * (parallel.num_devices > 1)
    if parallel.strategy == "single":
        return f"one {unit}"
    if parallel.strategy == "ddp":
        return f"DDP on {count}"
    return f"{SHARDED[parallel.offload]} on {count}"
