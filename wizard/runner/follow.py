"""Following a run: reads what its writers added since last time and folds it."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.events import decode, split
from wizard.dashboard.state import RunState, fold, with_status
from wizard.runner.folder import is_alive, read_json

CHUNK_BYTES = 1024 * 1024

Event = Mapping[str, Any]


class Follower:
    """Reads a run folder from outside; it never writes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._state = RunState(name=folder.name)
        self._streams: dict[Path, _Stream] = {}

    def poll(self) -> RunState:
        """The state after everything written so far."""
        alive = is_alive(self.folder)
        for path in sorted((self.folder / "events").glob("*.jsonl")):
            self._streams.setdefault(path, _Stream(path))
        # Ranks are merged by time, so that an attempt is over before the next one begins.
        merged = heapq.merge(*(s.new_events() for s in self._streams.values()), key=_time)
        for event in merged:
            self._state = fold(self._state, event)
        state = with_status(self._state, read_json(self.folder / "state.json"))
        launched = (self.folder / "launch.json").exists()
        return replace(state, lost=launched and not alive and state.exit_code is None)


class _Stream:
    """One writer's file, read on from where the last whole line ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._rest = b""

    def new_events(self) -> Iterator[Event]:
        """Events in whole lines that were not read before."""
        try:
            file = self._path.open("rb")
        except OSError:
            return
        with file:
            status = os.fstat(file.fileno())
            if status.st_ino != self._inode or status.st_size < self._offset:
                # Rotated, cut or made anew: what is there now was not read yet.
                self._inode, self._offset, self._rest = status.st_ino, 0, b""
            file.seek(self._offset)
            while chunk := file.read(CHUNK_BYTES):
                self._offset += len(chunk)
                lines, self._rest = split(self._rest + chunk)
                yield from (event for line in lines if (event := decode(line)) is not None)


def _time(event: Event) -> float:
    return float(event["t"])
