"""The user's own code is kept with the run, used, and named with its line when it fails."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import plugins
from engine.failure import RunError, classify
from engine.spec import Spec
from tests.engine.conftest import Run

MakeRun = Callable[..., Run]

TRAINER_CODE = """
import torch
from transformers import TrainerCallback


def halved(outputs, labels, num_items_in_batch=None):
    logits, wanted = outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    summed = torch.nn.functional.cross_entropy(logits, wanted, reduction="sum", ignore_index=-100)
    return summed / num_items_in_batch / 2


class Noting(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        with open(args.output_dir + "/../noted", "a") as file:
            file.write(f"{args.process_index} {state.global_step}\\n")


class Failing(TrainerCallback):
    def on_step_end(self, args, state, control, **others):
        if state.global_step == 2:
            raise ValueError("not this step")
"""

CODE = """
def right(predicted):
    said, wanted = predicted.predictions[:, :-1], predicted.label_ids[:, 1:]
    learnt = wanted != -100
    return {"right": (said == wanted)[learnt].mean(), "learnt": learnt.sum()}


def nothing(predicted):
    return {}


def question(row):
    if row["q"] == "skip":
        return None
    return {"messages": [
        {"role": "user", "content": row["q"]}, {"role": "assistant", "content": row["a"]}
    ]}


def longest(row):
    return max(row["words"])


A_NUMBER = 3
"""


def plug(folder: Path, **named: str) -> dict[str, str]:
    """The code in files, and the settings that take `named` of it."""
    light, heavy = folder / "my code.py", folder / "my trainer.py"
    for file, code in ((light, CODE), (heavy, TRAINER_CODE)):
        if not file.exists():
            file.write_text(code)
    return {
        kind: f"{heavy if f' {name}(' in TRAINER_CODE else light}:{name}"
        for kind, name in named.items()
    }


def line_of(text: str, code: str = CODE) -> int:
    return next(n for n, line in enumerate(code.splitlines(), 1) if text in line)


def spec_with(**named: str) -> Spec:
    from tests.test_rules import spec

    return spec(device_kind="cpu", dtype="float32", **named)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    made.mkdir()
    return made


def test_a_run_keeps_a_copy_and_goes_on_with_it(tmp_path: Path, run: Path) -> None:
    spec = spec_with(**plug(tmp_path, loss="longest"))
    assert plugins.keep(spec, run) == []
    file = tmp_path / "my code.py"
    file.write_text(CODE.replace("max", "min"))

    (said,) = plugins.keep(spec, run)

    assert said.startswith(f"{file} was edited since this run began")
    (copy,) = (run / "plugins").glob("*.py")
    assert copy.read_text() == CODE
    assert plugins.load(str(spec.plugins.loss), run).__code__.co_filename == str(file)
    file.unlink()
    assert plugins.keep(spec, run) == []  # a run copied to another machine brings its code
    copy.write_text(CODE + "\n")
    with pytest.raises(RunError, match="was changed since this run began") as caught:
        plugins.load(str(spec.plugins.loss), run)
    assert caught.value.failure == "bad_spec"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(:\n", "line 1: invalid syntax"),
        ("x = 1\n\ny = 1 / 0\n", "line 3, in <module>: ZeroDivisionError: division by zero"),
        ("import nowhere_at_all\n", "No module named 'nowhere_at_all'; install it"),
        ("import beside\n", "a plug-in is one file: put what it imports into it"),
        ("def g():\n    pass\n", "has no `f`; its names are g"),
    ],
)
def test_code_that_does_not_load_is_named_with_its_line(
    tmp_path: Path, run: Path, code: str, said: str
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(code)
    (tmp_path / "beside.py").touch()
    spec = spec_with(loss=f"{file}:f")
    plugins.keep(spec, run)

    with pytest.raises((RunError, ArithmeticError)) as caught:
        plugins.load(f"{file}:f", run)
    failure = classify(caught.value)

    assert failure.failure == "user_code"
    assert failure.message.startswith(str(file))
    assert said in failure.message
    assert "\n" not in failure.message


def test_a_preprocessor_says_its_line_and_the_rows(tmp_path: Path, run: Path) -> None:
    spec = spec_with(**plug(tmp_path, preprocessor="longest"))
    plugins.keep(spec, run)
    made = plugins.preprocessor(spec.plugins.preprocessor, run)
    assert made is not None
    elsewhere = pickle.loads(pickle.dumps(made))
    with pytest.raises(RunError) as caught:
        elsewhere({"no": "words"}, 7)
    arrived = pickle.loads(pickle.dumps(caught.value))
    place = f"line {line_of('max(row')}, in longest: KeyError: 'words' (row 7)"
    assert str(arrived) == f"{tmp_path / 'my code.py'}, {place}"
    assert arrived.failure == "user_code"
    with pytest.raises(RunError, match="gave str for row 8; it gives a row"):
        made({"words": ["a"]}, 8)


def test_what_code_runs_into_keeps_its_own_class(tmp_path: Path, run: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def f(error):\n    raise error\n")
    spec = spec_with(loss=f"{file}:f")
    plugins.keep(spec, run)
    function = plugins.load(f"{file}:f", run)
    for error, failure in (
        (MemoryError(), "host_oom"),
        (OSError(28, "No space left on device"), "disk_full"),
        (RuntimeError("CUDA out of memory"), "gpu_oom"),
        (RuntimeError("unused parameters"), "user_code"),
    ):
        with pytest.raises(type(error)) as caught:
            function(error)
        assert classify(caught.value).failure == failure


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("loss", "A_NUMBER", "is int, not a loss function"),
        ("trainer", "Noting", "is no class made from `Trainer` of engine.recipes.sft"),
        ("callback", "halved", "is no TrainerCallback"),
    ],
)
@pytest.mark.engine
def test_code_of_another_kind_is_refused(
    tmp_path: Path, run: Path, kind: str, name: str, said: str
) -> None:
    from engine.recipes import sft

    spec = spec_with(**plug(tmp_path, **{kind: name}))
    plugins.keep(spec, run)
    with pytest.raises(RunError, match=said) as caught:
        plugins.plugged(spec, run, sft.Trainer)
    assert caught.value.failure == "user_code"


@pytest.mark.engine
def test_a_metric_that_gives_no_numbers_is_refused(tmp_path: Path, run: Path) -> None:
    spec = spec_with(eval_split=0.5, **plug(tmp_path, metric="nothing"))
    plugins.keep(spec, run)
    measure = plugins.plugged(spec, run, object).metric
    assert measure is not None
    with pytest.raises(RunError, match="gave nothing; it gives names with numbers"):
        measure(None)


def rows_of_another_form(path: Path, rows: int) -> None:
    lines: list[dict[str, Any]] = [{"q": f"What is {n}?", "a": f"{n * n}."} for n in range(rows)]
    lines.insert(3, {"q": "skip", "a": ""})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.engine
def test_every_kind_of_code_is_used_and_an_error_in_it_names_its_line(
    make_run: MakeRun, tmp_path: Path
) -> None:
    from tests.engine.together import train_together

    rows = tmp_path / "rows.jsonl"
    rows_of_another_form(rows, 15)
    common: dict[str, Any] = {"max_steps": 3, "eval_split": 0.25, "eval_steps": 3, "save_steps": 3}
    runs = []
    for named in (
        {"preprocessor": "question", "metric": "right", "callback": "Noting"},
        {"preprocessor": "question", "metric": "right", "loss": "halved"},
        {"preprocessor": "question", "callback": "Failing"},
    ):
        best = {"metric_for_best_model": "eval_right"} if "metric" in named else {}
        code = plug(tmp_path, **named)
        runs.append(make_run("lora", "ddp", 2, here=True, data=str(rows), **common, **best, **code))
    printed = train_together([run.folder for run in runs], 2)

    plain, halved, failing = runs
    assert [run.codes() for run in runs] == [[0, 0], [0, 0], [70, 70]], printed
    assert plain.read("prepared/report.json")["left_out_rows"] == 1
    assert plain.read("prepared/report.json")["rows"] == 15
    noted = sorted((plain.folder / "noted").read_text().split("\n")[:-1])
    assert noted == [f"{rank} {step}" for rank in (0, 1) for step in (1, 2, 3)]
    (measured,) = (event["metrics"] for event in plain.events("eval"))
    assert 0 <= measured["right"] <= 1
    assert measured["learnt"] > 0
    assert plain.read("result.json")["best"]["value"] == measured["right"]
    assert halved.losses()[1] == pytest.approx(plain.losses()[1] / 2, rel=1e-4)
    (failed,) = failing.events("failed")
    assert failed["failure"] == "user_code"
    line = line_of("not this step", TRAINER_CODE)
    place = f"{tmp_path / 'my trainer.py'}, line {line}, in on_step_end"
    assert failed["message"] == f"{place}: ValueError: not this step"
