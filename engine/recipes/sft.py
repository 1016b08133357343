"""SFT: supervised fine-tuning through TRL, with every setting that matters stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback
from trl import SFTConfig, SFTTrainer

from engine.arguments import shared
from engine.plugins import NOTHING, Plugged
from engine.rules import joins_rows
from engine.shard import refine
from engine.spec import Spec

Trainer = SFTTrainer
"""What a trainer of the user's own is made from."""


def arguments(spec: Spec, run: Path, *, smoke: bool) -> SFTConfig:
    """The trainer's settings; making them starts the ranks' process group."""
    settings = SFTConfig(
        **shared(spec, run, smoke=smoke),
        # `prepare` has cut and packed the rows: nothing is left to TRL but to join what is packed.
        max_length=None,
        packing=False,
        padding_free=joins_rows(spec),
        dataset_kwargs={"skip_prepare_dataset": True},
        train_sampling_strategy="random",
    )
    refine(spec, settings)
    return settings


def build(
    spec: Spec,
    settings: SFTConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    rows: Dataset,
    held_out: Dataset | None,
    adapter: Any,
    callbacks: list[TrainerCallback],
    plugged: Plugged = NOTHING,
) -> SFTTrainer:
    """The trainer over rows that `prepare` tokenised and labelled."""
    own = plugged.trainer or Trainer
    return own(
        model=model,
        args=settings,
        train_dataset=rows,
        eval_dataset=held_out,
        processing_class=tokenizer,
        peft_config=adapter,
        callbacks=callbacks,
        compute_metrics=plugged.metric,
        compute_loss_func=plugged.loss,
    )
