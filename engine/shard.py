"""Shard: how the ranks share the work, as the settings of what shares it."""

from __future__ import annotations

import hashlib
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

from engine.builds import refuse_stale_locks
from engine.failure import RunError
from engine.spec import ZERO_STAGES, Spec
from engine.theirs import why

BACKENDS = {"cuda": "nccl", "npu": "hccl", "cpu": "gloo"}
"""Device kind → what its ranks talk through."""
DDP_BUCKET_MIB = 25
"""Gradients that travel together in DDP."""
ZERO_BUCKET_ELEMENTS = 5 * 10**8
"""Gradients, or weights, that travel together in ZeRO-1 and -2: DeepSpeed's own default."""
PREFETCH_ELEMENTS = 5 * 10**7
"""Weights that ZeRO-3 gathers ahead of their use."""
PERSISTENT_ELEMENTS = 10**5
"""Smaller tensors stay whole on every rank under ZeRO-3."""
LIVE_ELEMENTS = 10**9
"""Weights that ZeRO-3 may hold gathered."""
LOSS_SCALE_POWER = 16
"""float16 losses are scaled by 2 to this power at first."""
CONFIG_FILES = {
    **dict.fromkeys(ZERO_STAGES, "ds_config.json"),
    "fsdp": "fsdp_config.json",
}
"""Strategy → file of the run folder that shows what its library was told."""


def trainer_settings(spec: Spec) -> dict[str, Any]:
    """What every recipe's trainer is told about its ranks."""
    parallel = spec.parallel
    return {
        "use_cpu": parallel.device_kind == "cpu",
        "ddp_backend": None if parallel.ranks == 1 else BACKENDS[parallel.device_kind],
        "ddp_timeout": parallel.ddp_timeout,
        # The trainer's own choice depends on other settings, and costs a pass over the graph.
        "ddp_find_unused_parameters": False,
        "ddp_bucket_cap_mb": DDP_BUCKET_MIB,
        # Buffers of language models are constants, the same on all ranks.
        "ddp_broadcast_buffers": False,
        "deepspeed": deepspeed_config(spec) if parallel.strategy in ZERO_STAGES else None,
        "fsdp": parallel.strategy == "fsdp",
        "fsdp_config": fsdp_config(spec) if parallel.strategy == "fsdp" else None,
        "accelerator_config": {"gradient_accumulation_kwargs": _accumulation(spec)},
        "gradient_checkpointing": spec.training.gradient_checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": _reentrant(spec)},
    }


def _reentrant(spec: Spec) -> bool:
    """DeepSpeed gathers an adapter's base weights again only in the reentrant kind."""
    return spec.parallel.strategy == "zero3" and spec.method.method != "full"


def _accumulation(spec: Spec) -> dict[str, bool]:
    """FSDP would keep whole gradients between micro-batches; sharded ones are what it is for."""
    return {"sync_each_batch": spec.parallel.strategy == "fsdp"}


def deepspeed_config(spec: Spec) -> dict[str, Any]:
    """The DeepSpeed configuration of a ZeRO spec; every value stated, none `auto`."""
    training, offload = spec.training, spec.parallel.offload
    return {
        "train_batch_size": training.effective_batch_size,
        "train_micro_batch_size_per_gpu": training.per_device_train_batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "gradient_clipping": training.max_grad_norm,
        "bf16": {"enabled": spec.model.dtype == "bfloat16"},
        "fp16": {
            "enabled": spec.model.dtype == "float16",
            "loss_scale": 0,
            "initial_scale_power": LOSS_SCALE_POWER,
            "loss_scale_window": 1000,
            "hysteresis": 2,
            "min_loss_scale": 1,
        },
        "zero_optimization": _zero(spec),
        # DeepSpeed's own CPU Adam is compiled at start; torch's needs no compiler.
        "zero_force_ds_cpu_optimizer": offload != "none" and spec.parallel.device_kind != "cpu",
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2**31,
    }


def _zero(spec: Spec) -> dict[str, Any]:
    stage = ZERO_STAGES[spec.parallel.strategy]
    zero: dict[str, Any] = {
        "stage": stage,
        "overlap_comm": spec.parallel.device_kind != "cpu",
        "contiguous_gradients": True,
        "reduce_bucket_size": ZERO_BUCKET_ELEMENTS,
    }
    if stage < 3:
        zero |= {"allgather_partitions": True, "allgather_bucket_size": ZERO_BUCKET_ELEMENTS}
        zero |= {"reduce_scatter": True, "round_robin_gradients": False}
    else:
        zero |= {
            "stage3_prefetch_bucket_size": PREFETCH_ELEMENTS,
            "stage3_param_persistence_threshold": PERSISTENT_ELEMENTS,
            "stage3_max_live_parameters": LIVE_ELEMENTS,
            "stage3_max_reuse_distance": LIVE_ELEMENTS,
            "stage3_gather_16bit_weights_on_model_save": True,
            "sub_group_size": LIVE_ELEMENTS,
        }
    if spec.parallel.offload != "none":
        zero["offload_optimizer"] = _offloaded(spec)
    if spec.parallel.offload == "parameters":
        zero["offload_param"] = _offloaded(spec)
    return zero


def _offloaded(spec: Spec) -> dict[str, Any]:
    """Pinned host memory is what a device copies from fastest; CPU ranks copy nothing."""
    pinned = {"pin_memory": spec.parallel.device_kind != "cpu"}
    if spec.parallel.offload_device == "cpu":
        return {"device": "cpu", **pinned}
    return {"device": "nvme", "nvme_path": spec.parallel.nvme_path, **pinned}


def fsdp_config(spec: Spec) -> dict[str, Any]:
    """The FSDP2 settings of the trainer; every value stated.

    Checkpointing stays the trainer's: FSDP's own does not bring back the random state, so dropout
    would differ between a layer's two passes.
    """
    return {
        "version": 2,
        "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "reshard_after_forward": True,
        "cpu_offload": spec.parallel.offload == "parameters",
        "cpu_ram_efficient_loading": spec.method.method != "qlora",
        "state_dict_type": "SHARDED_STATE_DICT",
        "activation_checkpointing": False,
    }


def with_own_disk_folder(spec: Spec, run: Path) -> Spec:
    """The spec with a folder of this run alone in `nvme_path`, made if it is missing.

    DeepSpeed's files have the same names in every run. Raises RunError (bad_spec).
    """
    if spec.parallel.nvme_path is None:
        return spec
    name = hashlib.sha256(os.fsencode(run)).hexdigest()[:12]
    own = Path(spec.parallel.nvme_path) / f"tunewright-{name}"
    try:
        own.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise RunError(
            "bad_spec", f"nvme_path: {own.parent}: {why(error)}: name a folder you can write in"
        ) from None
    parallel = spec.parallel.model_copy(update={"nvme_path": str(own)})
    return spec.model_copy(update={"parallel": parallel})


def remove_disk_folder(spec: Spec) -> None:
    """Remove what a finished run left in its folder; a failed one's next attempt uses it again."""
    if spec.parallel.nvme_path is not None:
        shutil.rmtree(spec.parallel.nvme_path, ignore_errors=True)


def library_config(spec: Spec) -> dict[str, Any]:
    """What the library of a strategy in `CONFIG_FILES` is told."""
    return fsdp_config(spec) if spec.parallel.strategy == "fsdp" else deepspeed_config(spec)


def refuse_other_ranks(spec: Spec, checkpoint: Path | None) -> None:
    """DeepSpeed goes on with as many ranks as saved; DDP and FSDP with any number.

    Raises RunError (bad_spec).
    """
    if checkpoint is None or spec.parallel.strategy not in ZERO_STAGES:
        return
    saved = len(list(checkpoint.glob("global_step*/*zero_pp_rank_*_optim_states.pt")))
    if saved not in (0, spec.parallel.ranks):
        raise RunError(
            "bad_spec",
            f"{checkpoint.name} holds DeepSpeed's shards of {saved} ranks, and this run has "
            f"{spec.parallel.ranks}: go on with num_devices={saved}, or start anew",
        )


def start_ranks(spec: Spec) -> None:
    """Make the ranks talk before the trainer looks for them, where it would not by itself.

    Needs DS_ACCELERATOR set for CPU ranks before DeepSpeed is imported.
    """
    if spec.parallel.strategy in ZERO_STAGES:
        _start_deepspeed(spec)
    elif spec.parallel.strategy == "fsdp":
        _start_fsdp(spec)
    elif spec.parallel.strategy == "layer_split":
        _allow_spread_layers(spec)


def _timeout(spec: Spec) -> timedelta:
    return timedelta(seconds=spec.parallel.ddp_timeout)


def _start_deepspeed(spec: Spec) -> None:
    kind = spec.parallel.device_kind
    if kind == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    if spec.parallel.offload != "none":
        refuse_stale_locks()
    if kind == "cpu":
        # It would be compiled at every first start; gloo, which it speeds up, needs no compiler.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    if spec.parallel.offload_device == "nvme":
        _require_disk_operations()
    deepspeed.init_distributed(
        dist_backend=BACKENDS[kind],
        timeout=_timeout(spec),
        verbose=False,
    )


def _require_disk_operations() -> None:
    """What DeepSpeed reads and writes files with is compiled at the first start.

    Raises RunError (bad_spec) where that cannot be.
    """
    from deepspeed.ops.op_builder import AsyncIOBuilder

    if not AsyncIOBuilder().is_compatible(verbose=False):
        raise RunError(
            "bad_spec",
            "offload_device=nvme needs a compiler and the headers of libaio: install libaio-dev "
            "(libaio-devel on Red Hat and SUSE), or set offload_device=cpu",
        )


def _start_fsdp(spec: Spec) -> None:
    """Gradients that wait in host memory are normed there, which needs a CPU backend too."""
    import torch.distributed as dist

    kind = spec.parallel.device_kind
    backend = BACKENDS[kind] if kind == "cpu" else f"{kind}:{BACKENDS[kind]},cpu:gloo"
    if not dist.is_initialized():
        dist.init_process_group(backend, timeout=_timeout(spec))


def _allow_spread_layers(spec: Spec) -> None:
    """accelerate takes any run that torchrun started for one with a device per rank.

    Several ranks pass its check by this variable, and their DDP then leaves placement alone. One
    rank is no distributed run: without LOCAL_RANK accelerate sees none, and allows 4-bit weights.
    """
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
    if spec.parallel.ranks == 1:
        for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
            os.environ.pop(name, None)


def share_gradients(trainer: Any) -> None:
    """Gradients live in DDP's own buckets, which would otherwise be a second copy of them all."""
    handler = trainer.accelerator.ddp_handler
    if handler is not None:
        handler.gradient_as_bucket_view = True


def refine(spec: Spec, settings: Any) -> None:
    """What of FSDP the trainer's settings cannot say, set in the arguments they made."""
    if spec.parallel.strategy != "fsdp":
        return
    import torch
    from accelerate.state import DistributedType, PartialState
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

    plugin, on_cpu = settings.fsdp_plugin_args, spec.parallel.device_kind == "cpu"
    if spec.model.dtype != "float32":
        # accelerate's own would round the loss to 16 bits, and the sums of gradients.
        plugin["mixed_precision_policy"] = MixedPrecisionPolicy(
            param_dtype=getattr(torch, spec.model.dtype), reduce_dtype=torch.float32
        )
    if spec.parallel.offload == "parameters":
        plugin["cpu_offload"] = CPUOffloadPolicy(pin_memory=not on_cpu)
    if on_cpu:
        # FSDP works there; only accelerate's list of the kinds it does so on leaves CPUs out.
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
