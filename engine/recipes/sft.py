"""SFT: supervised fine-tuning through TRL, with every setting that matters stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback
from trl import SFTConfig, SFTTrainer

from engine.model import keep_adapter_precise
from engine.shard import BACKENDS, deepspeed_config
from engine.spec import Spec

SMOKE_STEPS = 2


def arguments(spec: Spec, run: Path, *, smoke: bool) -> SFTConfig:
    """The trainer's settings; making them starts the ranks' process group."""
    training, parallel, dtype = spec.training, spec.parallel, spec.model.dtype
    alone, sharded = parallel.strategy == "single", parallel.strategy == "zero3"
    return SFTConfig(
        output_dir=str(run / "checkpoints"),
        num_train_epochs=training.num_train_epochs,
        max_steps=SMOKE_STEPS if smoke else training.max_steps,
        per_device_train_batch_size=training.per_device_train_batch_size,
        gradient_accumulation_steps=training.gradient_accumulation_steps,
        average_tokens_across_devices=True,
        learning_rate=training.learning_rate,
        lr_scheduler_type=training.lr_scheduler_type,
        warmup_steps=training.warmup_ratio,
        weight_decay=training.weight_decay,
        max_grad_norm=training.max_grad_norm,
        optim=training.optim,
        gradient_checkpointing=training.gradient_checkpointing,
        # DeepSpeed gathers an adapter's base weights again only in the reentrant kind.
        gradient_checkpointing_kwargs={
            "use_reentrant": sharded and spec.method.method != "full",
        },
        bf16=dtype == "bfloat16",
        fp16=dtype == "float16",
        use_cpu=parallel.device_kind == "cpu",
        ddp_backend=None if alone else BACKENDS[parallel.device_kind],
        ddp_timeout=parallel.ddp_timeout,
        ddp_find_unused_parameters=False,
        deepspeed=deepspeed_config(spec) if sharded else None,
        seed=training.seed,
        data_seed=training.seed,
        max_length=None,
        packing=False,
        padding_free=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=True,
        train_sampling_strategy="random",
        dataloader_num_workers=0,
        dataloader_pin_memory=parallel.device_kind != "cpu",
        dataloader_drop_last=False,
        logging_strategy="steps",
        logging_steps=1 if smoke else training.logging_steps,
        logging_first_step=True,
        # A loss that is not finite must be seen, not replaced by an average.
        logging_nan_inf_filter=False,
        save_strategy="no" if smoke else "steps",
        save_steps=training.save_steps,
        # Old checkpoints are removed by `engine.save`, once the new one is complete.
        save_total_limit=None,
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        push_to_hub=False,
    )


def build(
    spec: Spec,
    settings: SFTConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    rows: Dataset,
    adapter: Any,
    callbacks: list[TrainerCallback],
) -> SFTTrainer:
    """The trainer over rows that `prepare` tokenised and labelled."""
    trainer = SFTTrainer(
        model=model,
        args=settings,
        train_dataset=rows,
        processing_class=tokenizer,
        peft_config=adapter,
        callbacks=callbacks,
    )
    keep_adapter_precise(spec, trainer.model)
    return trainer


def rows(run: Path, spec: Spec, *, smoke: bool) -> Dataset:
    """The prepared rows; for a smoke run as many of the longest as it takes."""
    everything = Dataset.from_file(str(run / "prepared" / "rows.arrow"))
    if not smoke:
        return everything
    lengths = [len(ids) for ids in everything["input_ids"]]
    order = sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)
    return everything.select(order[: SMOKE_STEPS * spec.training.effective_batch_size])
