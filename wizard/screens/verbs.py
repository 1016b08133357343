"""What the app can do to the world, as one value of callables handed to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from wizard.answers import Answers, Preset
from wizard.facts import Dataset, Facts, KnownModel, Model

if TYPE_CHECKING:
    from wizard.dashboard.source import Follower, LogOf
    from wizard.dashboard.state import RunState
    from wizard.formats.exporting import Target
    from wizard.formats.values import Exported
    from wizard.plan import Plan
    from wizard.steps import Chosen


class RunSummary(Protocol):
    """One run as the start page lists it."""

    @property
    def folder(self) -> Path:
        """Its run folder."""

    def line(self) -> str:
        """Name and state on one line."""


class DataPreview(Protocol):
    """A child that reads data and tells what it finds; see `engine.preview`."""

    def lines(self) -> Iterator[Mapping[str, Any]]:
        """What it says, as it comes; raises ProblemError when the data cannot be used."""

    def close(self) -> None:
        """End it, whatever it is doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """What there is to plan for besides this machine."""

    snapshots: tuple[str, ...]
    """Whole machines that were recorded."""
    devices: tuple[str, ...]
    """Accelerators of the table, to which a count is put."""
    sold_with: Callable[[str], Sequence[str]]
    """A memory, as `24` or `24 GB` → the accelerators of the table that are sold with it."""
    find: Callable[[str], Facts]
    """A name, or count and name → its facts; raises ProblemError for one that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verbs:
    """Called in threads; each may raise ProblemError, which the page shows."""

    probe: Callable[[Callable[[Facts], None]], Facts]
    """Facts of this machine, without model and data; told those known so far as they come in."""
    read_model: Callable[[str], Model]
    """Folder or hub id → its facts."""
    read_hub_model: Callable[[str], Model]
    """Hub id → its facts, asked of the hub; only when the user says so."""
    known_models: Callable[[], tuple[KnownModel, ...]]
    """Models that can be named without asking anybody."""
    sibling: Callable[[str], str | None]
    """The base model of an instruct one, or the other way; None where none is known."""
    read_dataset: Callable[[str, Mapping[str, Any]], Dataset]
    """Data and settings → its facts."""
    first_row: Callable[[str], Mapping[str, Any]]
    """Data → its first row as its file has it, whatever its columns are called."""
    preview_data: Callable[[str, str, Mapping[str, Any]], DataPreview]
    """Data, a model's folder and settings → a child that tells what the model would see."""
    edit: Callable[[Path, int], None]
    """Opens a file at a line in the user's editor, in this terminal, and waits for it."""
    data_nearby: Callable[[], tuple[str, ...]]
    """Data files in the current folder, newest first."""
    plans: Callable[[Facts, Answers], tuple[Plan, ...]]
    """Every plan, best first."""
    smallest_full: Callable[[tuple[Plan, ...], Facts, Answers], tuple[str, Plan] | None]
    """The smallest shipped machine that tunes all weights, where this one cannot."""
    name_for: Callable[[Plan, Answers], str]
    """A name that no run has."""
    preview: Callable[[Chosen, Facts, str], Mapping[str, str]]
    """Plan, facts and name → the run's files, `run.sh` first."""
    write: Callable[[Mapping[str, str], str], Path]
    """Writes the very files that were shown; the run folder."""
    launch: Callable[[Path, bool], None]
    """Starts a run folder's `run.sh` in its own session; with True a smoke test of it."""
    resume: Callable[[Path], None]
    """Goes on with a run that ended before its last step, from its last checkpoint."""
    smoke_result: Callable[[Path], Mapping[str, Any]]
    """Run folder → what its smoke test measured and what was predicted; empty without one."""
    files_of: Callable[[Path], Mapping[str, str]]
    """Run folder → the files it was made of, `run.sh` first."""
    last_files: Callable[[], tuple[str, Mapping[str, str]] | None]
    """Name and files of the newest run; None when there is none."""
    list_runs: Callable[[], tuple[RunSummary, ...]]
    """Runs there are, running ones first."""
    follow: Callable[[Path], Follower]
    """Run folder → something whose `poll()` gives its newest RunState."""
    stop: Callable[[Path, bool], None]
    """Ask a run to save and stop; with True, stop its processes now."""
    run_details: Callable[[Path], Mapping[str, Any]]
    """Run folder → {"plan": plan.json, "result": result.json}, each None while there is none."""
    chat: Callable[[Path], None]
    """Talks to the model of a run folder, in this terminal, until the user leaves."""
    read_log: Callable[[Path, LogOf], tuple[str, ...]]
    """Run folder and rank (None: the launcher, "all": all ranks) → the last lines of its log."""
    replay: Callable[[Path], tuple[RunState, ...]]
    """Run folder → states of that run from its beginning to its end."""
    keep_picture: Callable[[str, str], Path]
    """Name and text → the new file, in the current folder, that holds it."""
    kept_answers: Callable[[], Answers | None]
    """What was answered before the wizard was left; None when there is nothing to go on with."""
    last_run: Callable[[], Answers | None]
    """Model, data and columns of the newest run, for a new one to begin with; None without one."""
    keep_answers: Callable[[Answers | None], None]
    """Keep the answers for the next time; None forgets them."""
    machines: Machines
    """Machines that are not this one."""
    make_export: Callable[[Chosen, Facts, str, Target], Exported]
    """Plan, facts, name and form → its files, not yet written."""
    write_export: Callable[[Exported, Path], list[Path]]
    """Writes an export where nothing is; the files that are there now."""
    presets: Callable[[], tuple[Preset, ...]]
    """Named answers, shipped and the user's own."""
    save_preset: Callable[[Preset], Path]
    """Writes one of the user's own under a name that none has."""
    offline: str = ""
    """Why nothing is asked of hubs; empty where they may be asked."""
    suggested_model: str | None = None
    """Offered on the Model page: the demo's model when it is on this machine."""
