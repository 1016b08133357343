"""Going on from a checkpoint that another optimizer made."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.failure import RunError
from engine.report import Report
from engine.resume import load_weights
from engine.train import go_on
from tests.engine.conftest import Run
from tests.runner.making import spec

pytestmark = pytest.mark.engine


def test_exact_refuses_an_optimizer_that_would_start_anew_and_names_both(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint-3"
    checkpoint.mkdir()
    form = {"optim": "adamw_bnb_8bit", "strategy": "replicated", "offload": "none", "ranks": None}
    (checkpoint / "complete.json").write_text(json.dumps({"optimizer": form}))
    report = Report(tmp_path, rank=0, attempt=0, rung=0)
    with pytest.raises(RunError, match=r"checkpoint-3 holds the optimizer of adamw_bnb_8bit") as no:
        go_on(None, checkpoint, spec(), report, exact=True)
    assert no.value.failure == "bad_spec"


def test_a_checkpoint_without_whole_weights_or_with_others_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2, bias=False)
    with pytest.raises(RunError, match="no whole weights"):
        load_weights(model, tmp_path, sharded=False)
    save_file({"other": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(RunError, match="no weights in it belong"):
        load_weights(model, tmp_path, sharded=False)
    save_file({"weight": torch.ones(2, 4)}, tmp_path / "model.safetensors")
    with pytest.raises(RunError, match=r"weight is \[2, 4\], the model has \[2, 3\]"):
        load_weights(model, tmp_path, sharded=False)
    save_file({"weight": torch.full((2, 3), 5.0)}, tmp_path / "model.safetensors")
    load_weights(model, tmp_path, sharded=False)
    assert model.weight.tolist() == [[5.0] * 3] * 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["lora", "full"])
def test_another_strategy_goes_on_with_the_same_weights_and_the_same_rows(
    method: str, make_run: Callable[..., Run]
) -> None:
    """The first loss after the change is the one the uninterrupted run had at this step."""
    run = make_run(method, "ddp", 2, max_steps=4, save_steps=2)
    assert run.train().returncode == 0
    straight = run.losses()
    shutil.rmtree(run.folder / "checkpoints" / "checkpoint-4")
    text = (run.folder / "spec.toml").read_text()
    (run.folder / "spec.toml").write_text(text.replace('"ddp"', '"zero3"'))

    done = run.train("--resume", "--attempt", "1", "--rung", "1")

    assert run.codes(1) == [0, 0], done.stderr
    anew = run.losses(1)
    assert sorted(anew) == [3, 4]
    assert anew[3] == pytest.approx(straight[3], abs=1e-4)
    texts = [event["text"] for event in run.events("warn", attempt=1)]
    assert any("starts anew" in text for text in texts)
