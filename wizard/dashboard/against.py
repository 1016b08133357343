"""What is measured now beside what the plan said, and the lines that sum a run up."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual.content import Content

from engine.events import EXIT_MEANING, EXIT_STOPPED
from wizard import wording
from wizard.dashboard.ranks import memory_bytes, on_device
from wizard.dashboard.state import RankState, RunState
from wizard.widgets.table import pairs

STALE_SECONDS = 15.0
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


def summary(state: RunState, name: str, now: float) -> Content:
    """Name, state, step, epoch, time left."""
    parts = [f"step {wording.cell(state.step) or '-'} / {wording.cell(state.total_steps) or '-'}"]
    if state.epoch is not None:
        parts.append(f"epoch {state.epoch:.2f}")
    if not state.ended and state.step is not None:
        parts.append(f"ETA {wording.duration(state.eta_seconds())}")
    if state.attempt:
        parts.append(f"attempt {state.attempt}")
    if state.rung:
        parts.append(f"rung {state.rung}")
    word = phase_word(state, now)
    colour = {"FAILED": "$text-error", "LOST": "$text-error", "STALE": "$text-warning"}
    return Content.assemble(
        (f"{wording.one_line(name)}   ", "bold"),
        (f"{word}   ", f"bold {colour.get(word, '$text-success')}"),
        "   ".join(parts),
    )


def progress(state: RunState, now: float, width: int) -> str:
    """The bar over the whole width, with its share, time gone, and age of the news."""
    done = state.step if state.total_steps else None
    share = wording.percent(done, state.total_steps) if done is not None else ""
    end = state.updated if state.ended else now
    gone = "" if state.started is None or end is None else wording.duration(end - state.started)
    age = "" if state.updated is None else f"updated {wording.duration(now - state.updated)} ago"
    words = "   ".join(part for part in (share, f"{gone} gone" if gone else "", age) if part)
    bar = wording.bar(done or 0, state.total_steps or 1, max(width - len(words) - 3, 10))
    return f"{bar}   {words}"


def situation(state: RunState, now: float) -> str:
    """What the run is waiting for, or how it ended, as one sentence; empty while it trains."""
    if state.lost:
        return "error: lost: its processes are gone and nobody recorded how it ended"
    if state.exit_code == 0:
        return "Finished."
    if state.exit_code is not None:
        return ending(state, state.exit_code)
    if is_stale(state, now) and state.updated is not None:
        return f"(!) no news for {wording.duration(now - state.updated)}; last: {state.phase}"
    if state.phase is None:
        return WAITING + " ..."
    if state.phase == "training" and state.step is not None:
        return ""
    since = state.phases[-1][1] if state.phases else now
    detail = f": {state.detail}" if state.detail else ""
    share = f", {100 * state.progress:.0f} %" if state.progress is not None else ""
    return f"{state.phase}{detail}{share} ... {wording.duration(now - since)}"


def ending(state: RunState, code: int) -> str:
    """How a run that did not finish ended."""
    text = f"exit code {code}: {EXIT_MEANING.get(code, 'an unexpected error')}"
    if state.failure is not None:
        rank = state.failure.rank
        who = "" if rank is None else f"rank {rank}, "
        text += f" ({who}{state.failure.failure}: {state.failure.message})"
    return text if code == 75 else f"error: {text}"


def hint(state: RunState, run: Path, running: str) -> str:
    """What can be done now: `running` while it runs, later only what is still true."""
    if not state.ended:
        return running
    text = "Enter shows the result. q leaves."
    if state.exit_code == EXIT_STOPPED:
        text += f"\nTo go on: {resume_command(run)}"
    return text


def resume_command(run: Path) -> str:
    """The command that continues a run from its newest checkpoint."""
    return f"bash {shlex.quote(wording.one_line(run / 'run.sh'))} --resume"


def against_plan(state: RunState, plan: Mapping[str, Any] | None, width: int) -> Content:
    """What is known now, and the plan's numbers."""
    memory = (plan or {}).get("memory")
    memory = memory if isinstance(memory, Mapping) else {}
    predicted, budget = memory.get("device_bytes"), memory.get("device_budget_bytes")
    kind = "memory" if on_device(state) else "process memory"
    now, peak = _most(state, memory_bytes), _most(state, _peak)
    steps = None if state.total_steps else (plan or {}).get("steps")
    bar = wording.bar(peak, budget, 16) + " " if width >= 40 else ""
    rows = [
        ("planned steps", steps, wording.count),
        ("loss", state.loss, wording.loss),
        ("speed", state.tokens_per_second, wording.speed),
        ("step", state.step_seconds, wording.duration),
        (kind, now, wording.gib),
        ("  peak", peak, wording.gib),
        ("  predicted" if now else "peak, predicted", predicted, wording.gib),
        ("  of budget" if now else "budget of a rank", budget, lambda b: bar + wording.gib(b)),
        ("learning rate", state.learning_rate, _short),
        ("grad norm", state.grad_norm, _short),
    ]
    return pairs([(name, said(value)) for name, value, said in rows if value is not None])


def rank_detail(rank: RankState) -> list[str]:
    """Everything known of one rank; what is not known is left out."""
    groups = (
        (("failed", rank.failure and f"{rank.failure.failure}: {rank.failure.message}"),),
        (
            ("a step: own work", _seconds(rank.own_seconds)),
            ("waiting", _seconds(rank.wait_seconds)),
            ("data", _seconds(rank.data_seconds)),
        ),
        (
            ("peak", None if _peak(rank) is None else wording.gib(_peak(rank))),
            ("clock", None if rank.sm_clock_mhz is None else f"{rank.sm_clock_mhz:.0f} MHz"),
            ("exit code", rank.exit_code),
            ("pid", rank.pid),
            ("host", rank.host),
        ),
        (("device", rank.device), ("uuid", rank.uuid)),
    )
    lines = ("   ".join(f"{name} {v}" for name, v in group if v is not None) for group in groups)
    return [line for line in lines if line]


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f} s"


def _peak(rank: RankState) -> float | None:
    if rank.memory_peak_bytes is not None:
        return rank.memory_peak_bytes
    return rank.process_memory_peak_bytes


def _most(state: RunState, amount: Any) -> float | None:
    known = [value for rank in state.ranks.values() if (value := amount(rank)) is not None]
    return max(known, default=None)


def _short(value: float) -> str:
    return f"{value:.3g}"
