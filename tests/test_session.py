"""Answers are kept for the next time, and only what this program wrote is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wizard import session
from wizard.answers import Answers
from wizard.commands import keymap, verbs
from wizard.dashboard.metrics import columns
from wizard.problem import ProblemError

ANSWERS = Answers(
    model="Qwen/Qwen3-8B",
    data="/data/Überschrift.jsonl",
    goal="fastest",
    devices=(0, 2),
    settings={"learning_rate": 1e-4, "devices": ("GPU-1",), "revision": None},
    preset="small",
    preset_settings={"lora_rank": 8},
    accepted=("learning_rate: 1 is too much",),
    typed={"Model": "qwen 8b", "Data": "/data/ü"},
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_answers_come_back_as_they_were_and_can_be_forgotten(home: Path) -> None:
    assert session.load() is None
    session.save(ANSWERS)
    assert session.load() == ANSWERS
    assert session.file().stat().st_mode & 0o077 == 0
    session.save(Answers())
    assert session.load() is None
    session.save(None)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "[]",
        '{"schema": 2, "answers": {}}',
        '{"schema": 1, "answers": {"shell": "rm"}}',
        '{"schema": 1, "answers": {"model": 7}}',
        '{"schema": 1, "answers": {"goal": "cheap"}}',
        '{"schema": 1, "answers": {"devices": ["a"]}}',
        '{"schema": 1, "answers": {"typed": {"Model": 7}}}',
        '{"schema": 1, "answers": {"typed": ["Model"]}}',
        '{"schema": 1, "answers": {"accepted": [true]}}',
        '{"schema": 1, "answers": {"settings": {"no_such": 1}}}',
        '{"schema": 1, "answers": {"settings": {"learning_rate": -1}}}',
        "[" * 100_000,
    ],
)
def test_a_file_of_somebody_else_is_told_and_not_used(home: Path, text: str) -> None:
    home.mkdir()
    session.file().write_text(text)
    with pytest.raises(ProblemError, match="cannot be read"):
        session.load()


def test_keys_can_be_moved_and_a_wrong_name_is_told_with_the_nearest(home: Path) -> None:
    assert keymap.load() == {}
    home.mkdir()
    keymap.file().write_text('"plan.goal" = "x"\n')
    assert keymap.load() == {"plan.goal": "x"}
    for text, said in (
        ('"plan.gaol" = "x"', "did you mean 'plan.goal'"),
        ('"plan.goal" = 3', "has no key"),
        ("plan", "cannot be read"),
    ):
        keymap.file().write_text(text)
        with pytest.raises(ProblemError, match=said):
            keymap.load()


def test_every_key_has_an_id_and_words_about_it() -> None:
    ids = keymap.binding_ids()
    assert {"app.quit", "plan.what-if", "tune.undo", "review.smoke", "hardware.use"} <= ids
    assert json.dumps(sorted(ids))


def test_no_file_that_our_own_commands_wrote_is_offered_as_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "renamed.csv").write_text(",".join(columns([])) + "\n", encoding="utf-8")
    (tmp_path / "probe.json").write_text(json.dumps({"schema": 1}, indent=2), encoding="utf-8")
    (tmp_path / "run-metrics.parquet").write_bytes(b"PAR1")
    assert verbs._data_nearby() == ()
    own = ("rank.csv", "rows.json", "rows.parquet")
    (tmp_path / own[0]).write_text("kind,t\na,b\n", encoding="utf-8")
    (tmp_path / own[1]).write_text('[{"text": "schema"}]', encoding="utf-8")
    (tmp_path / own[2]).write_bytes(b"PAR1")
    assert sorted(verbs._data_nearby()) == sorted(own)
