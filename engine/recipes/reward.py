"""Reward: a model that scores answers, trained to score the chosen above the rejected.

The head of words is replaced by one that gives a single number, from the last token that is not
padding; with an adapter, that head is trained whole beside it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback
from trl import RewardConfig, RewardTrainer

from engine.arguments import shared
from engine.plugins import NOTHING, Plugged
from engine.shard import refine
from engine.spec import Spec

Trainer = RewardTrainer
"""What a trainer of the user's own is made from."""


def arguments(spec: Spec, run: Path, *, smoke: bool) -> RewardConfig:
    """The trainer's settings; making them starts the ranks' process group."""
    settings = RewardConfig(
        **shared(spec, run, smoke=smoke),
        center_rewards_coefficient=spec.method.center_rewards_coefficient,
        disable_dropout=True,
        # `prepare` has cut and dropped what is too long, and said so: nothing is left to TRL.
        max_length=None,
        train_sampling_strategy="random",
    )
    refine(spec, settings)
    return settings


def build(
    spec: Spec,
    settings: RewardConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    rows: Dataset,
    held_out: Dataset | None,
    adapter: Any,
    callbacks: list[TrainerCallback],
    plugged: Plugged = NOTHING,
) -> RewardTrainer:
    """The trainer over pairs of whole conversations that `prepare` tokenised."""
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
    )
