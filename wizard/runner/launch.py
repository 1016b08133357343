"""Starting a run: run.sh in its own session, its output in a file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.theirs import quoted, why
from wizard.problem import Problem, ProblemError
from wizard.runner import process
from wizard.runner.folder import is_alive, read_json

__all__ = ["LaunchRecord", "is_alive", "start"]

APPEARS_SECONDS = 30.0
SPOKEN_BY_BASH = re.compile(r"^(\S*run\.sh|bash): ")
"""How a line begins that is none of ours."""
NOTIFY = "TUNEWRIGHT_NOTIFY"
"""Read by `engine.notify`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LaunchRecord:
    """Who runs a run."""

    folder: Path
    pid: int
    start_time: int
    """Clock ticks since boot."""
    boot_id: str


def start(folder: Path, *options: str, notify: Sequence[str] = ()) -> LaunchRecord:
    """Start run.sh and return when it has said who it is.

    `options` are run.sh's own, such as `--resume`; `notify` is the program, with its arguments,
    that is told of its end: it goes into the environment, never into a file of the run. The run
    outlives this process, whatever ends it. Raises ProblemError when the script ends before that,
    with its last line.
    """
    before = read_json(folder / "launch.json")
    log = folder / "logs" / "launcher.log"
    try:
        log.parent.mkdir(mode=0o700, exist_ok=True)
        with log.open("ab") as output:
            said_before = output.tell()
            child = subprocess.Popen(
                ["bash", str(folder / "run.sh"), *options],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=folder,
                env={**os.environ, **({NOTIFY: json.dumps(list(notify))} if notify else {})},
            )
    except OSError as error:
        raise ProblemError(
            Problem(what=f"cannot start the run: {why(error)}", where=str(folder))
        ) from None
    return _wait(folder, child, before, log, said_before)


def _wait(
    folder: Path, child: subprocess.Popen[bytes], before: object, log: Path, said_before: int
) -> LaunchRecord:
    until = time.monotonic() + APPEARS_SECONDS
    while time.monotonic() < until:
        launch = read_json(folder / "launch.json")
        if launch.get("pid") == child.pid and launch != before:
            return LaunchRecord(
                folder=folder,
                pid=child.pid,
                start_time=int(launch["start_time"]),
                boot_id=str(launch["boot_id"]),
            )
        if child.poll() is not None:
            raise _ended(folder, child.returncode, log, said_before)
        time.sleep(0.02)
    process.end({child.pid: process.start_time(child.pid) or 0}, grace_seconds=2.0)
    raise ProblemError(
        Problem(what=f"run.sh did not begin within {APPEARS_SECONDS:.0f} s", where=str(log))
    )


def _ended(folder: Path, code: int, log: Path, said_before: int) -> ProblemError:
    said = log.read_bytes()[said_before:].decode("utf-8", "replace").strip().splitlines()
    what = f"run.sh ended with {code}"
    if said:
        of_bash = SPOKEN_BY_BASH.search(said[-1])
        what = f"run.sh ended with {code}: {quoted(said[-1]) if of_bash else said[-1]}"
    return ProblemError(Problem(what=what, where=str(folder)))
