"""The user's own code is kept with the run, used, and named with its line when it fails."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from engine import plugins
from engine.failure import RunError, classify
from engine.spec import Spec

CODE = """
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


class Nothing:
    pass
"""


def plug(folder: Path, **named: str) -> dict[str, str]:
    """The code in a file, and the settings that take `named` of it."""
    file = folder / "my code.py"
    file.write_text(CODE)
    return {kind: f"{file}:{name}" for kind, name in named.items()}


def line_of(text: str, code: str = CODE) -> int:
    return next(n for n, line in enumerate(code.splitlines(), 1) if text in line)


def spec_with(**named: Any) -> Spec:
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
        ("def f(:\n", "line 1: “invalid syntax”"),
        ("x = 1\n\ny = 1 / 0\n", "line 3, in <module>: ZeroDivisionError: “division by zero”"),
        ("import nowhere_at_all\n", "“No module named 'nowhere_at_all'”; install it"),
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
    place = f"line {line_of('max(row')}, in longest: KeyError: “'words'” (row 7)"
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
        ("trainer", "Nothing", "is no class made from `Trainer` of engine.recipes.sft"),
        ("callback", "Nothing", "is no TrainerCallback"),
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
