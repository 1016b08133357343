"""Stage: what is learnt from the rows, and what that makes of their number and length."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.spec import STAGE_OF
from wizard.answers import Answers
from wizard.facts import Dataset, Facts, Model
from wizard.planner.batch import Batch
from wizard.planner.defaults import BYTE_VOCABULARY, LONGEST_DEFAULT
from wizard.planner.ledger import Ledger

LEARNT: Mapping[str, str] = {
    "sft": "the answers in its rows are learnt",
    "pretrain": "its rows are plain text, of which every token is learnt; they are packed into "
    "blocks of max_length",
    "dpo": "its rows have a chosen and a rejected answer; both pass through the model at once",
    "kto": "its rows have single answers, each labelled good or bad",
    "reward": "a model that scores answers; both of a pair pass through it at once",
}
TEXT_BLOCK = 2048
PACKS_FILLED = 0.95
"""Share of a pack that rows fill, where they are much shorter."""
CHARS_PER_TOKEN = 4
"""Of English prose in a vocabulary made of words."""


def stage_of(facts: Facts, answers: Answers) -> str:
    """The stage the user fixed, else the one that reads such rows."""
    assert facts.dataset is not None
    fixed = answers.fixed.get("stage")
    return str(fixed) if fixed else STAGE_OF.get(facts.dataset.format or "", "sft")


def unit_of(stage: str) -> str:
    """What a pass of training is counted in."""
    return "block" if stage == "pretrain" else "row"


def as_trained(facts: Facts, answers: Answers) -> Facts:
    """Facts with the rows that a pass of training has: those not held out, or blocks of text."""
    assert facts.dataset is not None
    assert facts.model is not None
    data = facts.dataset
    if stage_of(facts, answers) == "pretrain":
        data = _blocks(data, facts.model, int(answers.fixed.get("max_length", TEXT_BLOCK)))
    elif answers.fixed.get("packing"):
        data = _packs(data, facts.model, answers.fixed.get("max_length"))
    share = float(answers.fixed.get("eval_split", 0.0))
    if share and data.rows > 1:
        held = min(data.rows - 1, max(1, round(share * data.rows)))
        data = replace(data, rows=data.rows - held)
    return replace(facts, dataset=data)


def _blocks(data: Dataset, model: Model, length: int) -> Dataset:
    """Text as the blocks that it is packed into; their number is an estimate."""
    length = min(length, model.max_positions or length)
    return replace(
        data,
        rows=max(1, math.ceil(_tokens(data, model) / length)),
        longest_row_chars=length,
        longest_row_bytes=length,
        longest_row_tokens=length,
        most_turns=0,
    )


def _tokens(data: Dataset, model: Model) -> float:
    """Tokens of all rows, estimated: an end for each, and their text."""
    bytewise = model.vocab_size is not None and model.vocab_size < BYTE_VOCABULARY
    return data.total_chars / (1 if bytewise else CHARS_PER_TOKEN) + data.rows


def _packs(data: Dataset, model: Model, max_length: int | None) -> Dataset:
    """Rows as the packs that they are put into; their number is an estimate, and so is the text.

    Rows stay as long as they are: `max_length` is decided by the longest.
    """
    length = max_length or min(LONGEST_DEFAULT, model.max_positions or LONGEST_DEFAULT)
    packs = math.ceil(_tokens(data, model) / (length * PACKS_FILLED))
    return replace(data, rows=max(1, min(data.rows, packs)))


def decide_stage(ledger: Ledger, stage: str, data: Dataset) -> None:
    """What is learnt, and the settings that only some stages have."""
    blocks = f"about {data.rows:,} blocks, estimated from the characters"
    ledger.decide("stage", stage, LEARNT[stage], note=blocks if stage == "pretrain" else "")
    held = stage in ("dpo", "kto")
    ledger.decide("beta", 0.1 if held else None, _used(held, "stays near its reference, as usual"))
    loss = {"dpo": "sigmoid", "kto": "kto"}.get(stage)
    ledger.decide("loss_type", loss, _used(held, "the loss of the method's own paper"))
    ledger.decide("label_smoothing", None, _used(stage == "dpo", "the labels are taken as right"))
    for name in ("desirable_weight", "undesirable_weight"):
        weight = 1.0 if stage == "kto" else None
        ledger.decide(name, weight, _used(stage == "kto", "good and bad answers count alike"))
    reward = stage == "reward"
    drift = _used(reward, "scores may drift: only their order counts")
    ledger.decide("center_rewards_coefficient", None, drift)


def _used(used: bool, reason: str) -> str:
    return reason if used else "unused by this stage"


def decide_adapter_options(ledger: Ledger, *, full: bool) -> None:
    """What an adapter can be beyond its rank, scale and place."""
    unused = "unused: all weights are trained"
    options = {
        "use_rslora": (False, "the usual scale; true keeps ranks of 64 and more from fading"),
        "use_dora": (False, "slower; true often learns more at ranks below 16"),
        "init_lora_weights": ("default", "starts with no effect; pissa starts nearer, and slower"),
        "modules_to_save": (None, "nothing beside the adapter is trained"),
        "adapter": (None, "a new adapter"),
    }
    for name, (value, reason) in options.items():
        ledger.decide(name, value, unused if full else reason)


def decide_evaluation(ledger: Ledger) -> None:
    """Which rows are evaluated on."""
    ledger.decide("eval_data", None, "no second file is named")
    named = ledger.decisions["eval_data"].value is not None
    ledger.decide(
        "eval_split",
        0.0,
        "eval_data is evaluated on" if named else "every row is learnt from; 0.1 holds a tenth out",
    )


def decide_evaluation_rhythm(ledger: Ledger) -> None:
    """How often the run evaluates, once it is known how often it saves."""
    held = ledger.decisions["eval_split"].value or ledger.decisions["eval_data"].value
    every = ledger.decisions["save_steps"].value if held else None
    reason = "with each checkpoint" if held else "there are no rows to evaluate on"
    ledger.decide("eval_steps", every, reason)
    reason = "the checkpoint with the least becomes the model" if held else reason
    metric = ledger.decide("metric_for_best_model", "eval_loss" if held else None, reason)
    more = None if metric is None else "loss" not in metric
    reason = "more of it is better" if more else "less of it is better" if held else reason
    ledger.decide("greater_is_better", more, reason)


def suits(batch: Batch, stage: str, fixed: Mapping[str, Any]) -> Batch:
    """Micro-batches that the stage can train: KTO compares each row with another beside it.

    A pack is as long as a micro-batch should be: two in one sequence would score each other's
    tokens only to leave them out, at four times the work.
    """
    if fixed.get("packing"):
        return replace(batch, micros=batch.micros[-1:])
    if stage != "kto" or fixed.get("loss_type", "kto") != "kto":
        return batch
    return replace(batch, micros=tuple(size for size in batch.micros if size > 1) or batch.micros)
