"""A log read for the command line: its last lines, however many, and those that come."""

from __future__ import annotations

import os
from pathlib import Path

from wizard.runner.logs import newest

LINE_BYTES = 1024
"""What a line takes, generously."""
MOST_BYTES = 64 * 1024**2
CHUNK_BYTES = 1024 * 1024
LONGEST_BYTES = 64 * 1024
"""A line without an end is shown in pieces of this size."""


def last_lines(path: Path, lines: int) -> list[str]:
    """The last lines of a log; empty when it cannot be read."""
    want = min(max(lines, 64) * LINE_BYTES, MOST_BYTES)
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - want))
            text = stream.read(want).decode("utf-8", "replace")
    except OSError:
        return []
    return [line for raw in text.split("\n") if (line := _shown(raw))][-lines:] if lines else []


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
