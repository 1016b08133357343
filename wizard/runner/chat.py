"""Talks to the child process that loads a model and answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from wizard.problem import Problem, ProblemError

Message = dict[str, str]


class ChatChild:
    """A model that answers, kept loaded between questions."""

    def __init__(self, folder: Path, *, base: bool = False) -> None:
        """Load a run's model, or the untuned one it started from."""
        command = [sys.executable, "-m", "engine.chat", str(folder)]
        self._process = subprocess.Popen(
            [*command, "--base"] if base else command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            env={**os.environ, "PYTHONSAFEPATH": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        )

    def ask(self, messages: Sequence[Message], max_new_tokens: int = 256) -> Iterator[str]:
        """Pieces of the answer as they come.

        Raises ProblemError when the child cannot answer.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request = {"messages": list(messages), "max_new_tokens": max_new_tokens}
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        for line in self._process.stdout:
            reply = json.loads(line)
            if "error" in reply:
                raise ProblemError(Problem(what=str(reply["error"])))
            if reply.get("done"):
                return
            yield str(reply.get("text", ""))
        raise ProblemError(Problem(what="the model process ended before it answered"))

    def close(self) -> None:
        """End the child."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
