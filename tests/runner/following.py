"""Following a real run until something is true of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.runner.waiting import until
from wizard.dashboard.state import RunState
from wizard.runner.follow import Follower

PATIENCE_SECONDS = 480.0


def follow_to(folder: Path, condition: Callable[[RunState], Any]) -> RunState:
    """The first state of which the condition is true; fails when the run ends before."""
    follower = Follower(folder)

    def reached() -> RunState | None:
        state = follower.poll()
        return state if condition(state) or state.ended else None

    state = until(reached, PATIENCE_SECONDS)
    assert state is not None
    assert condition(state), (folder / "logs" / "launcher.log").read_text()
    return state


def ended(folder: Path) -> RunState:
    """The state of a run at its end."""
    return follow_to(folder, lambda state: state.ended)


def at_step(folder: Path, number: int) -> RunState:
    """The state once both ranks train and this step is made."""
    return follow_to(folder, lambda state: len(state.ranks) == 2 and (state.step or 0) >= number)
