"""`tunewright plan`: readable in 80 columns, with times, costs, ways out and sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wizard.cli import main


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    row = {"instruction": "say it", "output": "it is " + "said " * 300}
    path.write_text("\n".join(json.dumps(row) for _ in range(400)), encoding="utf-8")
    return path


def planned(capsys: pytest.CaptureFixture[str], rows: Path, *options: str) -> tuple[int, str, str]:
    whole = () if "--json" in options else ("--all",)
    code = main(["plan", "--data", str(rows), *options, *whole])
    found = capsys.readouterr()
    return code, found.out, found.err


def test_a_plan_is_told_within_80_columns(capsys: pytest.CaptureFixture[str], rows: Path) -> None:
    options = ("--model", "Qwen/Qwen3-8B", "--machine", "8xH100-SXM", "--price", "2.49/h")
    code, out, _ = planned(capsys, rows, *options)
    assert code == 0
    words = [line for line in out.splitlines() if str(rows) not in line]
    assert max(len(line) for line in words) <= 80
    assert " 1. LoRA r16 bf16, DDP on 8 devices" in out
    assert "a step of the longest rows" in out
    assert "costs about" in out
    assert "source: QLoRA, arXiv:2305.14314" in out
    assert "the optimizer's states start" in out
    assert "disk, with all checkpoints" in out
    assert "--goal fewest-devices: LoRA r16 bf16, one device" in out
    assert "Smallest shipped machine" not in out


def test_without_all_a_plan_is_told_in_a_screen(
    capsys: pytest.CaptureFixture[str], rows: Path
) -> None:
    options = ("--model", "Qwen/Qwen3-8B", "--machine", "1x NVIDIA GeForce RTX 4090")
    _, whole, _ = planned(capsys, rows, *options)
    assert main(["plan", "--data", str(rows), *options]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 24 < len(whole.splitlines())
    assert max(len(line) for line in out.splitlines() if str(rows) not in line) <= 80
    numbers = [n for n in range(1, 12) if f"\n{n:2}. " in whole]
    assert numbers == [n for n in range(1, 12) if f"\n{n:2}. " in out], "every plan is there"
    assert "for: keeps what the model knows" in out
    assert "--all adds" in out


def test_what_cannot_tune_all_weights_is_told_the_smallest_machine_that_can(
    capsys: pytest.CaptureFixture[str], rows: Path
) -> None:
    options = ("--model", "Qwen/Qwen3-8B", "--machine", "1x NVIDIA GeForce RTX 4090")
    code, out, _ = planned(capsys, rows, *options)
    assert code == 0
    joined = " ".join(out.split())
    assert "would fit: devices of at least" in joined
    assert "Smallest shipped machine that tunes all weights: " in joined


def test_the_same_is_in_the_document(capsys: pytest.CaptureFixture[str], rows: Path) -> None:
    options = ("--model", "Qwen/Qwen3-8B", "--machine", "8xH100-SXM", "--price", "2", "--json")
    code, out, _ = planned(capsys, rows, *options)
    assert code == 0
    best = json.loads(out)["plans"][0]
    assert best["cost"] > 0
    assert sum(best["step_terms"].values()) == pytest.approx(best["step_seconds"])
    assert best["exact_rungs"] <= len(best["rungs"])


@pytest.mark.parametrize("price", ["", "two", "-1", "inf", "nan/h"])
def test_a_price_that_is_none_is_refused(
    capsys: pytest.CaptureFixture[str], rows: Path, price: str
) -> None:
    code, _, err = planned(capsys, rows, "--model", "Qwen/Qwen3-8B", f"--price={price}")
    assert code == 2
    assert "--price takes a price for an hour of one device" in err


def test_what_a_fixed_setting_costs_is_told(capsys: pytest.CaptureFixture[str], rows: Path) -> None:
    machine = ("--model", "Qwen/Qwen3-8B", "--machine", "8xH100-SXM")
    _, out, _ = planned(capsys, rows, *machine, "--set", "strategy=single")
    joined = " ".join(out.split())
    assert "Without strategy fixed: LoRA r16 bf16, DDP on 8 devices, fits" in joined
    _, out, _ = planned(capsys, rows, *machine, "--set", "learning_rate=1e-4")
    assert " fixed: " not in out
