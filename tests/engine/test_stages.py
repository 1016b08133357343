"""Every stage trains a tiny model for real, under torchrun, on CPU ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests.engine.conftest import Run

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]
FIRST_LOSS = {"dpo": 0.6931, "kto": 0.5, "reward": None, "pretrain": 5.6, "sft": 5.6}
"""Loss before anything is learnt: ln 2 of a pair whose sides are as likely as to the reference,
half of a label, and about ln 272 of a token; a reward model's head is random."""
RATE = {"full": 3e-3, "lora": 3e-3}


def train(run: Run, *words: str, ok: int = 0) -> str:
    done = run.train(*words)
    attempt = int(words[-1]) if "--attempt" in words else 0
    assert run.codes(attempt) == [ok] * run.ranks, done.stderr
    return done.stderr


def weights(folder: Path) -> dict[str, Any]:
    (file,) = folder.glob("*.safetensors")
    return dict(load_file(file))


@pytest.mark.parametrize(
    ("stage", "method"),
    [
        ("dpo", "lora"),
        ("kto", "full"),
        *(
            pytest.param(stage, method, marks=pytest.mark.slow)
            for stage, method in (
                ("dpo", "full"),
                ("kto", "lora"),
                ("reward", "lora"),
                ("reward", "full"),
                ("pretrain", "lora"),
                ("pretrain", "full"),
            )
        ),
    ],
)
def test_a_stage_learns_evaluates_stops_and_resumes(
    make_run: MakeRun, stage: str, method: str
) -> None:
    options = {"stage": stage}
    run = make_run(
        method,
        "ddp",
        2,
        options=options,
        data={"eval_split": 0.25, "max_length": 64},
        max_steps=4,
        save_steps=4,
        eval_steps=2,
        learning_rate=RATE[method],
    )
    (run.folder / "stop").touch()
    train(run, ok=75)
    assert not (run.folder / "model").exists()
    (run.folder / "stop").unlink()
    train(run, "--resume", "--attempt", "1")

    losses = {**run.losses(0), **run.losses(1)}
    assert sorted(losses) == [1, 2, 3, 4]
    assert losses[4] < losses[1]
    if FIRST_LOSS[stage] is not None:
        near = 0.3 if stage == "pretrain" else 2e-4
        assert losses[1] == pytest.approx(FIRST_LOSS[stage], abs=near)
    evaluations = run.events("eval", attempt=1)
    assert [event["step"] for event in evaluations] == [2, 4]
    assert evaluations[-1]["metrics"]["loss"] < losses[1]
    metrics = evaluations[-1]["metrics"]
    margin = metrics.get("rewards/margins", metrics.get("margin"))
    assert (margin is None) == (stage == "pretrain")
    assert margin is None or margin > 0
    best = min(evaluations, key=lambda event: event["metrics"]["loss"])["step"]
    assert run.read("result.json")["best"]["step"] == best
    kept = run.folder / "checkpoints" / f"checkpoint-{best}"
    model = weights(run.folder / "model")
    assert all((model[name] == value).all() for name, value in weights(kept).items())
    assert not (run.folder / "model/ref").exists()
