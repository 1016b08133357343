"""Seeing a run: full screen in a terminal, plain lines elsewhere, JSON for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

from engine.events import EXIT_OK, EXIT_STOPPED
from wizard import api, configuration, paths
from wizard.advice import advise
from wizard.commands.terminal import (
    announce,
    is_interactive,
    note,
    print_exactly,
    print_json,
    say,
)
from wizard.dashboard.predicted import predicted
from wizard.dashboard.state import RunState
from wizard.dashboard.view import View, view_of
from wizard.dashboard.words import (
    as_json,
    ending,
    finding_line,
    news,
    present,
    sentence,
)
from wizard.language import foreign
from wizard.problem import ProblemError

__all__ = ["ending", "exit_code", "news", "snapshot", "speak", "stream_json", "watch"]

POLL_SECONDS = 0.5
"""Between two looks at a run."""
LOST = 70
"""What watching a run ends with whose end nobody recorded."""


def watch(folder: Path, *, plain: bool = False, leave_when_done: bool = False) -> int:
    """Show a run until it ends or the viewer leaves; its exit code, 0 when it still runs."""
    if plain or not is_interactive():
        return watch_plain(folder)
    from wizard.commands.wizard import attach

    return attach(folder, leave_when_done=leave_when_done)


def watch_plain(folder: Path) -> int:
    """Print a line for each thing that happens, until the run ends."""
    seen, told = RunState(), frozenset[str]()
    view = View()
    try:
        for view in views(folder, POLL_SECONDS):
            for line in news(seen, view.state):
                say(line)
            for finding in view.findings:
                if finding.kind not in told and finding.severity != "info":
                    say(finding_line(finding))
            told = frozenset(finding.kind for finding in view.findings)
            seen = view.state
    except KeyboardInterrupt:
        return _left(folder)
    return _ended(folder, view)


def speak(folder: Path, every: float) -> int:
    """Print a sentence every so many seconds, until the run ends."""
    view = View()
    try:
        for view in views(folder, every):
            say(sentence(view))
    except KeyboardInterrupt:
        return _left(folder)
    return _ended(folder, view)


def stream_json(folder: Path, every: float) -> int:
    """Print a line of JSON whenever something changed, at most every so many seconds."""
    before, view = None, View()
    try:
        for view in views(folder, every):
            if view != before:
                line = json.dumps(as_json(view), ensure_ascii=False, allow_nan=False)
                print_exactly(line + "\n")
            before = view
    except KeyboardInterrupt:
        return EXIT_OK
    return exit_code(view.state)


def snapshot(folder: Path, *, as_json_document: bool) -> int:
    """Print the present state; the run's exit code, 0 when it still runs."""
    view = next(views(folder, 0.0))
    if as_json_document:
        print_json(as_json(view))
    else:
        for line in present(view):
            say(line)
    return exit_code(view.state)


def views(folder: Path, every: float) -> Iterator[View]:
    """What is known of a run, every so many seconds, the last one after its end.

    The history of a long run is read in between.
    """
    from wizard.runner.folder import read_json

    plan = predicted(read_json(folder / "plan.json"))
    for state in api.watch(folder, every):
        yield view_of(state, plan, (), time.time())


def exit_code(state: RunState) -> int:
    """The run's own code; 0 while it runs."""
    if state.exit_code is not None:
        return state.exit_code
    return LOST if state.lost else EXIT_OK


def _left(folder: Path) -> int:
    note(f"left; the run goes on: tunewright watch {foreign(folder)}")
    return EXIT_OK


def _ended(folder: Path, view: View) -> int:
    if configuration.read().bell:
        announce(f"{foreign(view.state.name)}: {ending(view.state)}")
    for line in next_steps(folder, view.state):
        note(line)
    return exit_code(view.state)


def next_steps(folder: Path, state: RunState) -> list[str]:
    """Why a run ended, and what can be done about it."""
    from wizard.runner.folder import only_tested, summary

    recorded = summary(folder)
    told = state.failure.rank if state.failure else None
    found = advise(
        _as_named(folder),
        exit_code=state.exit_code,
        failure=state.failure.failure if state.failure else recorded.failure,
        rank=recorded.failed_rank if told is None else told,
        learning_rate=_learning_rate(folder),
        rebooted=recorded.rebooted,
        tested=only_tested(folder),
    )
    cause = [] if state.exit_code in (EXIT_OK, EXIT_STOPPED) else [found.cause]
    return [*cause, *(f"{action.label}: {action.command}" for action in found.actions)]


def _as_named(folder: Path) -> str:
    """The run as a command finds it: by name in the user's own runs folder."""
    return folder.name if folder.parent == paths.runs() else str(folder)


def _learning_rate(folder: Path) -> float | None:
    from wizard.runner.again import read_spec

    try:
        return read_spec(folder).training.learning_rate
    except ProblemError:
        return None
