"""The lines of a run's logs: the last ones, and those that come."""

from __future__ import annotations

import os
from pathlib import Path

TAIL_BYTES = 64 * 1024
TAIL_LINE_BYTES = 1024
MOST_TAIL_BYTES = 64 * 1024**2
CHUNK_BYTES = 1024 * 1024
LONGEST_BYTES = 64 * 1024
"""A line without an end is shown in pieces of this size."""


def tail(folder: Path, rank: int | None, lines: int) -> tuple[str, ...]:
    """The last lines of a rank's newest log, or of the launcher's; empty while there is none.

    torchrun names its folder by chance, so the newest one is meant.
    """
    found = newest(folder, rank)
    if found is None:
        return ()
    want = min(max(TAIL_BYTES, lines * TAIL_LINE_BYTES), MOST_TAIL_BYTES)
    try:
        with found.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - want))
            text = stream.read(want).decode("utf-8", "replace")
    except OSError:
        return ()
    return tuple(line for raw in text.split("\n") if (line := _shown(raw)))[-lines:]


def newest(folder: Path, rank: int | None) -> Path | None:
    """The log that says most about the present; None while there is none."""
    logs = folder / "logs"
    patterns = (
        ("launcher.log", "*-training.log")
        if rank is None
        else (f"*/attempt_*/{rank}/stderr.log", f"*/attempt_*/{rank}/stdout.log")
    )
    found = [path for pattern in patterns for path in logs.glob(pattern)]
    return max(found, key=_changed, default=None)


class Following:
    """Reads on from the end of the newest log; a restart, whose log is another one, is followed."""

    def __init__(self, folder: Path, rank: int | None) -> None:
        self._folder = folder
        self._rank = rank
        self._path = newest(folder, rank)
        self._offset = self._path.stat().st_size if self._path else 0
        self._rest = b""

    def new_lines(self, *, last: bool = False) -> list[str]:
        """Whole lines written since; with `last` also one that was never ended."""
        found = newest(self._folder, self._rank)
        if found != self._path:
            self._path, self._offset, self._rest = found, 0, b""
        if found is None:
            return []
        try:
            with found.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size < self._offset:
                    self._offset, self._rest = 0, b""
                stream.seek(self._offset)
                chunk = stream.read(CHUNK_BYTES)
        except OSError:
            return []
        self._offset += len(chunk)
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        if (last and self._rest) or len(self._rest) > LONGEST_BYTES:
            whole.append(self._rest)
            self._rest = b""
        return [line for raw in whole if (line := _shown(raw.decode("utf-8", "replace")))]


def _shown(line: str) -> str:
    """A progress bar rewrites its line: what counts is what stood there last."""
    line = line.removesuffix("\r").rsplit("\r", 1)[-1]
    return line if line.strip() else ""


def _changed(path: Path) -> tuple[bool, float]:
    """An empty log says nothing: it comes last, however new."""
    try:
        status = path.stat()
    except OSError:
        return False, 0.0
    return status.st_size > 0, status.st_mtime
