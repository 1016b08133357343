"""Arguments: what every recipe tells the library's trainer, each value stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.shard import trainer_settings
from engine.spec import Spec
from engine.training import LOWEST_RATE, PREFETCHED

SMOKE_STEPS = 2


def shared(spec: Spec, run: Path, *, smoke: bool) -> dict[str, Any]:
    """The part of transformers' TrainingArguments that does not depend on the stage."""
    training, dtype = spec.training, spec.model.dtype
    return {
        **trainer_settings(spec),
        **levers(spec),
        "output_dir": str(run / "checkpoints"),
        "run_name": run.name,
        "num_train_epochs": training.num_train_epochs,
        "max_steps": SMOKE_STEPS if smoke else training.max_steps,
        "per_device_train_batch_size": training.per_device_train_batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "average_tokens_across_devices": True,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.lr_scheduler_type,
        "lr_scheduler_kwargs": _scheduler(spec),
        "warmup_steps": training.warmup_ratio,
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.max_grad_norm,
        "optim": training.optim,
        "adam_beta1": training.adam_beta1,
        "adam_beta2": training.adam_beta2,
        "adam_epsilon": training.adam_epsilon,
        "neftune_noise_alpha": training.neftune_noise_alpha,
        "bf16": dtype == "bfloat16",
        "fp16": dtype == "float16",
        "seed": training.seed,
        "data_seed": training.seed,
        "remove_unused_columns": True,
        "dataloader_pin_memory": spec.parallel.device_kind != "cpu",
        "dataloader_drop_last": False,
        "logging_strategy": "steps",
        "logging_steps": 1 if smoke else training.logging_steps,
        "logging_first_step": True,
        # A loss that is not finite must be seen, not replaced by an average.
        "logging_nan_inf_filter": False,
        "save_strategy": "no" if smoke else "steps",
        "save_steps": training.save_steps,
        # Old checkpoints are removed by `engine.save`, once the new one is complete.
        "save_total_limit": None,
        **evaluation(spec, smoke=smoke),
        # `engine.trackers` passes losses on: a tracker that fails must not end the run.
        "report_to": "none",
        "disable_tqdm": True,
        "push_to_hub": False,
    }


def levers(spec: Spec) -> dict[str, Any]:
    """What makes a step faster or smaller, each stated: some of the library's defaults change."""
    training = spec.training
    workers = training.dataloader_num_workers
    return {
        "activation_offloading": training.activation_offloading,
        "use_liger_kernel": training.use_liger_kernel,
        "torch_compile": training.torch_compile,
        "tf32": training.tf32,
        "dataloader_num_workers": workers,
        "dataloader_prefetch_factor": (training.dataloader_prefetch_factor or PREFETCHED)
        if workers
        else None,
    }


def _scheduler(spec: Spec) -> dict[str, Any]:
    """What only some schedules are told."""
    training = spec.training
    if training.lr_scheduler_type != "cosine_with_min_lr":
        return {}
    return {"min_lr_rate": training.min_lr_rate or LOWEST_RATE}


def evaluation(spec: Spec, *, smoke: bool) -> dict[str, Any]:
    """When to evaluate, and by which metric the best checkpoint becomes the model."""
    training = spec.training
    if smoke or not spec.data.evaluates:
        return {"eval_strategy": "no"}
    metric = best_metric(spec)
    return {
        "eval_strategy": "steps",
        "eval_steps": training.eval_steps or training.save_steps,
        "per_device_eval_batch_size": training.per_device_train_batch_size,
        "prediction_loss_only": spec.plugins.metric is None,
        "load_best_model_at_end": True,
        "metric_for_best_model": metric,
        "greater_is_better": greater_is_better(spec),
    }


def best_metric(spec: Spec) -> str:
    """What tells the best checkpoint."""
    return spec.training.metric_for_best_model or "eval_loss"


def greater_is_better(spec: Spec) -> bool:
    """Whether the best checkpoint has most of its metric, or least."""
    said = spec.training.greater_is_better
    return said if said is not None else "loss" not in best_metric(spec)
