"""What run.sh starts early runs when it is let, and never without run.sh."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine.events import EXIT_COMM
from tests.runner.waiting import until

pytestmark = pytest.mark.engine

MODULE = """
from pathlib import Path

Path("loaded").touch()

def main(given):
    Path("said").write_text(" ".join(given))
    return 7
"""


def early(folder: Path, pid: int) -> subprocess.Popen[bytes]:
    """A module that waits for the file `go`, its libraries loaded."""
    (folder / "module_of_a_test.py").write_text(MODULE)
    words = ["-m", "engine.after", "go", str(pid), "module_of_a_test", "--two", "words here"]
    process = subprocess.Popen([sys.executable, *words], cwd=folder)
    until((folder / "loaded").exists)
    return process


def test_a_module_is_loaded_early_and_runs_when_the_file_is_there(tmp_path: Path) -> None:
    launcher = subprocess.Popen(["sleep", "60"])
    try:
        process = early(tmp_path, launcher.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)
        assert not (tmp_path / "said").exists()
        (tmp_path / "go").touch()
        assert process.wait(20) == 7
        assert (tmp_path / "said").read_text() == "--two words here"
    finally:
        launcher.kill()
        launcher.wait()


def test_nothing_runs_when_the_process_that_would_say_so_is_gone(tmp_path: Path) -> None:
    launcher = subprocess.Popen(["sleep", "60"])
    process = early(tmp_path, launcher.pid)
    launcher.kill()
    launcher.wait()
    assert process.wait(20) == EXIT_COMM
    assert not (tmp_path / "said").exists()
