"""What is said in the terminal after the app was left."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from wizard import paths
from wizard.commands.wizard import tell_left
from wizard.runner import process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose launcher is this very process."""
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path))
    folder = paths.runs() / "my run"
    folder.mkdir(parents=True)
    launch = {
        "schema": 1,
        "pid": os.getpid(),
        "start_time": process.start_time(os.getpid()),
        "boot_id": process.boot_id(),
    }
    (folder / "launch.json").write_text(json.dumps(launch), encoding="utf-8")
    return folder


def test_a_run_that_was_left_alive_is_named_with_the_way_back(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not tell_left(folder).ended

    assert capsys.readouterr().err == "left; the run goes on: tunewright watch 'my run'\n"


def test_nothing_is_said_of_a_run_that_has_ended(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = {"schema": 1, "phase": "done", "exit_code": 0}
    (folder / "state.json").write_text(json.dumps(status), encoding="utf-8")

    assert tell_left(folder).exit_code == 0

    assert capsys.readouterr().err == ""
