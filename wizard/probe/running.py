"""The one seam for commands of others: run in a child, with a time limit, what they said kept."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TypeAlias

OUTPUT_LIMIT_BYTES = 16 * 1024**2
"""More than any of these commands has to say."""
GRACE_SECONDS = 1.0
LISTEN_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command came to."""

    code: int | None
    """Exit code, negative for a signal; None when it never started, or did not end in time."""
    out: str = ""
    err: str = ""
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        """It started, ended in time, and said it went well."""
        return self.code == 0

    @property
    def missing(self) -> bool:
        """There is no such command."""
        return self.code is None and not self.timed_out


Run: TypeAlias = Callable[[Sequence[str], float], Ran]
"""(command, limit in seconds) → what it came to. Never raises, never waits much longer."""


def run(
    command: Sequence[str], limit_seconds: float, *, heard: Callable[[str], None] | None = None
) -> Ran:
    """Run a command without a shell, in its own session, in the C locale.

    heard: called with everything said so far, each time whole lines have been added.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, "PYTHONSAFEPATH": "1", "LC_ALL": "C.UTF-8"},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Ran(None, "", str(error))
        finished = _wait(child, limit_seconds, out, heard)
        code = child.returncode if finished else None
        return Ran(code, _text(out), _text(err), timed_out=not finished)


def ask_child(command: Sequence[str], limit_seconds: float) -> tuple[str, bool]:
    """(what a child printed, whether it ended by itself); what it said before a hang is kept."""
    ran = run(command, limit_seconds)
    return ran.out, not ran.timed_out


def _text(file: IO[bytes]) -> str:
    # The child writes at the same place in the same file: reading must not move it.
    return os.pread(file.fileno(), OUTPUT_LIMIT_BYTES, 0).decode("utf-8", "replace")


def _wait(
    child: subprocess.Popen[bytes],
    limit_seconds: float,
    out: IO[bytes],
    heard: Callable[[str], None] | None,
) -> bool:
    """Whether the child ended in time."""
    deadline = time.monotonic() + limit_seconds
    said_characters = 0
    while True:
        left_seconds = deadline - time.monotonic()
        turn_seconds = left_seconds if heard is None else min(left_seconds, LISTEN_SECONDS)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, turn_seconds))
            return True
        if left_seconds <= turn_seconds:
            return _kill(child)
        text = _text(out)
        whole = text[: text.rfind("\n") + 1]
        if heard is not None and len(whole) > said_characters:
            said_characters = len(whole)
            heard(whole)


def _kill(child: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    # A process stuck inside the driver cannot be killed; it is left, not waited for.
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(GRACE_SECONDS)
    return False
