"""Models whose tokens, embeddings or number formats are unusual train as any other."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Run
from tests.engine.test_settings_reach import made
from tests.fakes.tiny.make import IM_END

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]


def changed(model: Path, folder: Path, **tokens: Any) -> Path:
    """A copy of the tiny model with other special tokens; None takes one away."""
    shutil.copytree(model, folder)
    for name in ("tokenizer_config.json", "config.json", "generation_config.json"):
        path = folder / name
        content = json.loads(path.read_text())
        for key, value in tokens.items():
            if value is None:
                content.pop(key, None)
                content.pop(f"{key}_id", None)
            elif key in content:
                content[key] = value
        path.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("stage", ["sft", "dpo", "kto", "reward"])
def test_a_model_without_a_pad_token_learns_its_end_and_no_padding(
    make_run: MakeRun, tiny_model: Path, tmp_path: Path, stage: str
) -> None:
    model = changed(tiny_model, tmp_path / "model", pad_token=None)
    seen = made(make_run("lora", "single", 1, here=True, stage=stage, model=str(model)))
    tokenizer = seen.trainer.processing_class

    assert tokenizer.pad_token_id == tokenizer.eos_token_id == IM_END
    batch = next(iter(seen.trainer.get_train_dataloader()))
    padded = batch["attention_mask"] == 0
    assert padded.any()
    assert (batch["input_ids"][padded] == IM_END).all()
    if stage == "sft":
        assert (batch["labels"][padded] == -100).all()
        for labels in batch["labels"]:
            assert labels[labels != -100][-1] == IM_END
    assert math.isfinite(seen.trainer.compute_loss(seen.trainer.model, dict(batch)).item())


def test_an_embedding_that_is_trained_whole_stays_one_with_the_head(make_run: MakeRun) -> None:
    seen = made(make_run("lora", "single", 1, here=True, modules_to_save="embed_tokens"))
    base = seen.trainer.model.get_base_model()
    assert base.config.tie_word_embeddings

    trained = {name for name, p in seen.trainer.model.named_parameters() if p.requires_grad}
    assert any("embed_tokens.modules_to_save" in name for name in trained)
    batch = next(iter(seen.trainer.get_train_dataloader()))
    before = head_and_embedding(base)
    assert before[0].data_ptr() == before[1].data_ptr()
    seen.trainer.create_optimizer()
    seen.trainer.compute_loss(seen.trainer.model, dict(batch)).backward()
    seen.trainer.optimizer.step()
    head, embedding = head_and_embedding(base)
    assert head.data_ptr() == embedding.data_ptr()


def head_and_embedding(base: Any) -> tuple[Any, Any]:
    return tuple(
        getattr(module, "modules_to_save", {"default": module})["default"].weight
        for module in (base.lm_head, base.model.embed_tokens)
    )


def test_new_tokens_are_embedded_and_the_head_stays_tied(
    make_run: MakeRun, tiny_model: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    tokenizer = AutoTokenizer.from_pretrained(str(model))
    tokenizer.add_tokens([f"<new-{n}>" for n in range(20)])
    tokenizer.save_pretrained(model)
    seen = made(make_run("full", "single", 1, here=True, model=str(model)))

    embedding = seen.trainer.model.get_input_embeddings().weight
    assert embedding.shape[0] == seen.trainer.model.config.vocab_size == 280
    head = seen.trainer.model.get_output_embeddings().weight
    assert head.data_ptr() == embedding.data_ptr()


@pytest.mark.parametrize("method", ["full", "lora"])
def test_norms_that_a_checkpoint_has_in_float32_are_trained_in_the_format_asked_for(
    make_run: MakeRun, tiny_model: Path, tmp_path: Path, method: str
) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    model = tmp_path / "model"
    shutil.copytree(tiny_model, model)
    path = model / "model.safetensors"
    weights = {
        name: weight.float() if "norm" in name else weight.to(torch.bfloat16)
        for name, weight in load_file(path).items()
    }
    save_file(weights, path, metadata={"format": "pt"})
    seen = made(make_run(method, "single", 1, here=True, model=str(model), dtype="bfloat16"))

    norms = {p.dtype for name, p in seen.trainer.model.named_parameters() if "norm" in name}
    assert norms == {torch.bfloat16}
    batch = next(iter(seen.trainer.get_train_dataloader()))
    with torch.autocast("cpu", torch.bfloat16):  # as a step has it
        assert math.isfinite(seen.trainer.compute_loss(seen.trainer.model, dict(batch)).item())
