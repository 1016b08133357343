"""Where a dashboard gets what it shows, and how it asks a run to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from wizard.dashboard.state import RunState

LogOf = int | Literal["all"] | None
"""A rank's number, all ranks, or the launcher."""


class Follower(Protocol):
    """What reads a run."""

    def poll(self, seconds: float | None = None) -> RunState:
        """The newest state; with `seconds` a long history is read a part at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Callables that may be slow: they are called in a thread; and a clock in unix seconds."""

    follow: Callable[[Path], Follower]
    stop: Callable[[Path, bool], None]
    resume: Callable[[Path], None]
    """Goes on with a run that ended before its last step."""
    run_details: Callable[[Path], Mapping[str, Any]]
    read_log: Callable[[Path, LogOf], tuple[str, ...]]
    clock: Callable[[], float]
    replay: Callable[[Path], tuple[RunState, ...]]
    """States of a run that ended, from its beginning to its end."""
    keep_picture: Callable[[str, str], Path]
    """Name and text → the new file that holds it."""
