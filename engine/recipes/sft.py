"""SFT: supervised fine-tuning through TRL, with every setting that matters stated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback
from trl import SFTConfig, SFTTrainer

from engine.model import keep_adapter_precise
from engine.shard import refine, trainer_settings
from engine.spec import Spec

SMOKE_STEPS = 2


def arguments(spec: Spec, run: Path, *, smoke: bool) -> SFTConfig:
    """The trainer's settings; making them starts the ranks' process group."""
    training, dtype = spec.training, spec.model.dtype
    settings = SFTConfig(
        **trainer_settings(spec),
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
        bf16=dtype == "bfloat16",
        fp16=dtype == "float16",
        seed=training.seed,
        data_seed=training.seed,
        max_length=None,
        packing=False,
        padding_free=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=True,
        train_sampling_strategy="random",
        dataloader_num_workers=0,
        dataloader_pin_memory=spec.parallel.device_kind != "cpu",
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
    refine(spec, settings)
    return settings


class Trainer(SFTTrainer):  # type: ignore[misc]
    """TRL's trainer, which a checkpoint of the last step leaves nothing to do."""

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """The library looks at the number of steps only after one more of them."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
            return
        super()._run_epoch(*args, **kwargs)


def steps_per_epoch(spec: Spec, rows: int) -> int:
    """Optimizer steps in which every row is seen once."""
    training = spec.training
    rows_at_once = training.per_device_train_batch_size * spec.parallel.ranks
    batches = math.ceil(rows / rows_at_once)
    return max(1, math.ceil(batches / training.gradient_accumulation_steps))


def total_steps(spec: Spec, rows: int) -> int:
    """Optimizer steps of the whole run."""
    training = spec.training
    if training.max_steps > 0:
        return training.max_steps
    return math.ceil(training.num_train_epochs * steps_per_epoch(spec, rows))


def uneven_epoch(spec: Spec, rows: int) -> str | None:
    """What to say of an epoch's last batch when it has no row for some of the ranks.

    Ranks must make as many batches each, or those with more would wait for ever in a collective;
    leaving the last rows out would lose them. So rows from the epoch's start fill it up.
    """
    ranks, at_once = spec.parallel.ranks, spec.training.per_device_train_batch_size
    repeated = -rows % (ranks * at_once)
    if ranks == 1 or not repeated or total_steps(spec, rows) < steps_per_epoch(spec, rows):
        return None
    effective = spec.training.effective_batch_size
    last = (rows + repeated) % effective or effective
    return (
        f"{rows} rows do not divide evenly among {ranks} ranks × {at_once}: the last step of each "
        f"epoch has {last} rows (others {effective}), {repeated} of them repeated from its start"
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
    trainer = Trainer(
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
