"""The life of a real run: two CPU ranks train a tiny model while its world is taken away."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.events import EXIT_OK, EXIT_STOPPED
from tests.runner.following import PATIENCE_SECONDS, at_step, ended, follow_to
from tests.runner.waiting import until
from wizard.runner import process, stop
from wizard.runner.folder import is_alive, read_json
from wizard.runner.follow import Follower
from wizard.runner.launch import LaunchRecord, start

pytestmark = pytest.mark.engine

ENDLESS = 100_000
"""Steps of a run that a test ends itself."""


def test_the_run_finishes_and_its_end_is_written_when_its_starter_and_run_sh_are_killed(
    make: Callable[..., Path],
) -> None:
    folder = make(40)
    code = (
        "import os, pathlib, signal, sys\n"
        "from wizard.runner.launch import start\n"
        "start(pathlib.Path(sys.argv[1]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, folder], check=False)
    assert killed.returncode == -signal.SIGKILL
    at_step(folder, 2)
    launcher = int(read_json(folder / "launch.json")["pid"])
    os.kill(launcher, signal.SIGKILL)
    until(lambda: process.start_time(launcher) is None)
    assert is_alive(folder)
    state = ended(folder)
    assert (state.exit_code, state.phase) == (EXIT_OK, "done")
    assert (state.step, state.total_steps) == (40, 40)
    assert {rank.exit_code for rank in state.ranks.values()} == {EXIT_OK}
    assert read_json(folder / "state.json")["exit_code"] == EXIT_OK
    assert (folder / "model" / "adapter_model.safetensors").is_file()
    stages = state.stage_seconds(0.0)
    assert {"fetching", "preparing", "training", "saving"} <= stages.keys()


def test_a_stopped_run_goes_on_where_it_stopped(make: Callable[..., Path]) -> None:
    folder = make(ENDLESS, save_steps=ENDLESS)
    start(folder)
    at_step(folder, 3)
    stop.request(folder)
    stopped = ended(folder)
    assert (stopped.exit_code, stopped.phase) == (EXIT_STOPPED, "stopped")
    last = stopped.step
    assert last is not None
    text = (folder / "spec.toml").read_text()
    assert f"max_steps = {ENDLESS}" in text
    (folder / "spec.toml").write_text(
        text.replace(f"max_steps = {ENDLESS}", f"max_steps = {last + 3}")
    )
    start(folder, "--resume")
    state = ended(folder)
    assert (state.exit_code, state.attempt, state.step) == (EXIT_OK, 1, last + 3)
    steps = [step for step, _ in state.losses]
    assert steps == list(range(1, last + 4))
    assert "spec.toml was edited" in (folder / "logs" / "launcher.log").read_text()


def test_a_killed_rank_is_named_and_the_run_goes_on_from_its_checkpoint(
    make: Callable[..., Path],
) -> None:
    folder = make(60, save_steps=10)
    start(folder)
    state = follow_to(folder, lambda state: state.saved and len(state.ranks) == 2)
    os.kill(int(state.ranks[1].pid or 0), signal.SIGKILL)
    state = ended(folder)
    assert (state.exit_code, state.attempt, state.step) == (EXIT_OK, 1, 60)
    warnings = [note.text for note in state.warnings]
    # torchrun tells the signal only of the rank whose end it saw first.
    assert any("rank 1 was ended" in text for text in warnings), warnings


def test_e07_stopping_now_leaves_no_process_behind(make: Callable[..., Path]) -> None:
    folder = make(ENDLESS, save_steps=ENDLESS)
    record: LaunchRecord = start(folder)
    state = at_step(folder, 2)
    pids = [int(rank.pid or 0) for rank in state.ranks.values()]
    stop.now(folder)
    state = ended(folder)
    assert state.exit_code == EXIT_STOPPED
    assert state.failure is None, "it was asked to"
    assert [rank.phase for rank in state.ranks.values()] == ["stopped", "stopped"]
    until(lambda: not any(process.start_time(pid) for pid in [*pids, record.pid]))


def test_a_script_copied_alone_trains_elsewhere(make: Callable[..., Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    shutil.copy(make(4) / "run.sh", elsewhere)
    done = subprocess.run(
        ["bash", str(elsewhere / "run.sh")],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == EXIT_OK, done.stderr
    assert (elsewhere / "model" / "adapter_model.safetensors").is_file()
    result = json.loads((elsewhere / "result.json").read_text())
    assert result["measured"]["steps"] == 4
    said = done.stderr.splitlines()
    assert {"loading model", "training"} <= set(said)
    assert any(re.fullmatch(r"step 4 of 4, loss \d+\.\d{4}, .* s a step", line) for line in said)
    assert said[-1].startswith("done after ")
    assert said[-1].endswith(f"the result is {elsewhere}/model")
    assert dataclasses.asdict(Follower(elsewhere).poll())["exit_code"] == EXIT_OK
