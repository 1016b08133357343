"""`run --smoke`: a plan is tried with its longest rows, by the command that a user types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.events import EXIT_OK, decode_all
from engine.spec import loads
from tests.runner.following import PATIENCE_SECONDS
from wizard.runner.folder import is_alive, summary

pytestmark = pytest.mark.engine


def test_a_smoke_test_tells_memory_beside_the_plan_and_leaves_the_run_to_be_started(
    world: Path, tmp_path: Path
) -> None:
    words = [
        *("--model", str(world / "tiny"), "--data", str(world / "rows.jsonl")),
        *("--runs", str(tmp_path)),
        *("--name", "tried", "--set", "max_length=64", "--set", "method=lora"),
        *("--set", "max_steps=50", "--no-history", "--smoke", "--yes", "--json"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "wizard", "run", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == EXIT_OK, done.stderr
    told, folder = json.loads(done.stdout), tmp_path / "tried"
    assert (told["exit_code"], told["folder"]) == (EXIT_OK, str(folder))
    written = json.loads((folder / "smoke.json").read_text())
    assert told["smoke"] == written
    assert written["measured"]["steps"] == 2
    assert written["predicted"]
    lengths = json.loads((folder / "prepared/report.json").read_text())["lengths"]
    steps = [
        event
        for rank in folder.glob("events/rank-*.jsonl")
        for event in decode_all(rank.read_bytes())
        if event["kind"] == "step"
    ]
    batch = loads((folder / "spec.toml").read_text()).training.effective_batch_size
    rows = written["measured"]["steps"] * batch
    assert sum(step["tokens"] for step in steps) > rows * lengths["min"]
    assert not any((folder / name).exists() for name in ("model", "result.json"))
    assert (is_alive(folder), summary(folder).state) == (False, "its smoke test passed")
