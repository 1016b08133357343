"""The fault finder: everything that is wrong, how that is known, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from wizard import wording
from wizard.advice import advise
from wizard.dashboard.against import ending
from wizard.dashboard.health import Finding
from wizard.dashboard.state import RunState
from wizard.dashboard.words import told_message
from wizard.language import mark, said
from wizard.widgets.frames import OneFrame
from wizard.widgets.panel import Panel

WORDS = {"error": "FAIL", "warning": "(!)", "info": "note"}
COLOURS = {"error": "bold $text-error", "warning": "bold $text-warning", "info": "bold"}
LOG_LINES = 30


def findings_text(findings: Sequence[Finding]) -> Content:
    """Each finding with its evidence, cause and fix below it."""
    if not findings:
        return Content(said("ok: no finding"))
    parts: list[Content] = []
    for finding in findings:
        word = said(WORDS[finding.severity])
        lines = [
            Content.assemble((word, COLOURS[finding.severity]), f" {_one(said(finding.what))}")
        ]
        told = (("seen", finding.evidence), ("likely", finding.cause), ("to fix", finding.fix))
        lines += [
            Content.assemble(
                (f"    {wording.padded(said(label), 8)}", "$foreground-muted"), _one(said(text))
            )
            for label, text in told
            if text
        ]
        parts.append(Content("\n").join(lines))
    return Content("\n").join(parts)


def _one(text: str) -> str:
    return wording.one_line(text)


def failing_rank(state: RunState) -> int | None:
    """The rank whose log says most about what went wrong."""
    if state.failure is not None:
        return state.failure.rank
    return min((r.rank for r in state.ranks.values() if r.failure is not None), default=None)


def failure_text(state: RunState) -> str:
    """How the run failed, with the end of the traceback; empty while it did not."""
    failure = state.failure
    if failure is None:
        return "" if not state.lost else said("Its processes are gone and nobody recorded why.")
    by = f"{failure.failure}, told by the watch"
    if failure.rank is not None:
        by = f"{failure.failure}, told by rank {failure.rank}"
    told = [said(by) + mark(": ") + said(told_message(failure))]
    if state.exit_code is not None:
        told.insert(0, said(ending(state, state.exit_code)))
    trace = failure.traceback.rstrip().split("\n")[-8:]
    return wording.many_lines("\n".join([*told, *trace]).rstrip())


def actions(state: RunState, run: Path) -> list[str]:
    """Why it ended, and commands that may help now."""
    where = wording.one_line(run)
    if not state.ended:
        return [f"save and stop: tunewright stop {shlex.quote(where)}", "s here asks how to stop"]
    failure = state.failure
    found = advise(
        where,
        exit_code=state.exit_code,
        failure=failure.failure if failure else None,
        rank=failure.rank if failure else None,
    )
    return [found.cause, *(f"{action.label}: {action.command}" for action in found.actions)]


class Faults(ModalScreen[None], OneFrame):
    """Closed by the keys that close things."""

    DEFAULT_CSS = """
    Faults { align: center middle; }
    Faults > VerticalScroll { width: 120; max-width: 95%; height: auto; max-height: 92%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,f", "close", "Close", id="faults.close", tooltip="Back to the run"),
    ]

    def __init__(
        self, state: RunState, findings: Sequence[Finding], run: Path, log: Sequence[str]
    ) -> None:
        super().__init__()
        self._state = state
        self._findings = findings
        self._run = run
        self._log = log

    def compose(self) -> ComposeResult:
        """Findings, the failure, the last lines of the rank that failed, commands."""
        with VerticalScroll():
            yield Panel("Health", findings_text(self._findings))
            if failure := failure_text(self._state):
                yield Panel("How it failed", Content(failure))
            if self._log:
                lines = "\n".join(wording.one_line(line) for line in self._log[-LOG_LINES:])
                yield Panel("Its last lines", Content(lines))
            told = [said(action) for action in actions(self._state, self._run)]
            yield Panel("What can be done", Content("\n".join(told)))

    def action_close(self) -> None:
        """Back to the run."""
        self.dismiss(None)
