"""Every stage trains a tiny model for real, under torchrun, on CPU ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.methods import LOSSES
from tests.engine.conftest import Run

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]
FIRST_LOSS = {"dpo": 0.6931, "kto": 0.5, "reward": None, "pretrain": 5.6, "sft": 5.6}
"""Loss before anything is learnt: ln 2 of a pair whose sides are as likely as to the reference,
half of a label, and about ln 272 of a token; a reward model's head is random."""


def train(run: Run, *words: str, ok: int = 0) -> str:
    done = run.train(*words)
    attempt = int(words[-1]) if "--attempt" in words else 0
    assert run.codes(attempt) == [ok] * run.ranks, done.stderr
    return done.stderr


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    (file,) = folder.glob("*.safetensors")
    return dict(load_file(file))


def make(make_run: MakeRun, stage: str, method: str, strategy: str = "ddp", **training: Any) -> Run:
    return make_run(
        method,
        strategy,
        2,
        here=True,
        stage=stage,
        eval_split=0.25,
        max_length=64,
        max_steps=4,
        save_steps=4,
        eval_steps=2,
        learning_rate=3e-3,
        **training,
    )


def check(run: Run, stage: str) -> None:
    losses = {**run.losses(0), **run.losses(1)}
    assert sorted(losses) == [1, 2, 3, 4]
    assert losses[4] < losses[1]
    if FIRST_LOSS[stage] is not None:
        near = 0.3 if stage == "pretrain" else 2e-4
        assert losses[1] == pytest.approx(FIRST_LOSS[stage], abs=near)
    evaluations = run.events("eval", attempt=0) or run.events("eval", attempt=1)
    assert [event["step"] for event in evaluations] == [2, 4]
    assert evaluations[-1]["metrics"]["loss"] < losses[1]
    metrics = evaluations[-1]["metrics"]
    margin = metrics.get("rewards/margins", metrics.get("margin"))
    assert (margin is None) == (stage == "pretrain")
    assert margin is None or margin > 0
    best = min(evaluations, key=lambda event: event["metrics"]["loss"])["step"]
    assert run.read("result.json")["best"]["step"] == best
    kept = run.folder / "checkpoints" / f"checkpoint-{best}"
    if list(kept.glob("*.safetensors")):  # shards are in files of their library's own
        model = weights(run.folder / "model")
        assert all((model[name] == value).all() for name, value in weights(kept).items())
    assert not (run.folder / "model/ref").exists()


@pytest.mark.parametrize(
    ("stage", "method"),
    [
        ("kto", "full"),
        *(
            pytest.param(stage, method, marks=pytest.mark.slow)
            for stage in ("pretrain", "reward")
            for method in ("lora", "full")
        ),
    ],
)
def test_a_stage_learns_evaluates_and_keeps_the_best(
    make_run: MakeRun, stage: str, method: str
) -> None:
    run = make(make_run, stage, method)
    train(run)

    check(run, stage)


@pytest.mark.parametrize(
    ("stage", "method"),
    [
        ("dpo", "lora"),
        *(
            pytest.param(stage, method, marks=pytest.mark.slow)
            for stage, method in (("dpo", "full"), ("kto", "lora"), ("reward", "full"))
        ),
    ],
)
def test_a_stage_that_was_stopped_goes_on_where_it_was(
    make_run: MakeRun, stage: str, method: str
) -> None:
    run = make(make_run, stage, method)
    (run.folder / "stop").touch()
    train(run, ok=75)
    assert not (run.folder / "model").exists()
    (run.folder / "stop").unlink()
    train(run, "--resume", "--attempt", "1")

    check(run, stage)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["zero2", "zero3", "fsdp"])
@pytest.mark.parametrize("stage", ["dpo", "kto", "reward"])
@pytest.mark.parametrize("method", ["lora", "full"])
def test_a_stage_learns_with_every_way_to_share_the_work(
    make_run: MakeRun, stage: str, method: str, strategy: str
) -> None:
    run = make(make_run, stage, method, strategy)
    train(run)

    check(run, stage)


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_a_smoke_run_asks_the_reference_too(make_run: MakeRun, stage: str) -> None:
    run = make(make_run, stage, "full")
    train(run, "--smoke")

    assert run.read("smoke.json")["measured"]["steps"] == 2
    assert run.losses()[1] == pytest.approx(FIRST_LOSS[stage], abs=2e-4)


@pytest.mark.parametrize("stage", ["dpo", "kto", "reward", "pretrain"])
def test_the_library_trains_on_the_tokens_that_were_prepared_and_on_no_others(
    make_run: MakeRun, stage: str
) -> None:
    """With its defaults it would tokenise, cut and drop rows by itself."""
    trainer, rows = made_here(make_run("lora", "single", 1, here=True, stage=stage, max_length=64))

    seen = sorted(ids for batch in trainer.get_train_dataloader() for ids in real(batch))
    assert seen == sorted(ids for row in rows for ids in sequences(row, stage))
    assert max(map(len, seen)) == 64


def made_here(run: Run) -> tuple[Any, Any]:
    """The trainer of a run on one device, in this process, and its prepared rows."""
    from engine import arrange
    from engine.fetch import read_fetched, read_spec
    from engine.recipes import recipe
    from engine.report import Report
    from engine.train import load

    spec = read_spec(run.folder / "spec.toml")
    report = Report(run.folder, rank=0, attempt=0, rung=0)
    settings = recipe(spec).arguments(spec, run.folder, smoke=False)
    rows = arrange.load(run.folder, spec, smoke=False)
    return load(spec, settings, read_fetched(run.folder), rows, None, [], report), rows


def test_every_loss_of_pairs_that_a_spec_may_name_is_one_that_the_library_has(
    make_run: MakeRun,
) -> None:
    import math

    trainer, _ = made_here(make_run("lora", "single", 1, here=True, stage="dpo"))
    batch = next(iter(trainer.get_train_dataloader()))
    trainer.label_smoothing = 0.01  # which one of them needs

    for loss in LOSSES["dpo"]:
        trainer.loss_types = [loss]
        assert math.isfinite(trainer.compute_loss(trainer.model, dict(batch)).item()), loss


def real(batch: Any) -> list[list[int]]:
    """The sequences of a batch without their padding."""
    found = zip(batch["input_ids"], batch["attention_mask"], strict=True)
    return [ids[: int(mask.sum())].tolist() for ids, mask in found]


def sequences(row: dict[str, Any], stage: str) -> list[list[int]]:
    """What a prepared row is to become."""
    if stage == "pretrain":
        return [row["input_ids"]]
    if stage == "kto":
        return [row["prompt_ids"] + row["completion_ids"]]
    before = row["prompt_ids"] if stage == "dpo" else []
    return [before + row["chosen_ids"], before + row["rejected_ids"]]


def test_a_neighbours_answer_is_never_a_rows_own() -> None:
    from datasets import Dataset

    from engine.recipes.kto import with_neighbours

    for count in (2, 4, 5, 7):
        rows = Dataset.from_dict({"completion_ids": [[n] for n in range(count)]})
        found = with_neighbours(rows, 2)
        pairs = list(zip(rows["completion_ids"], found["KL_completion_ids"], strict=True))
        assert all(own != other for own, other in pairs)
        assert all(own[0] // 2 == other[0] // 2 for own, other in pairs[: count - count % 2])
    picked = rows.select([6, 5, 0, 1])
    assert with_neighbours(picked, 2)["KL_completion_ids"] == [[5], [6], [1], [0]]
