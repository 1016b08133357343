"""Rows that share a sequence give the logits of each row alone: through the real collator."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.packing import best_fit
from engine.rules import PACKED_ALIKE, not_alike
from tests.engine.conftest import Run
from tests.test_rules import spec

MakeRun = Callable[..., Run]
CLOSE = 2e-6
"""Logits of about 0.3 in float32, in which sums are taken in another order."""
SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
OTHERS: dict[str, dict[str, Any]] = {
    "mistral": {"sliding_window": 6},
    "qwen3": {"head_dim": 8},
    "gemma": {"head_dim": 8},
    "gemma2": {"head_dim": 8, "sliding_window": 6},
    "gemma3_text": {"head_dim": 8, "sliding_window": 6},
    "glm4": {"head_dim": 8},
    "qwen2_moe": {**EXPERTS, "shared_expert_intermediate_size": 16},
    "qwen3_moe": {**EXPERTS, "head_dim": 8},
}
"""A window shorter than the rows must begin anew with each of them."""
LENGTHS = (5, 9, 1, 12, 7)


@given(st.lists(st.integers(1, 100), max_size=200), st.integers(100, 300))
def test_every_row_is_in_one_pack_and_no_pack_is_too_long(lengths: list[int], limit: int) -> None:
    packs = best_fit(lengths, limit)

    assert sorted(itertools.chain.from_iterable(packs)) == list(range(len(lengths)))
    sizes = [sum(lengths[row] for row in pack) for pack in packs]
    assert all(size <= limit for size in sizes)
    # Two packs that are half empty would have been one.
    assert sum(size <= limit / 2 for size in sizes) <= 1


@pytest.mark.engine
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", sorted(PACKED_ALIKE))
def test_packed_rows_have_the_logits_of_each_row_alone(family: str, attention: str) -> None:
    packed, mixed = differences(family, attention)

    assert packed < CLOSE
    assert mixed > 1e-3, "the rows do see each other without their places"


@pytest.mark.engine
def test_a_family_that_takes_no_places_has_other_logits_and_is_not_among_them() -> None:
    packed, _ = differences("opt", "sdpa")

    assert packed > 0.01
    assert "opt" not in PACKED_ALIKE


def differences(family: str, attention: str) -> tuple[float, float]:
    """How far logits are from those of each row alone: of packs, and of rows simply joined."""
    import torch

    model = tiny(family, attention)
    rows = [torch.randint(3, 64, (length,)).tolist() for length in LENGTHS]
    with torch.no_grad():
        each = (model(input_ids=torch.tensor([row]), use_cache=False).logits[0] for row in rows)
        alone = torch.cat(list(each))
        batch = collated(rows)
        together = model(**batch, use_cache=False).logits[0]
        mixed = model(input_ids=batch["input_ids"], use_cache=False).logits[0]

    return float((alone - together).abs().max()), float((alone - mixed).abs().max())


def tiny(family: str, attention: str) -> Any:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **{**SMALL, **OTHERS.get(family, {})})
    try:
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    except ValueError as error:
        pytest.skip(f"{family} has no {attention}: {error}")
    return model.eval()


def collated(rows: Sequence[list[int]]) -> Any:
    """Two packs, and a micro-batch of both, as the library's trainer makes it."""
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    collator = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    packs = []
    for some in (rows[:3], rows[3:]):
        joined = [token for row in some for token in row]
        packs.append({"input_ids": joined, "labels": joined, "seq_lengths": [*map(len, some)]})
    batch = collator(packs)
    assert "attention_mask" not in batch
    del batch["labels"]
    return batch


@pytest.mark.parametrize("setting", ["packing", "padding_free"])
def test_a_family_that_was_not_seen_to_is_refused(setting: str) -> None:
    joined = spec(**{setting: True})
    assert not_alike(joined, "llama") is None
    said = not_alike(joined, "mamba2")
    assert said is not None
    assert said.startswith(f"{setting} is not known to keep rows apart in mamba2 models")
    assert said.endswith(f"set {setting}=false")
    assert not_alike(spec(), "mamba2") is None


@pytest.mark.engine
def test_a_packed_run_learns_the_same_tokens_at_the_same_loss(make_run: MakeRun) -> None:
    from tests.engine.test_settings_reach import made

    batch = {"effective_batch_size": 16, "gradient_accumulation_steps": 1}
    plain = made(make_run("full", "single", 1, here=True, **batch, per_device_train_batch_size=16))
    joined, packs = (
        made(
            make_run(
                "full",
                "single",
                1,
                here=True,
                effective_batch_size=16,
                per_device_train_batch_size=16,
                gradient_accumulation_steps=1,
                max_length=256,
                **{setting: True},
            )
        )
        for setting in ("padding_free", "packing")
    )
    report = make_report(packs)
    assert report["packed_rows"] == 16
    assert 1 < report["examples"] == len(packs.rows) < 16
    assert report["filled_percent"] > 80
    losses = []
    for seen in (plain, joined, packs):
        (data,) = list(seen.trainer.get_train_dataloader())
        learnt = int((data["labels"] != -100).sum())
        losses.append((learnt, seen.trainer.compute_loss(seen.trainer.model, dict(data)).item()))
    assert [learnt for learnt, _ in losses] == [losses[0][0]] * 3
    assert [loss for _, loss in losses] == pytest.approx([losses[0][1]] * 3, abs=1e-6)


def make_report(seen: Any) -> Any:
    from engine.prepare import read_report

    return read_report(seen.folder)
