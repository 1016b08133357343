"""Where a dashboard gets what it shows, and how it asks a run to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from wizard.dashboard.state import RunState


class Follower(Protocol):
    """What reads a run."""

    def poll(self) -> RunState:
        """The newest state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Callables that may be slow: they are called in a thread; and a clock in unix seconds."""

    follow: Callable[[Path], Follower]
    stop: Callable[[Path, bool], None]
    run_details: Callable[[Path], Mapping[str, Any]]
    read_log: Callable[[Path, int | None], tuple[str, ...]]
    clock: Callable[[], float]
