"""What the app can do to the world, as one value of callables handed to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wizard.answers import Answers
from wizard.facts import Dataset, Facts, Model

if TYPE_CHECKING:
    from wizard.dashboard.source import Follower, LogOf
    from wizard.dashboard.state import RunState
    from wizard.plan import Plan


class RunSummary(Protocol):
    """One run as the start page lists it."""

    @property
    def folder(self) -> Path:
        """Its run folder."""

    def line(self) -> str:
        """Name and state on one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verbs:
    """Called in threads; each may raise ProblemError, which the page shows."""

    probe: Callable[[Callable[[Facts], None]], Facts]
    """Facts of this machine, without model and data; told those known so far as they come in."""
    read_model: Callable[[str], Model]
    """Folder or hub id → its facts."""
    read_dataset: Callable[[str], Dataset]
    """File → its facts."""
    plans: Callable[[Facts, Answers], tuple[Plan, ...]]
    """Every plan, best first."""
    name_for: Callable[[Plan, Answers], str]
    """A name that no run has."""
    preview: Callable[[Plan, str], Mapping[str, str]]
    """Plan and name → the run's files, `run.sh` first."""
    launch: Callable[[Plan, str], Path]
    """Writes the very files the preview showed, and starts them; the run folder."""
    list_runs: Callable[[], tuple[RunSummary, ...]]
    """Runs there are, running ones first."""
    follow: Callable[[Path], Follower]
    """Run folder → something whose `poll()` gives its newest RunState."""
    stop: Callable[[Path, bool], None]
    """Ask a run to save and stop; with True, stop its processes now."""
    run_details: Callable[[Path], Mapping[str, Any]]
    """Run folder → {"plan": plan.json, "result": result.json}, each None while there is none."""
    read_log: Callable[[Path, LogOf], tuple[str, ...]]
    """Run folder and rank (None: the launcher, "all": all ranks) → the last lines of its log."""
    replay: Callable[[Path], tuple[RunState, ...]]
    """Run folder → states of that run from its beginning to its end."""
    keep_picture: Callable[[str, str], Path]
    """Name and text → the new file, in the current folder, that holds it."""
    suggested_model: str | None = None
    """Offered on the Model page: the demo's model when it is on this machine."""
