"""KTO: answers labelled good become likelier, those labelled bad less likely.

How far the model has moved is estimated by answers to other prompts: each row is joined with the
answer of its neighbour. That needs neighbours which stay together, so `prepare` shuffles the rows
once, by the seed, and every epoch sees them in that order. The reference is held as in DPO.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from datasets import Dataset, concatenate_datasets
from transformers import PreTrainedModel, TrainerCallback
from trl import KTOConfig, KTOTrainer

from engine.arguments import shared
from engine.methods import needs_reference
from engine.plugins import NOTHING, Plugged
from engine.shard import refine
from engine.spec import Spec


def arguments(spec: Spec, run: Path, *, smoke: bool) -> KTOConfig:
    """The trainer's settings; making them starts the ranks' process group."""
    method = spec.method
    settings = KTOConfig(
        **shared(spec, run, smoke=smoke),
        beta=0.1 if method.beta is None else method.beta,
        loss_type=method.loss_type or "kto",
        desirable_weight=method.desirable_weight or 1.0,
        undesirable_weight=method.undesirable_weight or 1.0,
        # With dropout on, the model would differ from its own reference before the first step.
        disable_dropout=True,
        precompute_ref_log_probs=needs_reference(method),
        precompute_ref_batch_size=spec.training.per_device_train_batch_size,
        # `prepare` has cut and dropped what is too long, and said so: nothing is left to TRL.
        max_length=None,
        train_sampling_strategy="sequential",
    )
    refine(spec, settings)
    return settings


def with_neighbours(rows: Dataset, at_once: int) -> Dataset:
    """Rows with the answer of the row before, within groups of `at_once`, as `KL_completion_ids`.

    The first of a group takes the group's last; a row alone at the end takes the one before it.
    The answers are held in memory once more, 4 bytes a token.
    """
    flat = rows.flatten_indices()
    before = []
    for row in range(len(flat)):
        start = row - row % at_once
        last = min(start + at_once, len(flat)) - 1
        before.append(last if row == start < last else max(0, row - 1))
    answers = flat.data.column("completion_ids").take(pa.array(before))
    neighbours = Dataset(pa.table({"KL_completion_ids": answers}))
    return concatenate_datasets([flat, neighbours], axis=1)


class Trainer(KTOTrainer):  # type: ignore[misc]
    """TRL's trainer over rows that are tokens already."""

    def _prepare_dataset(
        self, dataset: Dataset, processing_class: Any, args: Any, dataset_name: str
    ) -> Dataset:
        """The rows as `prepare` made them; TRL would tokenise text, and drop rows, by itself."""
        if not self.calculate_KL:
            return dataset
        return with_neighbours(dataset, args.per_device_train_batch_size)


def build(
    spec: Spec,
    settings: KTOConfig,
    model: PreTrainedModel,
    tokenizer: Any,
    rows: Dataset,
    held_out: Dataset | None,
    adapter: Any,
    callbacks: list[TrainerCallback],
    plugged: Plugged = NOTHING,
) -> KTOTrainer:
    """The trainer over labelled answers that `prepare` tokenised."""
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
