"""Tells the user's own program that a run ended or stands still. Standard library only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

from engine.theirs import why

VARIABLE = "TUNEWRIGHT_NOTIFY"
"""JSON list: a program and its arguments, in which {run}, {event} and {message} are replaced."""
LIMIT_SECONDS = 20.0


def notify(run: Path, event: str, message: str, *, wait: bool) -> None:
    """Run the program that the environment names, if any: never a shell, never an error of ours.

    `event` is finished, stopped, failed or stalled. What the program prints lands in
    logs/notify.log; it is waited for, for a while, only where the caller is about to end.
    """
    command = _command(os.environ.get(VARIABLE, ""))
    if not command:
        return
    words = {"{run}": run.resolve().name, "{event}": event, "{message}": message}
    for mark, text in words.items():
        command = [part.replace(mark, text.replace("\0", "")) for part in command]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        (run / "logs").mkdir(exist_ok=True)
        with (run / "logs" / "notify.log").open("ab") as log:
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                log.write(f"{command[0]}: {why(error)}\n".encode())
                return
            if wait:
                child.wait(LIMIT_SECONDS)


def _command(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    usable = isinstance(found, list) and found and all(isinstance(part, str) for part in found)
    return found if usable else []
