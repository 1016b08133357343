"""DPO: of two answers to a prompt, the chosen one becomes likelier than the rejected one.

The reference that the model is held to costs no second copy: with a new adapter it is the model
with the adapter off; an adapter that is trained further is kept once more, frozen; and where all
weights are trained, the reference's log-probabilities are computed once before the first step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback
from trl import DPOConfig, DPOTrainer

from engine.arguments import shared
from engine.methods import needs_reference
from engine.plugins import NOTHING, Plugged
from engine.shard import refine
from engine.spec import Spec


def arguments(spec: Spec, run: Path, *, smoke: bool) -> DPOConfig:
    """The trainer's settings; making them starts the ranks' process group."""
    method = spec.method
    settings = DPOConfig(
        **shared(spec, run, smoke=smoke),
        beta=0.1 if method.beta is None else method.beta,
        loss_type=[method.loss_type or "sigmoid"],
        label_smoothing=method.label_smoothing or 0.0,
        # With dropout on, the model would differ from its own reference before the first step.
        disable_dropout=True,
        precompute_ref_log_probs=needs_reference(method),
        precompute_ref_batch_size=spec.training.per_device_train_batch_size,
        # `prepare` has cut and dropped what is too long, and said so: nothing is left to TRL.
        max_length=None,
        padding_free=False,
        train_sampling_strategy="random",
    )
    refine(spec, settings)
    return settings


class Trainer(DPOTrainer):  # type: ignore[misc]
    """TRL's trainer over rows that are tokens already."""

    def _prepare_dataset(
        self, dataset: Dataset, processing_class: Any, args: Any, dataset_name: str
    ) -> Dataset:
        """The rows as `prepare` made them; TRL would tokenise text, and drop rows, by itself."""
        return dataset


def build(
    spec: Spec,
    settings: DPOConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    rows: Dataset,
    held_out: Dataset | None,
    adapter: Any,
    callbacks: list[TrainerCallback],
    plugged: Plugged = NOTHING,
) -> DPOTrainer:
    """The trainer over pairs of answers that `prepare` tokenised."""
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
