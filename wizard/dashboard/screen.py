"""Page 7: a run, live; leaving it never touches the run."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from wizard import wording
from wizard.dashboard import against, keys, layout
from wizard.dashboard.boxes import Boxes
from wizard.dashboard.charts import Chart
from wizard.dashboard.faults import Faults, failing_rank
from wizard.dashboard.launching import launch_lines
from wizard.dashboard.log import LogBox, TextBox, last_events
from wizard.dashboard.now import against_plan, rank_detail
from wizard.dashboard.polling import views
from wizard.dashboard.rank_columns import Shown, rank_columns
from wizard.dashboard.ranks import ORDERS, RankTable, ordered
from wizard.dashboard.source import LogOf, Source
from wizard.dashboard.state import RunState
from wizard.dashboard.view import Replay, View, view_of
from wizard.glossary import OF_RUNS, defined, glossary
from wizard.language import said
from wizard.problem import Problem
from wizard.steps import Step
from wizard.widgets.header import StepHeader
from wizard.widgets.keyline import KeyLine
from wizard.widgets.message import MessageLine
from wizard.widgets.panel import Panel
from wizard.widgets.question import Question
from wizard.widgets.too_small import TooSmall

DIGITS_SECONDS = 1.0
"""Digits that come within this are one number, where ranks have two or more."""

TYPING_ACTIONS = ("back", "quit", "explain_while_typing")
"""What keys do while a text is typed."""
STOP_CHOICES = ("Save a checkpoint and stop", "Stop now, without saving", "Cancel: let it run")
SAVE_AND_STOP, STOP_NOW = 0, 1


class Dashboard(Boxes):
    """Leaves with the last state once the run has ended, or None when the viewer leaves before."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.RUN
    QUESTION = "A run, live"
    HINT = "q leaves; the run goes on. s stops it."
    HELP_TEXT = (
        "In synchronous training every rank has the same step time; a slow rank waits least. What "
        "a device does not report is blank. Leaving, or closing the terminal, never stops the run."
    )
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = keys.BINDINGS

    view: reactive[View] = reactive(View(), always_update=True, init=False, repaint=False)
    picked: reactive[int | None] = reactive(None, init=False, repaint=False)

    @dataclass
    class Polled(Message):
        """What the follower read; a newer one replaces those not yet handled."""

        view: View

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
        self._told_ended = False
        self._wake = threading.Event()
        self._all_logs = False
        self._newest = RunState()
        """The run as it is, whatever a replay shows."""
        self._replay: Replay | None = None
        self._digits = ("", 0.0)

    def compose(self) -> ComposeResult:
        """Summary, charts and plan, ranks, events and log."""
        yield StepHeader(self.STEP if self._in_wizard else None, "watch")
        yield Static(id="summary", markup=False)
        yield Static(id="progress", markup=False)
        yield Static(said(against.WAITING), id="situation", markup=False)
        with Horizontal(id="top"):
            yield Chart(id="chart")
            yield Chart(id="chart2", metric=3)
            yield Panel("Now against the plan", id="now")
        yield RankTable()
        with Horizontal(id="bottom"):
            yield TextBox("Last events", id="events")
            yield LogBox()
        yield Input(
            id="filter", placeholder=said("only lines with this text; empty: all"), compact=False
        )
        yield KeyLine()
        yield MessageLine(self.HINT)
        yield TooSmall()

    def on_mount(self) -> None:
        """Begin to follow."""
        self.query_one("#chart").can_focus = True
        self.query_one("#now").can_focus = True
        self.query_one("#ranks").can_focus = True
        self.place_boxes()
        self.run_worker(self._follow, name="follow", thread=True, exit_on_error=False)

    def on_unmount(self) -> None:
        """Let the follower see that nobody looks any more."""
        self._wake.set()

    def _follow(self) -> None:
        """Polls in a thread until the screen is gone."""
        worker = get_current_worker()
        for view in views(self._run, self._source, lambda: self._log_of, self._wake):
            if worker.is_cancelled:
                return
            told = self.Unreadable if isinstance(view, Problem) else self.Polled
            self.post_message(told(view))  # type: ignore[arg-type]

    @property
    def state(self) -> RunState:
        """The run as it is shown."""
        return self.view.state

    @property
    def _log_of(self) -> LogOf:
        return "all" if self._all_logs else self.picked

    def on_dashboard_polled(self, event: Polled) -> None:
        """Take what was read; a replay goes on showing what was."""
        self._newest = event.view.state
        if not self._replay:
            if event.view != self.view:
                self.view = event.view
            else:
                self._show_times(event.view.state)
        if event.view.state.ended and self._leave_when_done:
            self.dismiss(event.view.state)

    def on_dashboard_unreadable(self, event: Unreadable) -> None:
        """Say why nothing is read."""
        self.message.refuse(event.problem)

    def draw_boxes(self) -> None:
        """Draw every box anew."""
        self.view = self.view

    def watch_view(self, view: View) -> None:
        """Hand each part its share; each draws only what changed."""
        state, now = view.state, self._now()
        width, height = self.size
        self._show_times(state)
        self._show_charts(state)
        box = self.query_one("#now", Panel)
        box.show(against_plan(state, view.plan, view.findings, now, box.content_size.width or 30))
        table = self.query_one(RankTable)
        room = layout.rank_room(height, self.alone, table.rows_wanted(state))
        table.styles.height = room + 2 if self.alone != "ranks" else "1fr"
        table.show(Shown(state=state, shares=view.shares), self.picked, width, room)
        self._show_texts(view)
        if self._newest.ended != self._told_ended:
            self._told_ended = self._newest.ended
            self.message.hint(against.hint(self._newest, self._run, self.HINT))
            if self.message.problem is None:
                self.message.rest()  # what was said of the run before is no longer so
            self.refresh_bindings()

    def _show_charts(self, state: RunState) -> None:
        """Curves, or before the first step how long each stage of the launch takes."""
        waiting = "\n".join(launch_lines(state, self._now()))
        for chart in self.query(Chart):
            if chart.display:
                chart.show(state, waiting)

    def _now(self) -> float:
        """The present, or the moment that a replay shows."""
        if self._replay:
            return self.state.updated or self._source.clock()
        return self._source.clock()

    def _show_times(self, state: RunState) -> None:
        """The lines in which time passes though nothing happens."""
        now, width = self._now(), self.size.width
        if state.step is None:
            self._show_charts(state)
        self.show("#summary", against.summary(state, self._title_of(state), now, width))
        line = (
            self._replay.slider(width - 2)
            if self._replay
            else against.progress(state, now, width - 2)
        )
        self.show("#progress", Content(line))
        situation = "" if self._replay else against.situation(state, now)
        self.show("#situation", Content(wording.one_line(situation)))
        self.query_one("#situation").display = bool(situation)

    def watch_picked(self) -> None:
        """Another rank: mark it, and fetch its log now."""
        self.draw_boxes()
        self._wake.set()

    def _show_texts(self, view: View) -> None:
        state, picked = view.state, self.picked
        rank = state.ranks.get(picked) if picked is not None else None
        events, log = self.query_one("#events", TextBox), self.query_one(LogBox)
        if rank is None:
            events.show(last_events(state), "Last events")
        else:
            events.show(rank_detail(rank), f"Rank {rank.rank}")
        whose = "all ranks" if self._all_logs else f"rank {picked}" if rank else "the launcher"
        log.show_log(view.log, whose)

    def asks_for_help(self, character: str | None) -> bool:
        """Lines of a log may hold a `?`, so the filter may begin with one."""
        return False

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Nothing to stop once it has ended; no result and no replay before."""
        if isinstance(self.focused, Input) and action not in TYPING_ACTIONS:
            return False
        if action == "frame":  # a box with the focus scrolls by the same keys
            return self._replay is not None
        if action in ("next", "replay"):
            return self._newest.ended
        if action == "resume":
            return against.can_go_on(self._newest)
        if action == "stop":
            return not self._newest.ended
        return super().check_action(action, parameters)

    def _title_of(self, state: RunState) -> str:
        """The folder's name; of a run of several machines it comes after the run's own."""
        name = self._run.name
        return state.name if state.name.endswith(f"/{name}") else name

    def action_next(self) -> None:
        """To the result."""
        if self._newest.ended:
            self.dismiss(self._newest)

    def action_back(self) -> None:
        """Out of what was opened last; then leave."""
        if self.has_class("-filtering"):
            self._end_filter()
        elif self._replay:
            self.action_replay()
        elif self.alone is not None:
            self.alone = None
        else:
            self.action_leave()

    def action_leave(self) -> None:
        """Leave; the run goes on, as the line above the keys says."""
        self.dismiss(None)

    def help_text(self) -> str:
        """The text, and what the columns shown here mean."""
        shown = Shown(state=self.state, shares=self.view.shares)
        columns = rank_columns(shown, self.size.width, ordered(shown, ORDERS[0])[:12])
        meanings = defined((c.column.title, c.meaning) for c in columns if c.meaning)
        return "\n".join([said(self.HELP_TEXT), "", *meanings])

    def help_words(self) -> str:
        """What its numbers are about."""
        return glossary(OF_RUNS)

    def action_ranks(self, rows: int) -> None:
        """Move in the table of ranks."""
        self.query_one(RankTable).move(rows, self.state)
        self.draw_boxes()

    def action_log_of(self) -> None:
        """Another log: the launcher's or the picked rank's, then all ranks'."""
        self._all_logs = not self._all_logs
        self.draw_boxes()
        self._wake.set()

    def action_pause(self) -> None:
        """Hold the log still, or follow it again."""
        self.query_one(LogBox).hold()

    def action_unpin(self) -> None:
        """Let go of the error lines that are shown."""
        self.query_one(LogBox).let_go()

    def action_filter(self) -> None:
        """Ask which lines of the log to show."""
        if "log" not in layout.boxes(*self.size, self.alone):
            self.alone = "log"
        self.add_class("-filtering")
        self.query_one("#filter").focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Show the lines that were asked for."""
        self.query_one(LogBox).only(event.value)
        self._end_filter()

    def _end_filter(self) -> None:
        self.remove_class("-filtering")
        self.set_focus(None)

    def action_faults(self) -> None:
        """What is wrong, with the last lines of the rank that failed."""
        state = self.state
        rank = failing_rank(state)

        def show(log: tuple[str, ...]) -> None:
            self.app.push_screen(Faults(state, self.view.findings, self._run, log))

        if state.failure is None:
            show(())
        else:
            self.ask(lambda: self._source.read_log(self._run, rank), show, "reading its log")

    def action_replay(self) -> None:
        """Show the run from its beginning, or its end again."""
        if self._replay is not None:
            self._replay = None
            self._wake.set()
            self.draw_boxes()
        else:
            self.ask(lambda: self._source.replay(self._run), self._begin, "reading the whole run")

    def _begin(self, frames: tuple[RunState, ...]) -> None:
        if not frames:
            self.message.say("This run has no events to show.")
            return
        self._replay = Replay(frames=frames, at=len(frames) - 1)
        self.action_frame(0)

    def action_frame(self, by: int) -> None:
        """Earlier or later in a replay."""
        if self._replay is not None:
            self._replay = self._replay.moved(by)
            state = self._replay.state
            self.view = view_of(state, self.view.plan, self.view.log, state.updated or 0.0)

    def action_export(self) -> None:
        """Write the view to a file."""
        name = f"{self._run.name}-step-{self.state.step or 0}.svg"
        picture = self.app.export_screenshot(title=wording.one_line(self._run.name))
        self.ask(
            lambda: self._source.keep_picture(name, picture),
            lambda path: self.message.say(f"written: {path}"),
            "writing the picture",
        )

    def action_pick(self, number: int) -> None:
        """Pick a rank; the same number again lets go of it."""
        number = self._typed(number)
        if number in self.state.ranks:
            self.picked = None if self.picked == number else number
        else:
            self.message.say(f"There is no rank {number}.")

    def _typed(self, digit: int) -> int:
        """The number that the digits typed within a second make, where ranks have two or more."""
        before, at = self._digits
        now = self._source.clock()
        text = f"{before}{digit}" if now - at < DIGITS_SECONDS else str(digit)
        if len(self.state.ranks) <= 10 or int(text) not in self.state.ranks:
            text = str(digit)
        self._digits = (text, now)
        return int(text)

    def action_resume(self) -> None:
        """Go on with the run from its last checkpoint; it is followed as it was."""
        self._replay = None
        self.ask(lambda: self._source.resume(self._run), self._resumed, "resuming the run")

    def _resumed(self, _: None) -> None:
        self._wake.set()

    def action_stop(self) -> None:
        """Ask how to stop."""
        self.app.push_screen(Question("Stop this run?", STOP_CHOICES), self._stop)

    def _stop(self, choice: int | None) -> None:
        if choice not in (SAVE_AND_STOP, STOP_NOW):
            return
        now = choice == STOP_NOW
        said = "Its processes were told to end." if now else "It saves and stops at the next step."

        def tell(_: None) -> None:
            if not self._newest.ended:
                self.message.say(said)

        self.ask(lambda: self._source.stop(self._run, now), tell, "asking the run to stop")
