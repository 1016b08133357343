"""The preview says line by line what data would become, and keeps to what it promises."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import preview
from engine.events import EXIT_BAD_DATA, EXIT_BAD_SPEC
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

ROW = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a é"}]}
PAIR = {"prompt": "q", "chosen": "good", "rejected": "bad"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tokenizer only."""
    folder = tmp_path_factory.mktemp("model")
    make.tokenizer().save_pretrained(folder)
    return str(folder)


class Said:
    """The lines of one preview, by kind."""

    def __init__(self, text: str) -> None:
        self.lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]

    def __getitem__(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] == kind]


def asked(
    capsys: pytest.CaptureFixture[str], code: int, rows: Path, *words: str, content: list[Any]
) -> Said:
    rows.write_text("".join(f"{json.dumps(row)}\n" for row in content))
    assert preview.main([f"data={rows}", *words]) == code
    return Said(capsys.readouterr().out)


def test_samples_come_first_and_the_report_last(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = [ROW, {"colour": "red"}, ROW, ROW]
    words = (f"model={model}", "samples=2", "max_length=30", "max_dropped_percent=50")
    said = asked(capsys, 0, tmp_path / "d.jsonl", *words, content=content)

    assert [line["kind"] for line in said.lines[:2]] == ["sample", "sample"]
    assert [sample["line"] for sample in said["sample"]] == [1, 3]
    assert [problem["line"] for problem in said["problem"]] == [2]
    (report,) = said["report"]
    assert said.lines[-1] == report
    assert (report["usable"], report["reason"], report["stage"]) == (True, None, "sft")
    assert (report["rows"], report["kept"], report["dropped_rows"]) == (4, 3, 1)
    assert sum(bar["rows"] for bar in report["histogram"]) == report["kept"]
    assert report["cuts"] == {"128": 0}
    assert set(report["lengths"]) == {"min", "p50", "p90", "p95", "p99", "max"}
    assert report["sets"][0]["usable"] == 3


def test_a_sample_is_what_the_model_sees_and_the_marks_are_the_loss(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = asked(capsys, 0, tmp_path / "d.jsonl", f"model={model}", content=[ROW])
    (sample,) = said["sample"]

    assert sample["row"] == ROW
    text = "".join(piece["text"] for piece in sample["pieces"])
    assert text == make.tokenizer().apply_chat_template(ROW["messages"], tokenize=False)
    assert [p["text"] for p in sample["pieces"] if p["learnt"]] == ["a é<|im_end|>"]
    assert len(sample["ids"]) == sample["tokens"] == sample["length"]
    assert sum(learnt for _, _, learnt in sample["ids"]) == sample["trained"]


def test_pairs_and_texts_are_previewed_as_the_stage_they_are_for(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = asked(capsys, 0, tmp_path / "d.jsonl", f"model={model}", content=[PAIR])
    assert pairs["report"][0]["stage"] == "dpo"
    assert [p["learnt"] for p in pairs["sample"][0]["pieces"]] == [False, True, True]
    plain = asked(capsys, 0, tmp_path / "e.jsonl", f"model={model}", content=[{"text": "some"}])
    assert plain["report"][0]["stage"] == "pretrain"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["columns=prompt=nothing"], "no row has the columns `nothing`"),
        (["max_length=8"], "no answer within the first 8 tokens"),
        (["stage=dpo"], "not in the format `preference`"),
    ],
)
def test_what_a_run_would_refuse_is_in_the_report(
    words: list[str],
    reason: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = asked(capsys, 0, tmp_path / "d.jsonl", f"model={model}", *words, content=[ROW])
    (report,) = said["report"]
    assert not report["usable"]
    assert reason in report["reason"]


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (["columns=colour=x"], EXIT_BAD_DATA, "`colour` is in no format"),
        (["model=/nowhere"], EXIT_BAD_SPEC, "tokenizer"),
        (["lenght=5"], EXIT_BAD_SPEC, "unknown setting `lenght`"),
        (["samples=many"], EXIT_BAD_SPEC, "samples=many"),
        (["data=/nowhere.jsonl"], EXIT_BAD_DATA, "no such data file"),
    ],
)
def test_what_cannot_be_previewed_is_one_line_with_the_code_of_a_run(
    words: list[str],
    code: int,
    reason: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [f"model={model}", *words]
    said = asked(capsys, code, tmp_path / "d.jsonl", *words, content=[ROW])
    assert [line["kind"] for line in said.lines] == ["failed"]
    assert reason in said["failed"][0]["message"]
