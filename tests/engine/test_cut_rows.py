"""The planned length holds every row of its data, and a row that is cut is never cut in silence."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import prepare
from engine.events import decode_all
from engine.record import write_json
from engine.spec import dumps
from tests.fakes import machines
from tests.fakes.tiny import make
from wizard.answers import Answers
from wizard.dashboard.state import RunState, fold
from wizard.facts import Model
from wizard.plan import Plan
from wizard.planner import plans
from wizard.probe.dataset import read_dataset

pytestmark = pytest.mark.engine

TEXTS = {
    "Chinese": "人人生而自由,在尊严和权利上一律平等。",
    "digits": "31415926535897932384",
    "emoji": "👩‍👩‍👧‍👦🎉",
    "base64": "aGVsbG8gd29ybGQgaGVsbG8gd29ybGQgaGVsbG8gd29ybGQ=",
}


def planned(data: Path, vocabulary: int, **settings: Any) -> Plan:
    model = Model(
        name=str(data.parent / "model"),
        path=str(data.parent / "model"),
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        vocab_size=vocabulary,
        parameters=10**6,
    )
    facts = replace(machines.machine("cpu"), model=model, dataset=read_dataset(str(data)))
    return plans(facts, Answers(settings=settings))[0]


def prepared(folder: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The report of `engine.prepare`, run as run.sh runs it."""
    make.tokenizer().save_pretrained(folder / "model")
    where = {"path": str(folder / "model"), "revision": None, "source": "local"}
    write_json(folder / "fetched.json", where)
    (folder / "spec.toml").write_text(dumps(plan.spec), encoding="utf-8")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["engine.prepare", "spec.toml"])
    assert prepare.main() == 0
    report: dict[str, Any] = json.loads((folder / "prepared/report.json").read_text())
    return report


def write_rows(path: Path, text: str, turns: int = 2) -> Path:
    roles = ("user", "assistant")
    row = {"messages": [{"role": roles[n % 2], "content": text} for n in range(turns)]}
    path.write_text((json.dumps(row, ensure_ascii=False) + "\n") * 2, encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", TEXTS)
def test_the_planned_length_holds_text_with_a_token_for_each_byte(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (TEXTS[kind] * 30)[: 600 if kind in ("digits", "base64") else 300]
    data = write_rows(tmp_path / "rows.jsonl", text)
    plan = planned(data, 50_000, effective_batch_size=1)
    assert prepared(tmp_path, plan, monkeypatch)["cut_rows"] == 0


@pytest.mark.parametrize("text", ["ok", "some ordinary words"])
def test_the_planned_length_holds_many_short_turns(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", text, turns=40)
    plan = planned(data, 272, effective_batch_size=1)
    assert prepared(tmp_path, plan, monkeypatch)["cut_rows"] == 0


def test_rows_that_are_cut_are_told_where_the_dashboard_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_rows(tmp_path / "rows.jsonl", "a long answer " * 10)
    plan = planned(data, 272, effective_batch_size=1, max_length=250)
    assert any(problem.where == "max_length" for problem in plan.problems)
    assert prepared(tmp_path, plan, monkeypatch)["cut_rows"] == 2

    said = "2 of 2 rows are longer than max_length=250 and cut at the end"
    assert said in capsys.readouterr().err
    state = RunState()
    for event in decode_all((tmp_path / "events/launcher.jsonl").read_bytes()):
        state = fold(state, event)
    assert [said in note.text for note in state.warnings] == [True]
