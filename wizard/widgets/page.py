"""What every page shares: header, body, message line, keys, and slow work off the screen."""

from __future__ import annotations

import asyncio
import hashlib
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, TypeVar

from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Input, Static
from textual.worker import Worker, WorkerState

from engine.theirs import why, with_class
from wizard import wording
from wizard.answers import Answers
from wizard.language import ENGLISH, said, said_problem, used
from wizard.problem import Problem, ProblemError
from wizard.steps import ORDER, GoTo, Loaded, Step, with_typed
from wizard.widgets.aside import aside
from wizard.widgets.frames import OneFrame
from wizard.widgets.header import StepHeader
from wizard.widgets.help import Help, keys_once
from wizard.widgets.keyline import KeyLine
from wizard.widgets.message import MessageLine
from wizard.widgets.panel import redraw
from wizard.widgets.sheet import Sheet
from wizard.widgets.table import Rows
from wizard.widgets.too_small import TooSmall

Answer = TypeVar("Answer")
Value = TypeVar("Value")

ASKED = "ask"
"""What the page waits for; other groups of calls go on beside it."""
BUG = "this is a bug in tunewright; Ctrl+R shows where"
SOON_SECONDS = 0.03
"""What is answered by then is drawn with the key that asked for it."""
HELP_TOOLTIP = "What this page is about"


def problem_from(error: BaseException) -> Problem:
    """Any error as a Problem, so that a page can show it."""
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, OSError):
        where = str(error.filename or "")
        return Problem(what=f"the system refuses: {why(error)}", where=where)
    return Problem(what=f"internal error: {with_class(error)}", fix=BUG)


def _from_ours(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames of the toolkit that called us: the end is what tells."""
    while trace is not None and trace.tb_next is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith("wizard."):
            break
        trace = trace.tb_next
    return trace


def in_language(bindings: dict[str, ActiveBinding]) -> dict[str, ActiveBinding]:
    """The same keys, what they do said in the reader's language."""
    if used() == ENGLISH:
        return bindings
    return {
        key: active._replace(
            binding=replace(
                active.binding,
                description=said(active.binding.description),
                tooltip=said(active.binding.tooltip),
            ),
            tooltip=said(active.tooltip),
        )
        for key, active in bindings.items()
    }


class Page(OneFrame, Screen[Answer | GoTo | Loaded | None]):
    """One page: Enter leaves it with a value, Escape with None, which means one page back."""

    STEP: ClassVar[Step | None] = None
    PLACE: ClassVar[str] = ""
    QUESTION: ClassVar[str] = ""
    HINT: ClassVar[str] = ""
    HELP_TEXT: ClassVar[str] = ""
    HELP_ON: ClassVar[Mapping[str, str]] = {}
    """Id of a widget → what it is about, said first while it has the focus."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "enter", "accept", "Next", id="page.next", priority=True, tooltip="Accept and go on"
        ),
        Binding("escape", "back", "Back", id="page.back", tooltip="One page back"),
        Binding(
            "question_mark",
            "explain",
            "Help",
            key_display="?",
            id="page.help",
            tooltip=HELP_TOOLTIP,
        ),
        Binding(
            "f1",
            "explain_while_typing",
            "Help",
            key_display="F1",
            id="page.help-typing",
            tooltip=HELP_TOOLTIP,
        ),
        Binding(
            "f1",
            "explain",
            "Help",
            show=False,
            key_display="F1",
            id="page.help-f1",
            tooltip=HELP_TOOLTIP,
        ),
        Binding(
            "ctrl+down",
            "scroll_page(4)",
            show=False,
            id="page.scroll-down",
            tooltip="Scroll the page, whatever has the keys",
        ),
        Binding(
            "ctrl+up",
            "scroll_page(-4)",
            show=False,
            id="page.scroll-up",
            tooltip="Scroll the page, whatever has the keys",
        ),
        Binding(
            "pagedown",
            "scroll_page(8)",
            show=False,
            id="page.page-down",
            tooltip="Scroll the page",
        ),
        Binding(
            "pageup",
            "scroll_page(-8)",
            show=False,
            id="page.page-up",
            tooltip="Scroll the page",
        ),
        Binding(
            "ctrl+r",
            "traceback",
            "Traceback",
            id="page.traceback",
            priority=True,
            tooltip="Where in the program it failed",
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.given = Answers()
        """The answers that the page began with."""
        self.typed_before = ""
        """What stood in the page's field, and was not read, when it was left before."""
        self.left_typed = ""
        """The same when it was left now."""
        self.offline = False
        """Whether hubs may not be asked, which the header says."""
        self.notice = ""
        """Said before the hint: what was not asked on the way here."""
        self.marks: Mapping[Step, str] = {}
        """Step → its mark in the header, where that is not told by the order of steps."""
        self._asked_since = 0.0
        self._answered = asyncio.Event()
        """Set once the answer to what was asked last is there, before it is delivered."""
        self._then: dict[Worker[Any], Callable[[Any], None]] = {}
        self._failed: tuple[Problem, BaseException] | None = None
        """The problem that was told last, and its error, where that is a bug."""

    def compose(self) -> ComposeResult:
        """Frame around the page's own body."""
        yield StepHeader(self.STEP, self.PLACE, self.marks, offline=self.offline)
        yield Static(said(self.QUESTION), id="question", markup=False)
        with VerticalScroll(id="body", can_focus=False):
            yield from self.body()
        yield KeyLine()
        yield MessageLine(f"{self.notice} {self.HINT}".strip())
        yield TooSmall()

    def body(self) -> ComposeResult:
        """The page's own widgets."""
        yield from ()

    @property
    def answers(self) -> Answers:
        """The answers as they are on the page now."""
        return self.given

    def so_far(self) -> object:
        """What the page would be left with now; None while that is not known."""
        return None

    def typed(self) -> str:
        """What stands in the page's field and was not read."""
        return ""

    def unfinished(self) -> Problem | None:
        """What stands in the way of going on from the answers as they are."""
        return None

    @property
    def active_bindings(self) -> dict[str, ActiveBinding]:
        """The keys that work now, named in the reader's language: footer, help and palette."""
        return in_language(super().active_bindings)

    @property
    def message(self) -> MessageLine:
        """The line above the keys."""
        return self.query_one(MessageLine)

    @property
    def busy(self) -> bool:
        """Whether a slow answer is still awaited that the page cannot go on without."""
        return any(not w.is_finished for w in self._then if w.group == ASKED)

    async def answer(self) -> bool:
        """Wait for what was asked just now; whether that was any."""
        left = self._asked_since + SOON_SECONDS - time.monotonic()
        if left <= 0 or not self.busy:
            return False
        with suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), left)
        return True

    def ask(
        self,
        call: Callable[[], Value],
        then: Callable[[Value], None],
        waiting_for: str,
        *,
        later: bool = False,
    ) -> None:
        """Run something slow in a thread; its value goes to `then`, a problem to the message line.

        A newer call replaces an older one, whose value is dropped. One that takes the processor
        for itself begins `later`: once what the key changed by itself is drawn.
        """
        self.message.working(waiting_for)
        self._asked_since = 0.0 if later else time.monotonic()
        drawn = self.next_frame() if later else None
        self._answered = answered = asyncio.Event()

        async def asked() -> Value:
            try:
                if drawn is not None:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(drawn.wait(), SOON_SECONDS)
                return await aside(call)
            finally:
                answered.set()

        self._call(asked, then, waiting_for, ASKED)

    def ask_beside(
        self, call: Callable[[], Value], then: Callable[[Value], None], subject: str
    ) -> None:
        """The same without a word: the page can be used meanwhile, and a problem is its own."""
        self._call(partial(aside, call), then, subject, subject)

    def _call(
        self,
        work: Callable[[], Coroutine[None, None, Value]],
        then: Callable[[Value], None],
        name: str,
        group: str,
    ) -> None:
        worker: Worker[Any] = self.run_worker(
            work,
            name=name,
            group=group,
            description=name,
            exclusive=True,
            exit_on_error=False,
        )
        self._then[worker] = then

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Deliver what `ask` asked for."""
        worker = event.worker
        if worker not in self._then:
            return
        if event.state is WorkerState.SUCCESS:
            if worker.group == ASKED:
                self.message.rest()
            self._then.pop(worker)(worker.result)
        elif event.state is WorkerState.ERROR and worker.error is not None:
            del self._then[worker]
            problem = problem_from(worker.error)
            ours = isinstance(worker.error, ProblemError)
            self._failed = None if ours else (problem, worker.error)
            if worker.group == ASKED:
                self.refused(problem)
            else:
                self.refused_beside(worker.group, problem)
            self.refresh_bindings()
        elif event.state is WorkerState.CANCELLED:
            del self._then[worker]

    def refused(self, problem: Problem) -> None:
        """Show a problem; the page stays."""
        self.message.refuse(problem)

    def refused_beside(self, subject: str, problem: Problem) -> None:
        """Show what went wrong beside the page; nothing that was shown is taken back."""
        self.message.refuse(problem)

    def asks_for_help(self, character: str | None) -> bool:
        """Whether a `?` came first in a field: no name, path or number begins with one."""
        named = self.focused
        typed_first = isinstance(named, Input) and named.selected_text == named.value
        return character == "?" and typed_first

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A field takes the `?`, so help is on F1 there."""
        if action in ("explain", "explain_while_typing"):
            return isinstance(self.focused, Input) == (action == "explain_while_typing")
        if action == "traceback":
            return self._failed is not None and self.message.problem is not None
        return super().check_action(action, parameters)

    def action_traceback(self) -> None:
        """Where in the program the error was raised; never shown by itself."""
        if self._failed is not None:
            problem, error = self._failed
            lines = traceback.format_exception(type(error), error, _from_ours(error.__traceback__))
            raw = wording.many_lines("".join(lines).rstrip())
            code = hashlib.sha256(raw.encode()).hexdigest()[:8]
            title = f"Traceback {code}"
            self.app.push_screen(
                Sheet(title, Content(f"{wording.one_line(said_problem(problem))}\n\n{raw}"))
            )

    def on_rows_clicked(self, event: Rows.Clicked) -> None:
        """A click marks a row; one on the marked row takes it."""
        if event.again:
            self.row_taken()

    def row_taken(self) -> None:
        """What a click on the marked row does: what Enter does, where a page has nothing else."""
        self.action_next()

    def action_accept(self) -> None:
        """Go on, once the focused field has taken the keys that came before Enter.

        Over a slow line they arrive together, and a field reads its keys later than this one.
        """
        (self.focused or self).call_later(self.action_next)

    def action_next(self) -> None:
        """What Enter does; each page has its own."""

    def dismiss(self, result: Answer | GoTo | Loaded | None = None) -> AwaitComplete:
        """Leave; what was typed is kept where that is no answer."""
        unanswered = result is None or isinstance(result, GoTo | Loaded)
        self.left_typed = self.typed() if unanswered else ""
        return super().dismiss(result)

    def as_they_are(self) -> Answers:
        """The answers on the page now, with what stands in its field."""
        if self.STEP is None or not self.is_mounted:
            return self.given
        return with_typed(self.answers, self.STEP, self.typed())

    def action_back(self) -> None:
        """Leave without a value."""
        self.dismiss(None)

    def action_go_to(self, number: int) -> None:
        """Leave for a page that was answered before."""
        self.dismiss(GoTo(step=ORDER[number - 1]))

    def action_scroll_page(self, lines_down: int) -> None:
        """Move the page where it is longer than the terminal."""
        for body in self.query("#body").results(VerticalScroll):  # the dashboard fills the screen
            body.scroll_relative(y=lines_down, animate=False)

    def action_explain(self) -> None:
        """What the page is about, and all its keys."""
        shown = [
            (self.app.get_key_display(active.binding), active.binding.tooltip)
            for active in self.active_bindings.values()
            if active.binding.tooltip
        ]
        title = self.QUESTION or self.PLACE
        self.app.push_screen(Help(title, self.help_text(), keys_once(shown), self.help_words()))

    def action_explain_while_typing(self) -> None:
        """The same, by the key that no field takes."""
        self.action_explain()

    def help_text(self) -> str:
        """What the focused widget is about, then the page."""
        focused = self.focused.id if self.focused is not None else None
        here = said(self.HELP_ON.get(focused or "", ""))
        return f"{here}\n\n{said(self.HELP_TEXT)}" if here else said(self.HELP_TEXT)

    def help_words(self) -> str:
        """Words that the page uses, explained below its keys; most pages need none."""
        return ""

    def show(self, selector: str, content: Content | str) -> None:
        """Replace the text of one Static, if it changed; what others wrote comes as Content."""
        shown = said(content) if isinstance(content, str) else content
        redraw(self.query_one(selector, Static), shown)
