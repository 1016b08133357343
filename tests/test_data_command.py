"""`tunewright data check`: what data holds, in lines or as JSON, and an exit code that says it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.tiny import make
from wizard.cli import main

ROW = json.dumps(
    {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a [/b] é"}]}
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is a model as far as its tokenizer and configuration go."""
    folder = tmp_path_factory.mktemp("model")
    make.tokenizer().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 272}))
    return folder


def data(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "rows $(x) [red].jsonl"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("lines", "code"),
    [([ROW] * 3, 0), ([ROW] * 99 + ["oops"], 3), ([ROW, "oops", ROW], 4), (["oops"], 4), ([], 4)],
)
def test_the_exit_code_says_whether_every_row_can_be_used(
    lines: list[str], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", data(tmp_path, *lines)]) == code
    said = capsys.readouterr()
    assert ("line 100: broken JSON" in said.out) == (code == 3)
    assert bool(said.err) == (code == 4)


def test_as_json_it_is_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allowed = ("--set", "max_dropped_percent=50")
    assert main(["data", "check", data(tmp_path, ROW, "oops"), "--json", *allowed]) == 3
    found = json.loads(capsys.readouterr().out)["dataset"]
    assert (found["rows"], found["dropped_rows"], found["format"]) == (1, 1, "messages")


def test_files_and_samples_of_them_are_checked_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data(tmp_path, ROW, ROW, ROW, ROW)
    other = tmp_path / "pairs.csv"
    other.write_text("Frage,Antwort\nq,a\n")
    words = [f"{path}#2", f"{other}*3", "--set", "columns=prompt=Frage,completion=Antwort"]

    assert main(["data", "check", *words]) == 0
    assert "5 rows, several formats" in capsys.readouterr().out


PAIR = json.dumps({"prompt": "q", "chosen": "good", "rejected": "bad"})


@pytest.mark.parametrize(
    ("first", "second", "settings", "code", "words"),
    [
        (ROW, PAIR, (), 4, "line 1: in the format `preference`: set stage=dpo or reward"),
        (PAIR, ROW, (), 4, "not in the format `preference`"),
        (ROW, None, ("stage=dpo",), 4, "not in the format `preference`"),
        (ROW, None, ("eval_data={pair}",), 4, "eval_data, "),
        (ROW, None, ("eval_data=nowhere.jsonl",), 4, "no such file"),
        (
            '{"prompt": "q", "completion": "a", "label": "maybe"}',
            None,
            ("stage=kto",),
            4,
            "'maybe'",
        ),
        ('{"prompt": "q", "completion": "a", "label": "maybe"}', None, (), 0, "'maybe'"),
        (
            '{"prompt": "q", "completion": "a", "label": true}',
            None,
            (),
            0,
            "all answers are labelled",
        ),
    ],
)
def test_what_data_check_refuses_or_warns_of_so_does_plan(
    first: str,
    second: str | None,
    settings: tuple[str, ...],
    code: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    paths = []
    for name, row in (("one", first), ("two", second), ("pair", PAIR)):
        (tmp_path / f"{name}.jsonl").write_text(f"{row}\n" * 40)
        paths += [str(tmp_path / f"{name}.jsonl")]
    used = paths[: 1 + (second is not None)]
    told = [w for pair in settings for w in ("--set", pair.format(pair=paths[2]))]
    if not any("eval_data" in pair for pair in settings):
        assert main(["data", "check", *used, *told]) == code
        said = capsys.readouterr()
        assert words in said.out + said.err
    named = [w for path in used for w in ("--data", path)]
    planned = ["plan", "--model", "Qwen/Qwen3-0.6B", "--machine", "T4-Colab", *named, *told]
    assert main(planned) == code
    said = capsys.readouterr()
    assert words in " ".join((said.out + said.err).split())


def test_rows_of_an_epoch_are_told_beside_those_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", f"{data(tmp_path, ROW, ROW)}#999"]) == 0
    assert "999 rows in an epoch, of 2 there" in capsys.readouterr().out


@pytest.mark.engine
def test_with_a_model_it_shows_what_is_learnt(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = data(tmp_path, ROW, "oops", ROW)
    assert main(["data", "check", path, "--model", str(model), "--set", "system=be brief"]) == 4
    said = capsys.readouterr().out
    assert "be brief<|im_end|>" in said
    assert "#a [/b] é<|im_end|>#" in said
    assert "2 of 3 rows can be used, messages" in said
    assert "line 2: broken JSON" in said
    assert "a run would not start: " in said

    words = ["--model", str(model), "--set", "max_dropped_percent=50", "--json", "--sample", "2"]
    assert main(["data", "check", path, *words]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [sample["line"] for sample in found["samples"]] == [1, 3]
    assert [(p["line"], p["unit"]) for p in found["problems"]] == [(2, "line")]
    report = found["report"]
    assert (report["rows"], report["kept"], report["usable"]) == (3, 2, True)
    assert sum(bar["rows"] for bar in report["histogram"]) == 2
    pieces = found["samples"][0]["pieces"]
    assert [piece["learnt"] for piece in pieces] == [False, True, False]


def test_a_model_that_is_not_here_is_said_to_be_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "check", data(tmp_path, ROW), "--model", "Qwen/Qwen3-8B"]) == 1
    assert "Qwen/Qwen3-8B: not on this machine yet" in capsys.readouterr().err
