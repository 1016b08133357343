"""All that a dashboard shows of one moment, and the moments one after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from wizard.dashboard.health import Finding, health
from wizard.dashboard.health_ranks import slowness
from wizard.dashboard.now import clock
from wizard.dashboard.predicted import Predicted, predicted
from wizard.dashboard.source import LogOf, Source
from wizard.dashboard.state import RunState
from wizard.problem import Problem
from wizard.widgets.page import problem_from

POLL_SECONDS, ENDED_POLL_SECONDS, READING_SECONDS = 1.0, 5.0, 0.02
"""Between two looks at a run: while it runs, once it has ended, while its history is read."""
PART_SECONDS = 0.2
"""How long a part of a long history is read before the screen is told."""


@dataclass(frozen=True, kw_only=True, slots=True)
class View:
    """Everything that was read of a run at one moment, and what follows from it."""

    state: RunState = field(default_factory=RunState)
    plan: Predicted = field(default_factory=Predicted)
    log: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    shares: Mapping[int, float] = field(default_factory=dict)
    """Rank → its own work as a multiple of the median of all."""


def view_of(state: RunState, plan: Predicted, log: tuple[str, ...], now: float) -> View:
    """A state with what follows from it."""
    found = health(state, plan, now)
    return View(state=state, plan=plan, log=log, findings=found, shares=slowness(state))


def views(
    run: Path, source: Source, log_of: Callable[[], LogOf], wake: threading.Event
) -> Iterator[View | Problem]:
    """What is read of a run, again and again, or why nothing was; `wake` ends a pause early."""
    follower, plan, pause = None, None, POLL_SECONDS
    while True:
        try:
            follower = follower or source.follow(run)
            plan = plan or source.run_details(run).get("plan")
            log = source.read_log(run, log_of())
            state = follower.poll(PART_SECONDS)
            yield view_of(state, predicted(plan), log, source.clock())
            pause = ENDED_POLL_SECONDS if state.ended else POLL_SECONDS
            pause = READING_SECONDS if state.history_share < 1 else pause
        except Exception as error:
            yield problem_from(error)
        wake.wait(pause)
        wake.clear()


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """A run that ended, shown again."""

    frames: tuple[RunState, ...]
    """At least one."""
    at: int

    @property
    def state(self) -> RunState:
        """The state shown."""
        return self.frames[self.at]

    def moved(self, by: int) -> Replay:
        """Earlier or later, within the run."""
        return replace(self, at=min(max(self.at + by, 0), len(self.frames) - 1))

    def slider(self, width: int) -> str:
        """Where in the run it is, over a width."""
        words = f"REPLAY {clock(self.state.updated or 0.0)}   ←/→ moves, r ends it"
        room = max(width - len(words) - 6, 9)
        place = round(room * self.at / max(len(self.frames) - 1, 1))
        return f"[{'-' * place}|{'-' * (room - place)}]   {words}"
