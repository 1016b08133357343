"""Data is prepared once and whole, or refused in one sentence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.data import ChatTokenizer
from engine.failure import RunError
from engine.prepare import prepare
from engine.record import write_json
from engine.spec import Spec
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

GOOD = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}
ASKED = {"messages": [{"role": "user", "content": "q"}]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder whose model is only a tokenizer, which is all that preparing reads."""
    make.tokenizer().save_pretrained(tmp_path / "model")
    write_json(
        tmp_path / "fetched.json",
        {"path": str(tmp_path / "model"), "revision": None, "source": "local"},
    )
    return tmp_path


def spec(run: Path, content: str | bytes, **data: object) -> Spec:
    path = run / "rows.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Spec.model_validate(
        {
            "model": {"model": str(run / "model")},
            "data": {"data": str(path), **data},
            "method": {"method": "lora"},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
    )


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_the_report_counts_what_was_kept_cut_and_dropped(run: Path) -> None:
    long = {"messages": [GOOD["messages"][0], {"role": "assistant", "content": "a" * 200}]}
    content = lines(GOOD, ASKED, long) + "{broken\n"

    report = prepare(spec(run, content, max_length=100, max_dropped_percent=60), run)

    assert (report["rows"], report["kept"], report["cut_rows"]) == (4, 2, 1)
    assert report["dropped_rows"] == 2
    first = report["dropped"][0]
    assert (first["unit"], first["line"]) == ("line", 2)
    assert "no assistant turn" in first["reason"]
    assert first["file"].endswith("rows.jsonl")
    assert report["dropped"][1]["line"] == 4
    assert report["lengths"]["max"] == 100
    assert 0 < report["trained_tokens"] < report["total_tokens"]
    assert json.loads((run / "prepared/report.json").read_text()) == report


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "has no rows"),
        ("\n \n", "has no rows"),
        ("[]", "has no rows"),
        ("{broken\n", "line 1: broken JSON"),
        (lines(GOOD) + "{broken\n" + lines(ASKED), "2 of 3 .*the first is line 2: broken JSON"),
        (lines(ASKED), "line 1: no assistant turn"),
        (lines({"colour": "x"}), "line 1: no known format: its keys are colour"),
        ('[{"messages": \n oops}]', "line 2: broken JSON"),
    ],
)
def test_unusable_data_is_one_sentence_and_leaves_nothing(
    run: Path, content: str, sentence: str
) -> None:
    with pytest.raises(RunError, match=sentence) as caught:
        prepare(spec(run, content), run)

    assert caught.value.failure == "bad_data"
    assert not list(run.glob("prepared*"))


def test_what_is_prepared_is_used_again_until_something_it_depends_on_changes(run: Path) -> None:
    first = prepare(spec(run, lines(GOOD)), run)
    made = (run / "prepared/rows.arrow").stat().st_ino

    assert prepare(spec(run, lines(GOOD)), run) == first
    assert (run / "prepared/rows.arrow").stat().st_ino == made
    other = prepare(spec(run, lines(GOOD), system="Be brief"), run)
    assert other["data_hash"] != first["data_hash"]
    assert prepare(spec(run, lines(GOOD, GOOD)), run)["rows"] == 2


def test_a_run_folder_that_is_gone_is_not_made_again(run: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    asked = spec(tmp_path / "data", lines(GOOD))
    gone = tmp_path / "gone"
    gone.mkdir()
    shutil.copy(run / "fetched.json", gone)

    class Leaves(ChatTokenizer):
        """Somebody removes the folder when the tokenizer is ready."""

        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            shutil.rmtree(gone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.examples.ChatTokenizer", Leaves)
        with pytest.raises(RunError, match="the run folder is gone"):
            prepare(asked, gone)

    assert not gone.exists()


def test_a_missing_file_is_named(run: Path) -> None:
    asked = spec(run, lines(GOOD))
    (run / "rows.jsonl").unlink()

    with pytest.raises(RunError, match=r"rows\.jsonl: no such data file"):
        prepare(asked, run)
