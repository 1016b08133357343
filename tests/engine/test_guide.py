"""The user guide: every command and every program in it, run in its order as a user would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide.md"
BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.M | re.S)
EXPECTED = {"tunewright report first": "first-report.html", "tunewright pack first": "first.tar.gz"}
"""What a command leaves in the folder it was called in."""


def steps() -> Iterator[tuple[str, str]]:
    """(language, command or program), as they stand in the guide."""
    for language, text in BLOCK.findall(GUIDE.read_text(encoding="utf-8")):
        if language == "python":
            yield language, text
        else:
            yield from ((language, line) for line in text.splitlines() if line.strip())


def test_every_command_of_the_guide_does_what_it_says(tmp_path: Path) -> None:
    make.model_folder(tmp_path / "my-model")
    make.data_file(tmp_path / "train.jsonl", rows=40)
    found = list(steps())
    assert len(found) >= 29
    for language, text in found:
        command = ["bash", "-c", text] if language == "bash" else [sys.executable, "-c", text]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        if "--json" in text:
            assert json.loads(done.stdout)["schema"] >= 1
        if text in EXPECTED:
            assert (tmp_path / EXPECTED[text]).is_file(), done.stdout
