"""The lines that sum a run up: where it is, how far, and what it waits for or how it ended."""

from __future__ import annotations

import shlex
from pathlib import Path

from textual.content import Content

from engine.events import EXIT_MEANING, EXIT_OK, EXIT_STOPPED
from wizard import paths, wording
from wizard.dashboard.state import RunState
from wizard.dashboard.words import failure_words
from wizard.language import said

STALE_SECONDS = 15.0
NARROW_NAME = 14
WAITING = "waiting for the first word of the run"


def phase_word(state: RunState, now: float) -> str:
    """The run's state in one word, as the header shows it."""
    if state.lost:
        return "LOST"
    if state.exit_code is not None:
        return {0: "FINISHED", 75: "STOPPED"}.get(state.exit_code, "FAILED")
    if is_stale(state, now):
        return "STALE"
    return "RUNNING" if state.phase == "training" else "STARTING" if state.step is None else "BUSY"


def is_stale(state: RunState, now: float) -> bool:
    """Whether all ranks, which should speak every few seconds, have been silent for long."""
    if state.ended or state.updated is None or not state.ranks:
        return False
    return now - state.updated > STALE_SECONDS


def summary(state: RunState, name: str, now: float, width: int = 140) -> Content:
    """Name, state, step, epoch, time left; a narrow screen has room for little of the name."""
    name = wording.shorten(name, NARROW_NAME) if width < 80 else name
    parts = [f"step {wording.cell(state.step) or '-'} / {wording.cell(state.total_steps) or '-'}"]
    if state.epoch is not None and width >= 80:
        parts.append(f"epoch {state.epoch:.2f}")
    if not state.ended and state.step is not None:
        parts.append(f"ETA {wording.duration(state.eta_seconds())}")
    if state.attempt:
        number = f"attempt {state.attempt}"
        parts.append(f"resumed: {number}" if state.resumed else number)
    if state.rung:
        parts.append(f"fallback {state.rung}")
    word = phase_word(state, now)
    colour = {"FAILED": "$text-error", "LOST": "$text-error", "STALE": "$text-warning"}
    return Content.assemble(
        (f"{wording.one_line(name)}   ", "bold"),
        (f"{said(word)}   ", f"bold {colour.get(word, '$text-success')}"),
        "   ".join(map(said, parts)),
    )


def progress(state: RunState, now: float, width: int) -> str:
    """The bar over the whole width, with its share, time gone, and age of the news."""
    done = state.step if state.total_steps else None
    share = wording.percent(done, state.total_steps) if done is not None else ""
    end = state.updated if state.ended else now
    gone = "" if state.started is None or end is None else wording.duration(end - state.started)
    age = "" if state.updated is None else f"updated {wording.duration(now - state.updated)} ago"
    read = "" if state.history_share >= 1 else f"history {100 * state.history_share:.0f} % read"
    told = (share, f"{gone} gone" if gone else "", age, read)
    words = "   ".join(said(part) for part in told if part)
    bar = wording.bar(done or 0, state.total_steps or 1, max(width - wording.cells(words) - 3, 10))
    return f"{bar}   {words}"


def situation(state: RunState, now: float) -> str:
    """What the run is waiting for, or how it ended, already said; "" while it trains."""
    if state.lost:
        return said("error: lost: its processes are gone and nobody recorded how it ended")
    if state.exit_code == 0:
        return said("Finished.")
    if state.exit_code is not None:
        return said(ending(state, state.exit_code))
    if is_stale(state, now) and state.updated is not None:
        silent = wording.duration(now - state.updated)
        return said(f"(!) no news for {silent}; last: {state.phase}")
    if state.phase is None:
        return said(WAITING) + " ..."
    if state.phase == "training" and state.step is not None:
        return ""
    since = state.phases[-1][1] if state.phases else now
    detail = f": {state.detail}" if state.detail else ""
    share = f", {100 * state.progress:.0f} %" if state.progress is not None else ""
    doing = said(f"{state.phase}{detail}{share}")
    return f"{doing} ... {wording.duration(now - since)}"


def ending(state: RunState, code: int) -> str:
    """How a run that did not finish ended, for `said`."""
    text = f"exit code {code}: {EXIT_MEANING.get(code, 'an unexpected error')}"
    if state.failure is not None:
        rank = state.failure.rank
        who = "" if rank is None else f"rank {rank}, "
        text += f" ({who}{failure_words(state.failure)})"
    return text if code == 75 else f"error: {text}"


def hint(state: RunState, run: Path, running: str) -> str:
    """What can be done now: `running` while it runs, later only what is still true."""
    if not state.ended:
        return running
    text = "Enter shows the result. q leaves."
    if was_cut_short(state):
        text += f"\nTo go on: g, or {resume_command(run)}"
    return text


def resume_command(run: Path) -> str:
    """The command that continues a run from its newest checkpoint."""
    name = run.name if run.parent == paths.runs() else run
    return f"tunewright resume {shlex.quote(wording.one_line(name))}"


def can_go_on(state: RunState) -> bool:
    """Whether it ended before its last step, so that `--resume` has something to do."""
    return state.ended and state.exit_code != EXIT_OK


def was_cut_short(state: RunState) -> bool:
    """Whether nothing was wrong with it: it was stopped, or the machine went away."""
    return state.lost or state.exit_code == EXIT_STOPPED
