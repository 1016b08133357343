"""Runs with code of the user, trackers and levers: two ranks, all in one torchrun."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.engine.conftest import Run
from tests.engine.together import train_together
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]
SECRET = "3b0c8f0d5a7e4d2f9a61c7b2e8d4f0a91c3e5b7d"
CODE = """
import torch
from transformers import TrainerCallback

from engine.recipes.sft import Trainer


def halved(outputs, labels, num_items_in_batch=None):
    logits, wanted = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    summed = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum", ignore_index=-100)
    learnt = (wanted != -100).sum() if num_items_in_batch is None else num_items_in_batch
    return summed / learnt / 2


def right(predicted):
    said, wanted = predicted.predictions[:, :-1], predicted.label_ids[:, 1:]
    learnt = wanted != -100
    return {"right": (said == wanted)[learnt].mean(), "learnt": learnt.sum()}


def question(row):
    if row["q"] == "skip":
        return None
    return {"messages": [
        {"role": "user", "content": row["q"]}, {"role": "assistant", "content": row["a"]}
    ]}


class Marking(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        with open(args.output_dir + "/../marked", "a") as file:
            file.write(f"{args.process_index} {state.global_step}\\n")


class Failing(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        if state.global_step == 2:
            raise ValueError("not this step")


class Noting(Trainer):
    def training_step(self, model, inputs, *others, **more):
        joined = inputs.get("position_ids")
        with open(f"{self.args.output_dir}/../seen-{self.args.process_index}", "a") as file:
            for number, ids in enumerate(inputs["input_ids"].tolist()):
                if joined is None:
                    starts = [0, int(inputs["attention_mask"][number].sum())]
                else:
                    places = joined[number].tolist()
                    starts = [at for at, place in enumerate(places) if place == 0] + [len(ids)]
                for start, end in zip(starts, starts[1:]):
                    file.write(f"{ids[start:end]}\\n")
        return super().training_step(model, inputs, *others, **more)
"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """The runs, by name, and where the code of some of them is."""

    runs: dict[str, Run]
    code: Path
    printed: str

    def __getitem__(self, name: str) -> Run:
        return self.runs[name]


@pytest.fixture(scope="module")
def made(make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Each run for a few steps; the one that fails is the last."""
    pytest.importorskip("tensorboard")
    folder = tmp_path_factory.mktemp("with levers")
    code, rows, other = folder / "my code.py", folder / "rows.jsonl", folder / "other.jsonl"
    code.write_text(CODE)
    make.data_file(rows, rows=17)
    lines: list[dict[str, Any]] = [{"q": f"What is {n}?", "a": f"{n * n}."} for n in range(15)]
    lines.insert(3, {"q": "skip", "a": ""})
    other.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(**settings: Any) -> Run:
        named = {kind: f"{code}:{settings.pop(kind)}" for kind in KINDS if kind in settings}
        return make_run("lora", "ddp", 2, here=True, **{"max_steps": 3, **settings, **named})

    measured: dict[str, Any] = {
        "data": str(other),
        "preprocessor": "question",
        "metric": "right",
        "metric_for_best_model": "eval_right",
        "eval_split": 0.25,
        "eval_steps": 3,
        "save_steps": 3,
    }
    epochs: dict[str, Any] = {
        "data": str(rows),
        "trainer": "Noting",
        "max_steps": -1,
        "num_train_epochs": 2,
        "max_length": 256,
        "effective_batch_size": 4,
        "gradient_accumulation_steps": 1,
    }
    runs = {
        "plain": run(**measured, callback="Marking"),
        "halved": run(**measured, loss="halved"),
        "random": run(**epochs),
        "grouped": run(**epochs, group_by_length=True),
        "packed": run(**epochs, packing=True),
        "told": run(report_to="tensorboard"),
        "full": run(report_to="tensorboard"),
        "absent": run(report_to="swanlab"),
        "failing": run(callback="Failing"),
    }
    (runs["full"].folder / "tracker").write_text("a file where its folder would be")
    with pytest.MonkeyPatch.context() as environment:
        for name in ("HF_TOKEN", "WANDB_API_KEY", "SWANLAB_API_KEY"):
            environment.setenv(name, SECRET)
        printed = train_together([one.folder for one in runs.values()], 2)
    return Made(runs=runs, code=code, printed=printed)


KINDS = ("loss", "metric", "callback", "preprocessor", "trainer")


def test_all_but_the_one_that_fails_end_well(made: Made) -> None:
    codes = {name: run.codes() for name, run in made.runs.items()}
    well = {name: [70, 70] if name == "failing" else [0, 0] for name in made.runs}
    assert codes == well, made.printed


def test_every_kind_of_code_is_used(made: Made) -> None:
    plain = made["plain"]
    report = plain.read("prepared/report.json")
    assert (report["rows"], report["left_out_rows"]) == (15, 1)
    marked = sorted((plain.folder / "marked").read_text().splitlines())
    assert marked == [f"{rank} {step}" for rank in (0, 1) for step in (1, 2, 3)]
    (found,) = (event["metrics"] for event in plain.events("eval"))
    assert 0 <= found["right"] <= 1
    assert found["learnt"] > 0
    assert plain.read("result.json")["best"]["value"] == found["right"]
    assert made["halved"].losses()[1] == pytest.approx(plain.losses()[1] / 2, rel=1e-4)


def test_an_error_in_code_of_the_user_names_its_line(made: Made) -> None:
    (failed,) = made["failing"].events("failed")
    lines = CODE.splitlines()
    line = next(number for number, text in enumerate(lines, 1) if "not this step" in text)
    assert failed["failure"] == "user_code"
    place = f"{made.code}, line {line}, in on_step_end"
    assert failed["message"] == f"{place}: ValueError: “not this step”"


def test_every_row_is_seen_once_in_each_epoch_by_one_of_the_ranks(made: Made) -> None:
    for name in ("random", "grouped"):
        seen = counted(made[name])
        assert len(seen) == 17
        # 17 rows on 2 ranks × 2 make 5 batches of 4: the last has 3 from its epoch's start.
        assert sum(seen.values()) == 2 * 20
        assert min(seen.values()) == 2
        warned = [event["text"] for event in made[name].events("warn")]
        assert any(text.startswith("17 rows do not divide evenly") for text in warned)
    packs = made["packed"].read("prepared/report.json")["examples"]
    assert packs % 4
    seen = counted(made["packed"])
    assert len(seen) == 17
    assert min(seen.values()) == 2
    assert wasted(made["grouped"]) < wasted(made["random"])
    assert wasted(made["packed"]) == 0


def counted(run: Run) -> Counter[str]:
    files = [run.folder / f"seen-{rank}" for rank in (0, 1)]
    return Counter(line for file in files for line in file.read_text().splitlines())


def wasted(run: Run) -> float:
    """Share of the tokens that went through the model as padding."""
    steps = [step for rank in (0, 1) for step in run.events("step", rank)]
    return 1 - float(sum(s["tokens"] for s in steps) / sum(s["padded_tokens"] for s in steps))


def test_tensorboard_is_told_and_a_tracker_that_fails_is_left(made: Made) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    told = made["told"]
    assert told.losses() == made["full"].losses() == made["absent"].losses()
    events = EventAccumulator(str(told.folder / "tracker"))
    events.Reload()
    seen = {event.step: event.value for event in events.Scalars("train/loss")}
    assert seen == pytest.approx(told.losses(), rel=1e-4)
    assert len(list((told.folder / "tracker").iterdir())) == 1  # rank 0 alone
    for name, tracker in (("full", "tensorboard"), ("absent", "swanlab")):
        said = [event["text"] for event in made[name].events("warn")]
        begins = f"report_to={tracker} failed, and the run goes on without it: "
        assert any(text.startswith(begins) for text in said)


def test_no_key_of_the_environment_is_in_a_file(made: Made) -> None:
    for run in made.runs.values():
        for path in run.folder.rglob("*"):
            assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_a_compiled_model_learns_the_same_and_is_written_as_any_other(make_run: MakeRun) -> None:
    """Needs a C++ compiler; each graph is compiled at its first step."""
    same: dict[str, Any] = {"max_steps": 2, "here": True}
    plain, compiled = (
        make_run("lora", "ddp", 2, **same, torch_compile=compiled) for compiled in (False, True)
    )
    printed = train_together([plain.folder, compiled.folder], 2)

    assert (plain.codes(), compiled.codes()) == ([0, 0], [0, 0]), printed
    assert compiled.losses() == pytest.approx(plain.losses(), abs=1e-4)
    names = {path.name for path in (compiled.folder / "model").iterdir()}
    assert names == {path.name for path in (plain.folder / "model").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("optim", ["adafactor", "lion_32bit", "lion_8bit", "sgd"])
def test_every_optimizer_that_a_spec_may_name_learns(make_run: MakeRun, optim: str) -> None:
    run = make_run(
        "lora", "ddp", 2, here=True, max_steps=4, optim=optim, learning_rate=OPTIM_RATES[optim]
    )
    printed = train_together([run.folder], 2)

    assert run.codes() == [0, 0], printed
    assert run.losses()[4] < run.losses()[1]


OPTIM_RATES = {"adafactor": 1e-2, "lion_32bit": 1e-3, "lion_8bit": 1e-3, "sgd": 1.0}
