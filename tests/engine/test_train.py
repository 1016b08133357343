"""The engine trains a tiny model for real, under torchrun, on CPU ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.conftest import Run
from tests.fakes.tiny.make import IM_END

pytestmark = pytest.mark.engine

STEPS = 6
MakeRun = Callable[..., Run]


@pytest.fixture(scope="module")
def straight(make_run: MakeRun) -> Run:
    """Six steps of LoRA on two ranks, not interrupted."""
    run = make_run("lora", "ddp", 2, max_steps=STEPS)
    done = run.train()
    assert done.returncode == 0, done.stderr
    return run


def test_two_ranks_train_and_say_what_they_did(straight: Run) -> None:
    assert straight.codes() == [0, 0]
    for rank in (0, 1):
        phases = [event["phase"] for event in straight.events("phase", rank)]
        order = ["starting", "loading model", "wrapping", "first batch", "training", "saving"]
        assert list(dict.fromkeys(phases)) == [*order, "done"]
        steps = straight.events("step", rank)
        assert sum(step["steps"] for step in steps) == STEPS
        for step in steps:
            assert step["own_seconds"] + step["wait_seconds"] == pytest.approx(
                step["seconds"], abs=1e-4
            )
            assert 0 < step["tokens"] <= step["padded_tokens"]
        assert straight.events("done", rank)[0]["steps"] == STEPS
    (hello,) = straight.events("hello", 1)
    assert (hello["world_size"], hello["local_rank"], hello["device"]) == (2, 1, "cpu")
    assert len(straight.losses()) == STEPS
    assert straight.losses()[STEPS] < straight.losses()[1]


def test_the_model_folder_holds_an_adapter_a_card_and_no_pickle(straight: Run) -> None:
    names = {path.name for path in (straight.folder / "model").iterdir()}

    assert {"adapter_model.safetensors", "chat_template.jinja", "tokenizer.json"} <= names
    assert {Path(name).suffix for name in names} <= {".safetensors", ".json", ".jinja", ".md"}
    assert "apache-2.0" in (straight.folder / "model/README.md").read_text()
    assert not (straight.folder / "model.tmp").exists()


def test_the_result_has_a_peak_for_every_rank(straight: Run) -> None:
    measured = straight.read("result.json")["measured"]

    assert measured["steps"] == STEPS
    assert measured["memory_peak_bytes"] == [None, None]
    assert all(peak > 100_000_000 for peak in measured["process_memory_peak_bytes"])
    assert measured["train_loss_last"] == straight.losses()[STEPS]
    assert measured["tokens_per_second"] > 0


SLOW_SAVE = """
import sys
from importlib.abc import MetaPathFinder

class Slow(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "engine.measure":
            return None
        sys.meta_path.remove(self)
        import time
        from transformers import Trainer
        whole = Trainer._save_checkpoint
        def slow(trainer, *args, **kwargs):
            if trainer.args.process_index == 0:
                time.sleep(10)
            return whole(trainer, *args, **kwargs)
        Trainer._save_checkpoint = slow

sys.meta_path.insert(0, Slow())
"""


def test_a_stop_during_a_slow_save_loses_nothing_and_the_resumed_run_is_the_same(
    straight: Run, make_run: MakeRun, tmp_path: Path
) -> None:
    run = make_run("lora", "ddp", 2, max_steps=STEPS)
    (tmp_path / "sitecustomize.py").write_text(SLOW_SAVE)
    (run.folder / "stop").touch()

    run.train(PYTHONPATH=str(tmp_path))

    assert run.codes() == [75, 75]
    assert [event["exit_code"] for event in run.events("done", 1)] == [75]
    (saved,) = run.events("saved")
    assert saved["seconds"] >= 10
    assert [event["phase"] for event in run.events("phase")][-2:] == ["stopping", "stopped"]
    assert not (run.folder / "model").exists()

    (run.folder / "stop").unlink()
    torn = run.folder / "checkpoints/checkpoint-99"
    torn.mkdir()
    (torn / "trainer_state.json").write_text("{}")
    assert run.train("--resume", "--attempt", "1").returncode == 0

    assert "checkpoint-99 is incomplete" in run.events("warn", attempt=1)[0]["text"]
    joined = {**run.losses(0), **run.losses(1)}
    resumed, whole = run.events("train", attempt=1)[-1], straight.events("train")[-1]
    assert resumed["tokens_seen"] == whole["tokens_seen"]
    assert set(run.losses(0)).isdisjoint(run.losses(1))
    assert joined == pytest.approx(straight.losses(), abs=1e-5)


def test_a_finished_run_that_is_resumed_is_left_as_it_is(make_run: MakeRun) -> None:
    run = make_run("lora", "ddp", 2, max_steps=4)
    data = run.folder / "some data.jsonl"
    rows = data.read_text()
    data.write_text(rows + rows.splitlines()[0] + "\n")
    assert run.stage("prepare").returncode == 0
    assert run.train().returncode == 0
    (uneven,) = run.events("warn")
    assert uneven["text"].startswith("17 rows do not divide evenly among 2 ranks")
    kept = [run.folder / "result.json", *(run.folder / "model").iterdir()]
    before = {path: path.stat().st_mtime_ns for path in kept}

    assert run.train("--resume", "--attempt", "1").returncode == 0

    assert run.codes(1) == [0, 0]
    assert run.events("step", attempt=1) == []
    (said,) = run.events("warn", attempt=1)
    assert "nothing was changed" in said["text"]
    assert {path: path.stat().st_mtime_ns for path in kept} == before


@pytest.mark.parametrize(
    ("method", "strategy", "ranks"),
    [("lora", "ddp", 2), pytest.param("full", "zero3", 2, marks=pytest.mark.slow)],
)
def test_a_run_that_stopped_at_its_last_step_only_writes_its_model(
    make_run: MakeRun, method: str, strategy: str, ranks: int
) -> None:
    run = make_run(method, strategy, ranks, max_steps=1)
    (run.folder / "stop").touch()
    run.train()
    assert run.codes() == [75] * ranks
    assert not (run.folder / "model").exists()
    (run.folder / "stop").unlink()

    assert run.train("--resume", "--attempt", "1").returncode == 0

    assert run.events("step", attempt=1) == []
    name = "adapter_model.safetensors" if method == "lora" else "model.safetensors"
    model = (run.folder / "model" / name).read_bytes()
    assert model == (run.folder / "checkpoints/checkpoint-1" / name).read_bytes()
    assert run.read("result.json")["measured"]["steps"] == 0


def test_all_weights_are_trained_on_one_device(make_run: MakeRun) -> None:
    run = make_run("full", "single", 1, save_steps=1, save_total_limit=1)
    assert run.train().returncode == 0

    assert (run.folder / "model/model.safetensors").stat().st_size > 100_000
    assert not (run.folder / "model/training_args.bin").exists()
    kept = [path.name for path in (run.folder / "checkpoints").glob("checkpoint-*")]
    assert kept == ["checkpoint-2"]
    refused = run.train("--attempt", "1")
    assert run.codes(1) == [64]
    assert "--resume" in refused.stderr


def test_a_loss_that_is_not_finite_ends_every_rank_with_74(make_run: MakeRun) -> None:
    run = make_run("full", "single", 1, learning_rate=1e30, max_grad_norm=0.0, max_steps=4)
    done = run.train()

    assert run.codes() == [74]
    assert run.exits()[0]["failure"] == "nan"
    assert "lower learning_rate" in done.stderr
    assert run.events("failed")[0]["failure"] == "nan"
    assert not (run.folder / "model").exists()


def test_f09_the_trainers_own_batch_has_a_loss_on_every_last_end_mark(
    straight: Run, tmp_path: Path
) -> None:
    from engine import adapter, arrange, model
    from engine.data import IGNORED
    from engine.fetch import read_spec
    from engine.prepare import load_tokenizer
    from engine.recipes import sft

    spec = read_spec(straight.folder / "spec.toml")
    alone = spec.parallel.model_copy(update={"strategy": "single", "num_devices": 1})
    spec = spec.model_copy(update={"parallel": alone})
    folder = Path(spec.model.model)
    trainer = sft.build(
        spec,
        sft.arguments(spec, tmp_path, smoke=False),
        model.load_base(spec, folder, 0),
        load_tokenizer(folder),
        arrange.load(straight.folder, spec, smoke=False),
        None,
        adapter.new_config(spec, None),
        [],
    )

    rows = 0
    for batch in trainer.get_train_dataloader():
        for ids, labels, mask in zip(
            batch["input_ids"], batch["labels"], batch["attention_mask"], strict=True
        ):
            rows += 1
            end = max(i for i, label in enumerate(labels.tolist()) if label != IGNORED)
            assert ids[end] == labels[end] == IM_END
            assert mask[end] == 1
            assert (labels[int(mask.sum()) :] == IGNORED).all()
    assert rows == 16


def ask(folder: Path, *words: str) -> list[dict[str, object]]:
    question = {"messages": [{"role": "user", "content": "What is 3?"}], "max_new_tokens": 4}
    done = subprocess.run(
        [sys.executable, "-m", "engine.chat", str(folder), *words],
        input=json.dumps(question) + "\nnot json\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_tuned_model_and_its_base_answer(straight: Run) -> None:
    for words in ((), ("--base",)):
        said = ask(straight.folder, *words)
        assert {"done": True} in said
        assert any("text" in line for line in said)
        assert "error" in said[-1]
    (missing,) = ask(straight.folder / "nowhere")
    assert "no model there" in str(missing["error"])
