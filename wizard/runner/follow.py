"""Following a run: reads what its writers added since last time and folds it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from wizard.dashboard.state import RunState, fold_all, with_present, with_status
from wizard.runner.folder import is_alive, read_json
from wizard.runner.nodes import title
from wizard.runner.streams import GLANCE_BYTES, Event, Streams

BATCH_EVENTS = 512


class Follower:
    """Reads a run folder from outside; it never writes there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._streams = Streams(folder)
        self._state = RunState(name=title(folder))
        self._unread: Iterator[Event] | None = None
        self._glance: _Glance | None = None
        self._begun = False

    def poll(self, seconds: float | None = None) -> RunState:
        """The state after everything written so far.

        With `seconds` it folds for about that long at most. A long run then shows its present at
        once, from the ends of its streams; `history_share` is below 1 until the rest is read.
        """
        alive = is_alive(self.folder)
        if not self._begun:
            self._begun = True
            if seconds is not None and self._streams.size_bytes() > 2 * GLANCE_BYTES:
                self._glance = _Glance(self.folder)
                return self._with_end(self._glance.state(self._state, 0.0), alive)
        # Without a glance a part of what is unread would be shown as if it were the present.
        limited = seconds is not None and self._glance is not None
        if self._fold(time.monotonic() + (seconds or 0.0) if limited else None):
            self._glance = None
        state = self._state
        if self._glance is not None:
            share = self._streams.read_bytes() / max(self._streams.size_bytes(), 1)
            state = self._glance.state(state, min(share, 0.99))
        return self._with_end(state, alive)

    def _fold(self, until: float | None) -> bool:
        """Fold what is unread; whether all was, before the time was over."""
        if self._unread is None:
            self._unread = self._streams.merged()
        while batch := list(islice(self._unread, BATCH_EVENTS)):
            self._state = fold_all(self._state, batch)
            if until is not None and time.monotonic() > until:
                return False
        self._unread = None
        return True

    def _with_end(self, state: RunState, alive: bool) -> RunState:
        state = with_status(state, read_json(self.folder / "state.json"))
        launched = (self.folder / "launch.json").exists()
        lost = launched and not alive and state.exit_code is None
        return replace(state, lost=lost, disk_free_bytes=_disk_free_bytes(self.folder))


class _Glance:
    """The present of a long run, from the ends of its streams."""

    def __init__(self, folder: Path) -> None:
        self._streams = Streams(folder)
        self._state = fold_all(RunState(name=title(folder)), self._streams.ends())

    def state(self, past: RunState, share: float) -> RunState:
        """The newest state, and as much of its history as was read."""
        self._state = fold_all(self._state, self._streams.merged())
        return with_present(past, self._state, share)


def frames(folder: Path, most: int = 200) -> tuple[RunState, ...]:
    """States of a run that ended, from its beginning to its end, about as many events apart."""
    streams = Streams(folder)
    batch = max(1, streams.size_bytes() // (250 * most))
    state, unread = RunState(name=title(folder)), streams.merged()
    found: list[RunState] = []
    while events := list(islice(unread, batch)):
        state = fold_all(state, events)
        found.append(state)
        if len(found) > 2 * most:
            found, batch = found[1::2], 2 * batch
    return (*found[:-1], Follower(folder).poll()) if found else ()


def _disk_free_bytes(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
