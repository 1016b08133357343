"""Adapters start, go on and are saved so that the base as anybody has it gives the tuned model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.failure import RunError
from engine.fetch import read_fetched, read_spec
from engine.spec import Spec
from tests.engine.conftest import Run
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]


def trained(run: Run, steps: int = 2) -> Any:
    """The trainer of a run on one device, trained in this process, with its model saved."""
    from engine import adapter, arrange, save, schedule
    from engine.recipes import recipe
    from engine.report import Report
    from engine.train import load

    spec, fetched = read_spec(run.folder / "spec.toml"), read_fetched(run.folder)
    report = Report(run.folder, rank=0, attempt=0, rung=0)
    settings = recipe(spec).arguments(spec, run.folder, smoke=False)
    rows = arrange.load(run.folder, spec, smoke=False)
    trainer = load(spec, settings, fetched, rows, None, [], report)
    adapter.keep_start(spec, trainer.model, run.folder)
    schedule.end_at_last_step(trainer)
    trainer.train()
    save.save_model(trainer, spec, fetched, run.folder, report)
    return trainer


def logits(model: Any) -> Any:
    import torch

    with torch.no_grad():
        return model.eval()(input_ids=torch.arange(40).reshape(2, 20)).logits


def weights(file: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return dict(load_file(file))


def loaded(model: Path, adapter: Path) -> Any:
    """The base as it was fetched, with a saved adapter on it: what a user of the result has."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    return PeftModel.from_pretrained(base, adapter)


@pytest.mark.parametrize(
    "options",
    [
        {"use_rslora": True, "use_dora": True},
        {"init_lora_weights": "pissa"},
        {"init_lora_weights": "olora", "use_rslora": True},
        {"modules_to_save": "embed_tokens"},
        {"init_lora_weights": "gaussian", "target_modules": "q_proj, v_proj"},
    ],
    ids=lambda options: " ".join(f"{name}={value}" for name, value in options.items()),
)
def test_the_saved_adapter_on_the_base_is_the_model_that_was_trained(
    make_run: MakeRun, tiny_model: Path, options: dict[str, Any]
) -> None:
    run = make_run("lora", "single", 1, here=True, **options)
    trainer = trained(run)

    ours = logits(trainer.model)
    theirs = logits(loaded(tiny_model, run.folder / "model"))
    assert theirs == pytest.approx(ours, abs=2e-4)
    config = json.loads((run.folder / "model/adapter_config.json").read_text())
    assert config["use_rslora"] == options.get("use_rslora", False)
    assert config["use_dora"] == options.get("use_dora", False)
    if "modules_to_save" in options:
        saved = weights(run.folder / "model/adapter_model.safetensors")
        (name,) = [name for name in saved if "embed_tokens" in name]
        before = weights(tiny_model / "model.safetensors")["model.embed_tokens.weight"]
        assert (saved[name] - before).abs().max() > 1e-3
    if options.get("init_lora_weights") in ("pissa", "olora"):
        assert config["r"] == 8
        assert config["init_lora_weights"] is True


@pytest.fixture(scope="module")
def first(make_run: MakeRun) -> Run:
    """A run that ended with an adapter."""
    run = make_run("lora", "single", 1, here=True)
    trained(run)
    return run


@pytest.mark.parametrize("stage", ["sft", "dpo"])
def test_an_adapter_that_is_gone_on_with_is_really_trained(
    make_run: MakeRun, first: Run, stage: str
) -> None:
    options = {"adapter": str(first.folder / "model"), "stage": stage}
    run = make_run("lora", "single", 1, here=True, **options)
    trainer = trained(run)

    before = weights(first.folder / "model/adapter_model.safetensors")
    after = weights(run.folder / "model/adapter_model.safetensors")
    assert before.keys() == after.keys()
    moved = [name for name in before if not before[name].equal(after[name])]
    assert len(moved) == len(before)
    assert not (run.folder / "model/ref").exists()
    if stage == "dpo":  # held to the adapter as it was, not to the base
        assert trainer.state.log_history[0]["loss"] == pytest.approx(0.6931, abs=1e-3)
        assert "ref" in trainer.model.peft_config


def with_adapter(run: Run, folder: Path, **options: Any) -> Spec:
    spec = read_spec(run.folder / "spec.toml")
    method = spec.method.model_copy(update={"adapter": str(folder), **options})
    return spec.model_copy(update={"method": method})


def test_f12_an_adapter_that_does_not_fit_is_refused_before_a_device_is_touched(
    first: Run, tmp_path: Path
) -> None:
    from engine.prepare import prepare

    def refused(folder: Path, **options: Any) -> str:
        with pytest.raises(RunError) as caught:
            prepare(with_adapter(first, folder, **options), first.folder)
        assert caught.value.failure == "bad_spec"
        return str(caught.value)

    def changed(name: str, **values: Any) -> Path:
        folder = tmp_path / name
        shutil.copytree(first.folder / "model", folder)
        config = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**config, **values}))
        return folder

    good = first.folder / "model"
    assert "no adapter there" in refused(tmp_path / "nowhere")
    assert "has lora_rank=4, and the spec says 16: set lora_rank=4" in refused(good, lora_rank=16)
    assert "set use_dora=false" in refused(good, use_dora=True)
    assert "is IA3, not LORA" in refused(changed("ia3", peft_type="IA3"))
    assert "made for SEQ_CLS" in refused(changed("score", task_type="SEQ_CLS"))
    assert "init_lora_weights=pissa has changed" in refused(
        changed("pissa", init_lora_weights="pissa")
    )


def test_f13_an_adapter_of_another_model_is_refused(first: Run, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    from engine.adapter import wrapped
    from engine.model import load_base

    base = read_fetched(first.folder).path
    model = first.folder / "model"
    whole = weights(model / "adapter_model.safetensors")
    name = next(name for name in whole if "lora_A" in name)
    for folder, content, said in (
        ("wide", {**whole, name: whole[name].repeat(1, 2)}, "of other sizes"),
        ("few", {n: w for n, w in whole.items() if n != name}, "lacks 1 of"),
    ):
        shutil.copytree(model, tmp_path / folder)
        save_file(content, tmp_path / folder / "adapter_model.safetensors")
        spec = with_adapter(first, tmp_path / folder)
        with pytest.raises(RunError, match=said):
            wrapped(spec, load_base(spec, base, 0), None)


def test_tokens_without_an_embedding_get_one_or_are_refused(first: Run) -> None:
    from engine.adapter import fit_vocabulary
    from engine.model import load_base

    spec = read_spec(first.folder / "spec.toml")
    base = read_fetched(first.folder).path
    tokenizer = make.tokenizer()
    tokenizer.add_tokens([f"<new-{n}>" for n in range(20)])
    with pytest.raises(RunError, match="has 279 tokens and its embedding 272"):
        fit_vocabulary(spec, load_base(spec, base, 0), tokenizer)

    method = spec.method.model_copy(update={"method": "full"})
    model = load_base(spec, base, 0)
    fit_vocabulary(spec.model_copy(update={"method": method}), model, tokenizer)
    assert model.get_input_embeddings().weight.shape[0] == 280
    assert model.config.vocab_size == 280


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"target_modules": "q_porj"},
            "target_modules: the model has no `q_porj`; linear ones are",
        ),
        (
            {"modules_to_save": "embed"},
            "modules_to_save: the model has no `embed`; linear ones and",
        ),
    ],
)
def test_a_module_that_is_not_there_is_named_with_those_that_are(
    first: Run, options: dict[str, Any], said: str
) -> None:
    from engine.adapter import check_modules
    from engine.model import load_base

    spec = read_spec(first.folder / "spec.toml")
    method = spec.method.model_copy(update=options)
    model = load_base(spec, read_fetched(first.folder).path, 0)
    with pytest.raises(RunError, match=said) as caught:
        check_modules(spec.model_copy(update={"method": method}), model)
    assert caught.value.failure == "bad_spec"
    for names in ("all-linear", "q_proj, v_proj", "layers.1.mlp.up_proj"):
        method = spec.method.model_copy(update={"target_modules": names})
        check_modules(spec.model_copy(update={"method": method}), model)


def test_inputs_that_are_not_copied_give_the_same_numbers_and_keep_less(
    make_run: MakeRun, tiny_model: Path
) -> None:
    """PEFT's own float32 copies of an adapter's inputs are rounded back by autocast at once."""
    import torch
    from peft import get_peft_model
    from torch.autograd.graph import saved_tensors_hooks
    from transformers import AutoModelForCausalLM

    from engine import adapter

    run = make_run("lora", "single", 1, dtype="bfloat16", here=True)
    spec = read_spec(run.folder / "spec.toml")

    def step(*, copied: bool) -> tuple[Any, dict[str, Any], int]:
        base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16)
        torch.manual_seed(0)
        model = get_peft_model(base, adapter.new_config(spec, None))
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # it starts as zero, and would then hide its inputs' gradients
                torch.nn.init.normal_(parameter, std=0.1)
        if not copied:
            adapter.leave_casts_to_autocast(spec, model)
        ids, kept = torch.arange(40).reshape(2, 20), {}

        def keep(tensor: Any) -> Any:
            kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with saved_tensors_hooks(keep, lambda tensor: tensor):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.requires_grad}
        return loss.detach(), gradients, sum(kept.values())

    loss, gradients, kept = step(copied=True)
    same, same_gradients, kept_less = step(copied=False)
    assert torch.equal(loss, same)
    assert all(torch.equal(grad, same_gradients[name]) for name, grad in gradients.items())
    assert all(grad.abs().sum() > 0 for grad in gradients.values())
    assert kept_less < kept
