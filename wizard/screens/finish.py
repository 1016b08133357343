"""Page 8: what came out, and what to do with it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.content import Content

from engine.events import EXIT_MEANING, EXIT_OK
from wizard import wording
from wizard.dashboard.against import can_go_on, resume_command
from wizard.dashboard.compared import compared
from wizard.dashboard.predicted import predicted
from wizard.dashboard.source import Follower
from wizard.dashboard.state import RunState
from wizard.dashboard.words import failure_words
from wizard.language import said
from wizard.problem import Problem
from wizard.steps import Resumed, Step
from wizard.widgets.page import Page
from wizard.widgets.panel import Panel
from wizard.widgets.table import Column, lines, pairs

NEW: Literal["new"] = "new"
QUIT: Literal["quit"] = "quit"


class FinishPage(Page[Literal["new", "quit"] | Resumed]):
    """Leaves with what to do next: a new run, the same one again, or nothing more."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.FINISH
    QUESTION = "What came out, and what to do with it."
    HINT = "Enter leaves. n plans a new run with the same model and data."
    HELP_TEXT = (
        "predicted is what the plan said, measured is what the run saw, error is how far measured "
        "is above (+) or below (-) predicted, in percent of predicted. With padding, rows of a "
        "batch count as long as its longest, as in the prediction. The run folder holds "
        "everything to repeat it: run.sh, spec.toml, plan.json and the events."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "accept", "Leave", id="page.next", priority=True, tooltip="Leave"),
        Binding(
            "c",
            "chat",
            "Chat",
            id="finish.chat",
            tooltip="Talk to the tuned model, in this terminal",
        ),
        Binding(
            "g",
            "resume",
            "Resume",
            id="finish.resume",
            tooltip="Resume the run from its last checkpoint",
        ),
        Binding("n", "new", "New run", id="finish.new", tooltip="Plan a new run"),
    ]

    def __init__(
        self,
        run: Path,
        follow: Callable[[Path], Follower],
        run_details: Callable[[Path], Mapping[str, Any]],
        chat: Callable[[Path], None],
        resume: Callable[[Path], None],
    ) -> None:
        """`chat` talks to the model of a run folder, in the terminal that it is lent.

        `resume` starts a run again from its last checkpoint.
        """
        super().__init__()
        self._chat = chat
        self._trained = False
        self._resume = resume
        self._can_go_on = False
        self._run = run
        self._follow = follow
        self._read_details = run_details

    def body(self) -> ComposeResult:
        """Outcome, numbers, next commands."""
        yield Panel("Result", id="result")
        yield Panel("Predicted and measured", id="measured")
        yield Panel("Next", id="commands")

    def on_mount(self) -> None:
        """Read what the run wrote about itself."""
        self.ask(self._read, self._show, "reading the result")

    def action_next(self) -> None:
        """Leave."""
        self.dismiss(QUIT)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There is a model to talk to in a run that finished, and to go on with in no such one."""
        if action == "chat":
            return self._trained
        if action == "resume":
            return self._can_go_on
        return super().check_action(action, parameters)

    def action_chat(self) -> None:
        """Lend the terminal to the model."""
        try:
            with self.app.suspend():
                self._chat(self._run)
        except SuspendNotSupported:
            what, fix = "this terminal cannot be lent out", f"type: {_chat_command(self._run)}"
            self.message.refuse(Problem(what=what, fix=fix))

    def action_new(self) -> None:
        """Plan a new run."""
        self.dismiss(NEW)

    def action_resume(self) -> None:
        """Go on with the run, and look at it."""
        self.ask(lambda: self._resume(self._run), self._look_at_it, "resuming the run")

    def _look_at_it(self, started: None) -> None:
        self.dismiss(Resumed())

    def _read(self) -> tuple[RunState, Mapping[str, Any]]:
        return self._follow(self._run).poll(), self._read_details(self._run)

    def _show(self, read: tuple[RunState, Mapping[str, Any]]) -> None:
        state, details = read
        self._trained = state.exit_code == EXIT_OK
        self._can_go_on = can_go_on(state)
        self.refresh_bindings()
        self.show("#result", _outcome(self._run, state))
        self.show("#measured", measured_table(state, details))
        self.show("#commands", _commands(self._run, state))


def _outcome(run: Path, state: RunState) -> Content:
    code = state.exit_code
    meaning = "lost: nobody recorded how it ended" if code is None else EXIT_MEANING.get(code, "")
    failure = state.failure
    rows = [
        ("run", run.name),
        ("outcome", meaning if code in (None, 0) else f"{meaning} (exit code {code})"),
        ("steps", f"{wording.count(state.step)} of {wording.count(state.total_steps)}"),
        ("loss", f"{wording.loss(state.first_loss)} → {wording.loss(state.loss)}"),
        ("folder", str(run)),
    ]
    if code == 0:
        rows.append(("model", str(run / "model")))
    if failure is not None:
        rows.append(("failure", failure_words(failure)))
    return pairs(rows)


def measured_table(state: RunState, details: Mapping[str, Any]) -> Content:
    """Predicted beside measured, for what was predicted."""
    result = details.get("result")
    if not isinstance(result, Mapping):
        return Content(said("No result was written."))
    rows = [
        (one.name, one.told(one.predicted), one.told(one.measured), one.off)
        for one in compared(state, predicted(details.get("plan")), result)
    ]
    columns = (
        Column(title=""),
        Column(title="predicted", right=True),
        Column(title="measured", right=True),
        Column(title="error", right=True),
    )
    named = [(said(name), *rest) for name, *rest in rows]
    head, *body = lines(columns, named, 76)
    return Content("\n").join([Content.styled(head, "$foreground-muted"), *map(Content, body)])


def _commands(run: Path, state: RunState) -> Content:
    name = shlex.quote(wording.one_line(run.name))
    if state.exit_code == EXIT_OK:
        return pairs((("talk to it", f"{_chat_command(run)}   (c does it here)"),))
    rows = [("see it again", f"tunewright watch {name}")]
    if can_go_on(state):
        rows.insert(0, ("go on", f"g, or {resume_command(run)}"))
    return pairs(rows)


def _chat_command(run: Path) -> str:
    return f"tunewright chat {shlex.quote(wording.one_line(run.name))}"
