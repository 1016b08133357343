"""All that a dashboard shows of one moment, and the moments of a run that ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from wizard import wording
from wizard.dashboard.health import Finding, health
from wizard.dashboard.health_ranks import slowness
from wizard.dashboard.predicted import Predicted
from wizard.dashboard.state import RunState
from wizard.language import said


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
        words = said(
            f"REPLAY {wording.time_of_day(self.state.updated or 0.0)}   ←/→ moves, r ends it"
        )
        room = max(width - wording.cells(words) - 6, 9)
        place = round(room * self.at / max(len(self.frames) - 1, 1))
        return f"[{'-' * place}|{'-' * (room - place)}]   {words}"
