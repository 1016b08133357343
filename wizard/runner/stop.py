"""Stopping a run: with a checkpoint by asking, or at once by ending its processes."""

from __future__ import annotations

import os
from pathlib import Path

from engine.theirs import why
from wizard.problem import Problem, ProblemError
from wizard.runner import process
from wizard.runner.folder import host_elsewhere, is_alive, read_json

GRACE_SECONDS = 10.0


NOW = b"now"
"""What a rank that is told to end looks for before it saves, as `engine.failure` says."""


def request(folder: Path, *, text: bytes = b"") -> None:
    """Ask a run to save and end; nothing is signalled. `text` goes into the stop file.

    Raises ProblemError when it does not run, or the folder cannot be written.
    """
    _require_alive(folder)
    try:
        descriptor = os.open(folder / "stop", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ProblemError(
            Problem(what=f"cannot ask the run to stop: {why(error)}", where=str(folder))
        ) from None


def now(folder: Path, *, grace_seconds: float = GRACE_SECONDS) -> None:
    """End the training processes of a run; steps since the last checkpoint are lost.

    Only processes recorded by the run, with the start time they had, are signalled; the script
    is left to write how it ended. Raises ProblemError when the run does not run, or runs on
    another machine, whose processes can only be asked.
    """
    host = host_elsewhere(folder)
    request(folder, text=NOW if host is None else b"")
    if host is not None:
        raise ProblemError(
            Problem(
                what=f"this run is on {host}: it was asked to save and end",
                where=str(folder),
                fix="to end it at once, stop it on that machine",
                exit_code=1,
            )
        )
    state = read_json(folder / "state.json")
    recorded = state.get("processes")
    found = {int(pid): started for pid, started in _pairs(recorded) if pid.isdigit()}
    stage, started = state.get("stage_pid"), state.get("stage_start_time")
    if isinstance(stage, int) and isinstance(started, int):
        found[stage] = started
        process.terminate_group(stage, started)
    process.end(found, grace_seconds)


def _pairs(recorded: object) -> list[tuple[str, int]]:
    if not isinstance(recorded, dict):
        return []
    return [(str(pid), t) for pid, t in recorded.items() if isinstance(t, int)]


def _require_alive(folder: Path) -> None:
    if not is_alive(folder):
        raise ProblemError(Problem(what="this run is not running", where=str(folder), exit_code=1))
