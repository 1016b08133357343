"""Data sets on hubs: fetched once by a child process, before their rows are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from engine.theirs import quoted
from wizard.problem import Problem, ProblemError

CHILD = (sys.executable, "-m", "engine.hub")


_known: dict[str, tuple[str, tuple[Path, ...]]] = {}


def fetched(name: str) -> tuple[str, tuple[Path, ...]]:
    """The name of a set at its commit, such as `hf:org/name@commit:train`, and its files here.

    Asked once in the life of this program. Raises ProblemError (exit code 4).
    """
    if name not in _known:
        exactly, files = _fetch(name)
        _known[name] = _known[exactly] = exactly, files
    return _known[name]


def _fetch(name: str) -> tuple[str, tuple[Path, ...]]:
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as noise:
        said = subprocess.run(
            [*CHILD, name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=noise,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            check=False,
        ).stdout.splitlines()
        noise.seek(0)
        tail = noise.read().strip().rpartition("\n")[2]
    last = _last(said)
    if last.get("kind") != "set":
        what = str(last.get("message") or f"fetching it ended without a word: {quoted(tail)}")
        raise ProblemError(Problem(what=what, where=name, exit_code=4))
    files = last.get("files")
    assert isinstance(files, list)
    return str(last["name"]), tuple(map(Path, files))


def _last(lines: list[str]) -> dict[str, object]:
    try:
        value = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
