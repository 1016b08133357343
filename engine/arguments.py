"""Arguments: what every recipe tells the library's trainer, each value stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.shard import trainer_settings
from engine.spec import Spec

SMOKE_STEPS = 2


def shared(spec: Spec, run: Path, *, smoke: bool) -> dict[str, Any]:
    """The part of transformers' TrainingArguments that does not depend on the stage."""
    training, dtype = spec.training, spec.model.dtype
    return {
        **trainer_settings(spec),
        "output_dir": str(run / "checkpoints"),
        "num_train_epochs": training.num_train_epochs,
        "max_steps": SMOKE_STEPS if smoke else training.max_steps,
        "per_device_train_batch_size": training.per_device_train_batch_size,
        "gradient_accumulation_steps": training.gradient_accumulation_steps,
        "average_tokens_across_devices": True,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.lr_scheduler_type,
        "warmup_steps": training.warmup_ratio,
        "weight_decay": training.weight_decay,
        "max_grad_norm": training.max_grad_norm,
        "optim": training.optim,
        "bf16": dtype == "bfloat16",
        "fp16": dtype == "float16",
        "seed": training.seed,
        "data_seed": training.seed,
        "remove_unused_columns": True,
        "dataloader_num_workers": 0,
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
        "report_to": "none",
        "disable_tqdm": True,
        "push_to_hub": False,
    }


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
        "prediction_loss_only": True,
        "load_best_model_at_end": True,
        "metric_for_best_model": metric,
        "greater_is_better": metric != "eval_loss",
    }


def best_metric(spec: Spec) -> str:
    """What tells the best checkpoint."""
    return spec.training.metric_for_best_model or "eval_loss"
