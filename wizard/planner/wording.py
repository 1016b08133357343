"""Titles and reasons of whole plans."""

from __future__ import annotations

from engine.spec import Spec
from wizard.planner.candidates import Candidate

METHOD_REASONS = {
    "full": "all weights move: the most it can learn, and the most memory",
    "lora": "an adapter beside unchanged weights: nearly full quality, a fraction of the memory",
    "qlora": "an adapter on 4-bit weights: far less weight memory, expanded anew in each pass",
}
STAGES = {"pretrain": "Pre-training", "dpo": "DPO", "kto": "KTO", "reward": "Reward model"}
NAMES = {
    "zero1": "ZeRO-1",
    "zero2": "ZeRO-2",
    "zero3": "ZeRO-3",
    "fsdp": "FSDP",
}
MOVED = {
    "none": "",
    "optimizer": ", optimizer on the host",
    "parameters": ", weights and optimizer on the host",
}
SHARING_REASONS = {
    "single": "one device: nothing to synchronise",
    "ddp": "a whole copy on each of {count} devices: nothing to gather where it fits",
    "zero1": "whole weights on each of {count} devices, the optimizer's states split over them",
    "zero2": "whole weights on each of {count} devices, gradients and states split over them",
    "zero3": "weights, gradients and states are split over {count}",
    "fsdp": "weights, gradients and states are split over {count}, by torch itself",
    "layer_split": "each device has some of the layers, and works while the others wait",
}


def describe(method: str) -> str:
    """What a method means, in one sentence."""
    return METHOD_REASONS[method]


def sharing_reason(candidate: Candidate) -> str:
    """Why this strategy is a way to use these devices."""
    return SHARING_REASONS[candidate.strategy].format(count=candidate.devices)


def title(spec: Spec) -> str:
    """As the table of plans shows it."""
    method = {"full": "Full", "lora": "LoRA", "qlora": "QLoRA"}[spec.method.method]
    rank = "" if spec.method.method == "full" else f" r{spec.method.lora_rank}"
    dtype = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[spec.model.dtype]
    states = ", 8-bit AdamW" if spec.training.optim == "adamw_bnb_8bit" else ""
    stage = "" if spec.method.stage == "sft" else f"{STAGES[spec.method.stage]}, "
    return f"{stage}{method}{rank} {dtype}{states}, {_sharing(spec)}"


def _sharing(spec: Spec) -> str:
    parallel = spec.parallel
    unit = "CPU rank" if parallel.device_kind == "cpu" else "device"
    count = f"{parallel.num_devices} {unit}" + "s" * (parallel.num_devices > 1)
    if parallel.strategy == "single":
        return f"one {unit}"
    if parallel.strategy == "ddp":
        return f"DDP on {count}"
    if parallel.strategy == "layer_split":
        copies = f", {parallel.ranks} copies" if parallel.ranks > 1 else ""
        return f"layers split over {count}{copies}"
    moved = MOVED[parallel.offload]
    if parallel.offload_device == "nvme":
        moved = moved.replace("host", "disk")
    return f"{NAMES[parallel.strategy]}{moved} on {count}"
