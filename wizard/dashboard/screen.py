"""Page 7: a run, live; leaving it never touches the run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from wizard import wording
from wizard.dashboard import against
from wizard.dashboard.charts import LossChart
from wizard.dashboard.log import TextBox, last_events
from wizard.dashboard.ranks import RankTable, rank_columns
from wizard.dashboard.source import Source
from wizard.dashboard.state import RunState
from wizard.problem import Problem
from wizard.steps import Step
from wizard.widgets.header import StepHeader
from wizard.widgets.message import MessageLine
from wizard.widgets.page import Page, problem_from
from wizard.widgets.panel import Panel
from wizard.widgets.question import Question
from wizard.widgets.too_small import TooSmall

POLL_SECONDS, ENDED_POLL_SECONDS = 1.0, 5.0
"""Between two looks at a run: while it runs, and once it has ended."""

STOP_CHOICES = ("Save a checkpoint and stop", "Stop now, without saving", "Cancel: let it run")
SAVE_AND_STOP, STOP_NOW = 0, 1


class Dashboard(Page[RunState]):
    """Leaves with the last state once the run has ended, or None when the viewer leaves before."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.RUN
    QUESTION = "A run, live"
    HINT = "q leaves; the run goes on. s stops it."
    HELP_TEXT = (
        "In synchronous training every rank has the same step time; a slow rank waits least. What "
        "a device does not report is blank. Leaving, or closing the terminal, never stops the run."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "next", "Result", id="page.next", priority=True, tooltip="How the run ended"
        ),
        Binding(
            "q,escape,ctrl+c",
            "back",
            "Leave",
            key_display="q",
            id="page.back",
            tooltip="Leave; the run goes on",
        ),
        Binding("s", "stop", "Stop", id="dashboard.stop", tooltip="Stop the run: asks first"),
        Binding("l", "log", "Log", id="dashboard.log", tooltip="Show or hide the log"),
        *(
            Binding(
                str(number),
                f"pick({number})",
                "Rank",
                show=False,
                id=f"dashboard.rank-{number}",
                tooltip="Pick a rank by its number: its details and its log",
            )
            for number in range(10)
        ),
    ]

    state: reactive[RunState] = reactive(RunState(), always_update=True, init=False, repaint=False)
    picked: reactive[int | None] = reactive(None, init=False, repaint=False)

    @dataclass
    class Polled(Message):
        """What the follower read; a newer one replaces those not yet handled."""

        state: RunState
        plan: Mapping[str, Any] | None
        log: tuple[str, ...]

        def can_replace(self, message: Message) -> bool:
            """Only the newest counts."""
            return isinstance(message, Dashboard.Polled)

    @dataclass
    class Unreadable(Message):
        """Reading failed; it is tried again."""

        problem: Problem

    def __init__(
        self,
        run: Path,
        source: Source,
        *,
        in_wizard: bool = True,
        leave_when_done: bool = False,
    ) -> None:
        super().__init__()
        self._run = run
        self._source = source
        self._in_wizard = in_wizard
        self._leave_when_done = leave_when_done
        self._warned = False
        self._told_ended = False
        self._wake = threading.Event()
        self._plan: Mapping[str, Any] | None = None
        self._log_lines: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        """Summary, chart and plan, ranks, events and log."""
        yield StepHeader(self.STEP if self._in_wizard else None, "watch")
        yield Static(id="summary", markup=False)
        yield Static(id="progress", markup=False)
        yield Static(against.WAITING, id="situation", markup=False)
        with Horizontal(id="top"):
            yield LossChart()
            yield Panel("Now against the plan", id="now")
        yield RankTable()
        with Horizontal(id="bottom"):
            yield TextBox("Last events", id="events")
            yield TextBox("Log", id="log", newest_last=True)
        yield Footer(show_command_palette=False)
        yield MessageLine(self.HINT)
        yield TooSmall()

    def on_mount(self) -> None:
        """Begin to follow."""
        self.run_worker(self._follow, name="follow", thread=True, exit_on_error=False)

    def on_unmount(self) -> None:
        """Let the follower see that nobody looks any more."""
        self._wake.set()

    def _follow(self) -> None:
        """Polls in a thread until the screen is gone."""
        worker = get_current_worker()
        follower, plan, ended = None, None, False
        while not worker.is_cancelled:
            try:
                follower = follower or self._source.follow(self._run)
                plan = plan or self._source.run_details(self._run).get("plan")
                log = self._source.read_log(self._run, self.picked)
                state = follower.poll()
                ended = state.ended
                self.post_message(self.Polled(state, plan, log))
            except Exception as error:
                self.post_message(self.Unreadable(problem_from(error)))
            self._wake.wait(ENDED_POLL_SECONDS if ended else POLL_SECONDS)
            self._wake.clear()

    def on_dashboard_polled(self, event: Polled) -> None:
        """Take what was read."""
        changed = (event.state, event.plan, event.log) != (self.state, self._plan, self._log_lines)
        self._plan, self._log_lines = event.plan, event.log
        if changed:
            self.state = event.state
        else:
            self._show_times(event.state)
        if event.state.ended and self._leave_when_done:
            self.dismiss(event.state)

    def on_dashboard_unreadable(self, event: Unreadable) -> None:
        """Say why nothing is read."""
        self.message.refuse(event.problem)

    def on_resize(self) -> None:
        """Choose columns for the new width."""
        self.state = self.state

    def watch_state(self, state: RunState) -> None:
        """Hand each part its share; each draws only what changed."""
        width = self.size.width
        self._show_times(state)
        self.query_one(LossChart).show(state)
        self.show("#now", against.against_plan(state, self._plan, width // 3))
        self.query_one(RankTable).show(state, self.picked, width)
        self._show_texts(state)
        if state.ended != self._told_ended:
            self._told_ended = state.ended
            self.message.hint(against.hint(state, self._run, self.HINT))
            self.refresh_bindings()

    def _show_times(self, state: RunState) -> None:
        """The lines in which time passes though nothing happens."""
        now, width = self._source.clock(), self.size.width
        self.show("#summary", against.summary(state, self._run.name, now))
        self.show("#progress", against.progress(state, now, width - 2))
        situation = against.situation(state, now)
        self.show("#situation", wording.one_line(situation))
        self.query_one("#situation").display = bool(situation)

    def watch_picked(self) -> None:
        """Another rank: mark it, and fetch its log now."""
        self.state = self.state
        self._wake.set()

    def _show_texts(self, state: RunState) -> None:
        rank = state.ranks.get(self.picked) if self.picked is not None else None
        events, log = self.query_one("#events", TextBox), self.query_one("#log", TextBox)
        if rank is None:
            events.show(last_events(state), "Last events")
            log.show(self._log_lines, "Log of the launcher")
        else:
            events.show(against.rank_detail(rank), f"Rank {rank.rank}")
            log.show(self._log_lines, f"Log of rank {rank.rank}")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing to stop once it has ended; no result before."""
        if action == "next":
            return self.state.ended
        if action == "stop":
            return not self.state.ended
        return super().check_action(action, parameters)

    def action_next(self) -> None:
        """To the result."""
        if self.state.ended:
            self.dismiss(self.state)

    def action_back(self) -> None:
        """Leave; the first press says that the run goes on."""
        if self.state.ended or self._warned:
            self.dismiss(None)
            return
        self._warned = True
        self.message.say("q again leaves; the run goes on.")

    def help_text(self) -> str:
        """The text, and what the columns shown here mean."""
        columns = rank_columns(self.state, self.size.width)
        meanings = [f"{c.column.title}: {c.meaning}" for c in columns if c.meaning]
        return "\n".join([self.HELP_TEXT, "", *meanings])

    def action_log(self) -> None:
        """Give the log the room of the chart, or take it back."""
        self.toggle_class("-log")

    def action_pick(self, number: int) -> None:
        """Pick a rank; the same digit again lets go of it."""
        if number in self.state.ranks:
            self.picked = None if self.picked == number else number
        else:
            self.message.say(f"There is no rank {number}.")

    def action_stop(self) -> None:
        """Ask how to stop."""
        self.app.push_screen(Question("Stop this run?", STOP_CHOICES), self._stop)

    def _stop(self, choice: int | None) -> None:
        if choice not in (SAVE_AND_STOP, STOP_NOW):
            return
        now = choice == STOP_NOW
        said = "Its processes were told to end." if now else "It saves and stops at the next step."
        self.ask(
            lambda: self._source.stop(self._run, now),
            lambda _: self.message.say(said),
            "asking the run to stop",
        )
