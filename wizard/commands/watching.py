"""Seeing a run: full screen in a terminal, plain lines elsewhere."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from engine.events import EXIT_MEANING, EXIT_OK, EXIT_STOPPED
from wizard import configuration, paths, wording
from wizard.advice import advise
from wizard.commands.terminal import announce, is_interactive, note, print_json, say
from wizard.dashboard.state import RunState
from wizard.problem import ProblemError

POLL_SECONDS = 0.5
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
    from wizard.runner.follow import Follower

    follower = Follower(folder)
    seen = RunState()
    try:
        while True:
            state = follower.poll()
            for line in news(seen, state):
                say(line)
            if state.ended:
                if configuration.read().bell:
                    announce(f"{state.name}: {ending(state)}")
                for line in next_steps(folder, state):
                    note(line)
                return exit_code(state)
            seen = state
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        note(f"left; the run goes on: tunewright watch {folder}")
        return EXIT_OK


def snapshot(folder: Path, *, as_json: bool) -> int:
    """Print the present state; the run's exit code, 0 when it still runs."""
    from wizard.runner.follow import Follower

    state = Follower(folder).poll()
    if as_json:
        print_json({"schema": 1, **dataclasses.asdict(state)})
    else:
        for line in present(state):
            say(line)
    return exit_code(state)


def exit_code(state: RunState) -> int:
    """The run's own code; 0 while it runs."""
    if state.exit_code is not None:
        return state.exit_code
    return LOST if state.lost else EXIT_OK


def present(state: RunState) -> list[str]:
    """The whole state in a few lines."""
    ranks = [
        f"rank {rank.rank}: {rank.phase or 'unknown'}, step {_or_unknown(rank.step)}, "
        f"{wording.duration(rank.step_seconds)} a step, {wording.speed(rank.tokens_per_second)}"
        for _, rank in sorted(state.ranks.items())
    ]
    return [
        f"{state.name}: {ending(state) if state.ended else state.phase or 'starting'}",
        step_line(state),
        *ranks,
    ]


def news(before: RunState, now: RunState) -> Iterator[str]:
    """Lines for what changed between two states."""
    if now.attempt != before.attempt:
        yield f"attempt {now.attempt}, rung {now.rung}"
    if now.phase != before.phase and now.phase is not None and not now.ended:
        yield f"{now.phase}" + (f": {now.detail}" if now.detail else "")
    for warning in now.warnings[len(before.warnings) :]:
        yield f"(!) {_who(warning.rank)}{warning.text}"
    if now.losses and now.losses[-1:] != before.losses[-1:]:
        yield step_line(now)
    for saved in now.saved[len(before.saved) :]:
        yield f"saved {saved.path} ({wording.gib(saved.bytes)})"
    if now.ended:
        yield ending(now)


def step_line(state: RunState) -> str:
    """The newest step whose loss is known, as one sentence."""
    step, loss = state.losses[-1] if state.losses else (state.step, None)
    left = state.eta_seconds()
    parts = (
        f"step {_or_unknown(step)} of {_or_unknown(state.total_steps)}",
        f"loss {wording.loss(loss)}",
        wording.speed(state.tokens_per_second),
        "" if left is None or state.ended else f"{wording.duration(left)} left",
    )
    return (
        ", ".join(part for part in parts if part and wording.UNKNOWN not in part) or "no step yet"
    )


def ending(state: RunState) -> str:
    """How the run ended."""
    if state.exit_code is None:
        return "lost: its processes are gone and nobody recorded how it ended"
    meaning = EXIT_MEANING.get(state.exit_code, "an unexpected error")
    text = f"ended with {state.exit_code}: {meaning}"
    if state.failure is not None:
        text += f"; {_who(state.failure.rank)}{state.failure.failure}: {state.failure.message}"
    return text


def next_steps(folder: Path, state: RunState) -> list[str]:
    """Why a run ended, and what can be done about it."""
    from wizard.runner.folder import summary

    recorded = summary(folder)
    told = state.failure.rank if state.failure else None
    found = advise(
        _as_named(folder),
        exit_code=state.exit_code,
        failure=state.failure.failure if state.failure else recorded.failure,
        rank=recorded.failed_rank if told is None else told,
        learning_rate=_learning_rate(folder),
        rebooted=recorded.rebooted,
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


def _who(rank: int | None) -> str:
    return "" if rank is None else f"rank {rank}: "


def _or_unknown(number: int | None) -> str:
    return wording.UNKNOWN if number is None else str(number)
