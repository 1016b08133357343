"""How far a run has come that does not train yet: one line for each stage, with its time."""

from __future__ import annotations

from wizard import wording
from wizard.dashboard.state import RunState
from wizard.language import said

STAGES = (
    ("fetching", "model and data here"),
    ("preparing", "data tokenised"),
    ("starting", "torchrun up"),
    ("loading model", "model loaded"),
    ("wrapping", "ranks joined"),
    ("first batch", "first step"),
    ("training", "training"),
)
"""(phase, what is true when it is over)."""


def launch_lines(state: RunState, now: float) -> list[str]:
    """A line for each stage: `✓` done, `>` under way, `.` to come."""
    order = [phase for phase, _ in STAGES]
    at = order.index(state.phase) if state.phase in order else -1
    taken = state.stage_seconds(now)
    found = []
    for index, (phase, done) in enumerate(STAGES[:-1]):
        mark = "✓" if index < at else ">" if index == at else "."
        begun = phase in taken and index <= at
        seconds = wording.duration(taken[phase]) if begun else ""
        there = _ranks_in(state, order[index:]) if index == at else ""
        text = wording.padded(said(done if index < at else phase), 20)
        found.append(f"{mark} {text} {seconds:>8}   {said(there)}".rstrip())
    return found


def _ranks_in(state: RunState, phases: list[str]) -> str:
    """How many ranks have come as far."""
    if not state.ranks or not state.world_size:
        return ""
    there = sum(rank.phase in phases for rank in state.ranks.values())
    return f"{there} of {state.world_size} ranks"
