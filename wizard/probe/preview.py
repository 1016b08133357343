"""What a data set would become with a model's tokenizer, told line by line by a child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from engine.theirs import quoted
from wizard.problem import Problem, ProblemError

CHILD = (sys.executable, "-m", "engine.prepare", "--preview")


class Preview:
    """A child that reads data; what it says is described in `engine.preview`."""

    def __init__(self, data: str, tokenizer: Path, settings: Mapping[str, Any], samples: int = 3):
        """Start it. `tokenizer` is a model's folder; settings are those of a spec, checked."""
        said = {**settings, "data": data, "model": str(tokenizer), "samples": samples}
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*CHILD, *(f"{key}={value}" for key, value in said.items() if value is not None)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"},
        )

    def lines(self) -> Iterator[dict[str, Any]]:
        """What it says, as it comes; a report is the last of it.

        Raises ProblemError when data or model cannot be used.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue
            kind = said.get("kind")
            if kind == "failed":
                code = 4 if said.get("failure") == "bad_data" else 1
                raise ProblemError(Problem(what=str(said.get("message")), exit_code=code))
            yield said
            if kind == "report":
                return
        raise ProblemError(Problem(what=f"the preview ended before its report{self._tail()}"))

    def _tail(self) -> str:
        self._process.wait()
        self._said.seek(0)
        last = self._said.read().strip().rpartition("\n")[2]
        return f": {quoted(last)}" if last else f" with code {self._process.returncode}"

    def close(self) -> None:
        """End the child, whatever it is doing."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
