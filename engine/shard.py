"""Shard: how the ranks share the work, as the settings of what shares it."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from engine.spec import Spec

BACKENDS = {"cuda": "nccl", "npu": "hccl", "cpu": "gloo"}
"""Device kind → what its ranks talk through."""


def deepspeed_config(spec: Spec) -> dict[str, Any]:
    """The DeepSpeed configuration of a ZeRO-3 spec; every value stated, none `auto`."""
    training, offload = spec.training, spec.parallel.offload
    zero: dict[str, Any] = {
        "stage": 3,
        "overlap_comm": spec.parallel.device_kind != "cpu",
        "contiguous_gradients": True,
        "stage3_gather_16bit_weights_on_model_save": True,
    }
    if offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": _pins(spec)}
    if offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": _pins(spec)}
    return {
        "train_batch_size": training.effective_batch_size,
        "train_micro_batch_size_per_gpu": training.per_device_train_batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "gradient_clipping": training.max_grad_norm,
        "bf16": {"enabled": spec.model.dtype == "bfloat16"},
        "fp16": {"enabled": spec.model.dtype == "float16"},
        "zero_optimization": zero,
        # DeepSpeed's own CPU Adam is compiled at start; torch's needs no compiler.
        "zero_force_ds_cpu_optimizer": offload != "none" and spec.parallel.device_kind != "cpu",
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2**31,
    }


def _pins(spec: Spec) -> bool:
    """Pinned host memory is what a device copies from fastest; CPU ranks copy nothing."""
    return spec.parallel.device_kind != "cpu"


def start_ranks(spec: Spec) -> None:
    """Make DeepSpeed's ranks talk before the trainer looks for them; others are left to it.

    Needs DS_ACCELERATOR set for CPU ranks before DeepSpeed is imported.
    """
    if spec.parallel.strategy != "zero3":
        return
    kind = spec.parallel.device_kind
    if kind == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    if kind == "cpu":
        # It would be compiled at every first start; gloo, which it speeds up, needs no compiler.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed(
        dist_backend=BACKENDS[kind],
        timeout=timedelta(seconds=spec.parallel.ddp_timeout),
        verbose=False,
    )
