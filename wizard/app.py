"""The app: theme, global keys and the page loop; what it does to the world comes in as Verbs."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from textual import events, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import Screen

from wizard.answers import Answers
from wizard.facts import Facts
from wizard.language import said, said_problem
from wizard.problem import ProblemError
from wizard.screens.pages import Look, page_for
from wizard.screens.start import StartPage
from wizard.screens.verbs import RunSummary, Verbs
from wizard.steps import (
    BEFORE_RUN,
    ORDER,
    GoTo,
    InForeground,
    Loaded,
    Resumed,
    Step,
    Walk,
    answered,
    back,
    back_to,
    begin,
    keeping,
    loaded,
    skipped,
    with_typed,
)
from wizard.widgets.aside import aside
from wizard.widgets.page import Page, problem_from
from wizard.widgets.question import Question
from wizard.widgets.terminal import patient
from wizard.widgets.theme import CALM
from wizard.widgets.too_small import TooSmall, is_too_small

Value = TypeVar("Value")
LEAVE = "Leave tunewright? Answers are kept, and runs go on."
SWITCH_SECONDS = 0.001
"""A key waits no longer for a thread that plans; Python's own 5 ms add up at every hand-over."""
GARBAGE_AFTER = (20_000, 20, 50)
"""Objects made until garbage is looked for, and looks until an older generation has its turn: with
Python's own 700, 10 and 10 a long look held one key in twenty up by 30 ms."""
LEAVING = ("leave", "stay")
OF_LAST_RUN = "From your last run."

__all__ = ["TunewrightApp", "Verbs"]


class TunewrightApp(App[Path]):
    """Returns the folder of the run that was last seen, or None when there was none."""

    TITLE = "tunewright"
    CSS_PATH = Path(__file__).with_suffix(".tcss")
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 – Textual's own annotation forbids ClassVar
        (0, "-tiny"),
        (60, "-narrow"),
        (80, "-std"),
        (120, "-wide"),
        (140, "-full"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012
        (0, "-flat"),
        (16, "-low"),
        (24, "-mid"),
        (36, "-tall"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "ctrl+l",
            "presets",
            "Presets",
            id="app.presets",
            show=False,
            tooltip="Load a preset, or save what is fixed as one",
        ),
        Binding(
            "ctrl+q", "quit", "Quit", id="app.quit", priority=True, tooltip="Quit; a run goes on"
        ),
    ]

    def __init__(
        self,
        verbs: Verbs,
        *,
        attach: Path | None = None,
        facts: Facts | None = None,
        answers: Answers | None = None,
        leave_when_done: bool = False,
        keymap: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.set_keymap(dict(keymap or {}))
        self._verbs = verbs
        self._look = Look(clock=clock, leave_when_done=leave_when_done, in_wizard=attach is None)
        self._walk = begin(facts, answers or Answers(), attach)
        self.foreground = False
        """Whether the run that is returned is yet to be started, in the terminal."""
        self._last: Answers | None = None
        """What a new run began with, of the run before it."""
        self.watched = attach
        """The run that is looked at."""

    def get_driver_class(self) -> type[Driver]:
        """What reads this terminal."""
        return patient(super().get_driver_class())

    def refresh(
        self, *, repaint: bool = True, layout: bool = False, recompose: bool = False
    ) -> Self:
        """Draw the screen; the toolkit also lays it out anew once a box over it is gone."""
        laid_out = bool(self._screen_stack) and self.screen._compositor.size == self.size
        return super().refresh(repaint=repaint, layout=layout and not laid_out, recompose=recompose)

    def _print_error_renderables(self) -> None:
        """The command tells an error in a line, not Textual's picture of every variable."""

    def on_mount(self) -> None:
        """Theme, then the first page."""
        sys.setswitchinterval(SWITCH_SECONDS)
        gc.set_threshold(*GARBAGE_AFTER)
        self.register_theme(CALM)
        if "TEXTUAL_THEME" not in os.environ:
            self.theme = CALM.name
        self.walk_pages()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: all that keys do here, the pages gone through, then the app's own."""
        offered = set()
        for active in screen.active_bindings.values():
            binding = active.binding
            does = (binding.tooltip, binding.action.partition("(")[2])  # several keys do the same
            if binding.tooltip and active.enabled and binding.id != "app.quit":
                if does in offered:
                    continue
                offered.add(does)
                act = partial(self.run_action, binding.action, active.node)
                yield SystemCommand(binding.description or binding.tooltip, binding.tooltip, act)
        if isinstance(screen, Page) and screen.STEP is not None:
            for step in ORDER[: screen.STEP.number - 1] if screen.STEP in BEFORE_RUN else ():
                name = said(f"Go to {step.number} {step.value}")
                go = partial(screen.action_go_to, step.number)
                yield SystemCommand(name, said("Later answers are kept"), go)
        for own in super().get_system_commands(screen):
            yield SystemCommand(said(own.title), said(own.help), own.callback)

    @work(name="walk")
    async def walk_pages(self) -> None:
        """Ask the pages that are still to ask, one after the other, then leave."""
        walk = self._walk if self._walk.run else await self._start(self._walk)
        before: Step | None = None
        while walk is not None and walk.pending:
            step = walk.pending[0]
            page = page_for(step, walk, self._verbs, self._look)
            page.marks, page.given = walk.marks, walk.answers
            page.offline = bool(self._verbs.offline)
            page.typed_before = walk.answers.typed.get(step.value, "")
            page.notice = _given(skipped(walk, before, step)) or self._of_last_run(walk, step)
            before = step
            answer = await self.push_screen_wait(page)
            walk = replace(walk, answers=with_typed(walk.answers, step, page.left_typed))
            if step is Step.HARDWARE and answer is None:
                walk = await self._before_the_first(walk)
                continue
            if answer is None or isinstance(answer, GoTo):
                walk = keeping(walk, page.so_far())
            walk = self._turn(walk, step, answer)
            self.watched = walk.run
            await self._keep(walk, step)
        self.exit(walk.run if walk else None)

    async def on_event(self, event: events.Event) -> None:
        """What is typed reaches a page that is seen; help in a field comes before the field."""
        typed = isinstance(event, events.Key | events.Paste) and not event.is_forwarded
        if typed and is_too_small(self.size) and self.screen.query(TooSmall):
            key = event.key if isinstance(event, events.Key) else ""
            active = self.screen.active_bindings.get(key)
            if active is None or active.binding.id != "app.quit":
                return
        if typed and isinstance(event, events.Key) and self._asks_for_help(event):
            return
        await super().on_event(event)

    def _asks_for_help(self, key: events.Key) -> bool:
        """Whether a key asked for the help of the page, which it then has."""
        page = self.screen
        if not isinstance(page, Page) or not page.asks_for_help(key.character):
            return False
        page.action_explain()
        return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Presets are for the pages that lead to a run."""
        if action == "presets":
            return isinstance(self.screen, Page) and self.screen.STEP in BEFORE_RUN
        return super().check_action(action, parameters)

    @work(name="presets")
    async def action_presets(self) -> None:
        """Load a preset into the answers of the page at hand, or save them as one."""
        from wizard.api import with_preset
        from wizard.screens import presets  # what reads them takes long to load

        page = self.screen
        found = await self._told(self._verbs.presets)
        if found is None or not isinstance(page, Page):
            return
        if (wrong := page.unfinished()) is not None:
            page.message.refuse(wrong)
            return
        name = await self.push_screen_wait(presets.picker(found, page.answers))
        preset = next((one for one in found if one.name == name), None)
        if preset is not None:
            self.notify(presets.told(preset, page.answers), markup=False)
            answers = with_preset(page.as_they_are(), preset)
            page.dismiss(Loaded(answers=answers, so_far=page.so_far()))
        elif name == presets.SAVE:
            name = await self.push_screen_wait(presets.prompt(found, page.answers))
            made = None if name is None else presets.made(name, page.answers)
            path = (
                None if made is None else await self._told(partial(self._verbs.save_preset, made))
            )
            if path is not None:
                page.message.say(f"saved: {path}; tunewright presets list shows it")

    async def _start(self, walk: Walk) -> Walk | None:
        """The walk after the start page; None when it was left."""
        if walk.facts is not None or walk.answers != Answers():
            return walk
        runs, kept = await self._before()
        if not runs and kept is None:
            return walk
        return await self._from_start(walk, runs, kept)

    async def _before_the_first(self, walk: Walk) -> Walk | None:
        """Back from the first page: the start page, or without one a question; None leaves."""
        runs, kept = await self._before()
        if runs or kept is not None:
            return await self._from_start(walk, runs, kept)
        return None if await self.push_screen_wait(Question(LEAVE, LEAVING)) == 0 else walk

    async def _before(self) -> tuple[tuple[RunSummary, ...], Answers | None]:
        """Runs there are, and answers that were kept."""
        return (
            await self._told(self._verbs.list_runs) or (),
            await self._told(self._verbs.kept_answers),
        )

    async def _from_start(
        self, walk: Walk, runs: tuple[RunSummary, ...], kept: Answers | None
    ) -> Walk | None:
        while (choice := await self.push_screen_wait(StartPage(runs, kept))) is None:
            if await self.push_screen_wait(Question(LEAVE, LEAVING)) == 0:
                return None
        match choice:
            case "continue" if kept is not None:
                return begin(None, kept)
            case Path():
                return replace(walk, run=choice)
        self._last = await self._told(self._verbs.last_run)
        return begin(walk.facts, self._last or Answers())

    def _of_last_run(self, walk: Walk, step: Step) -> str:
        """What to say of an answer that was filled in and not seen yet."""
        last, now = self._last or Answers(), walk.answers
        answers = {Step.MODEL: (last.model, now.model), Step.DATA: (last.data, now.data)}
        before, here = answers.get(step, (None, None))
        return OF_LAST_RUN if here and here == before and step not in walk.seen else ""

    async def action_quit(self) -> None:
        """Leave at once; what stands on the page is kept as well as the answers before it."""
        page = next((one for one in reversed(self.screen_stack) if isinstance(one, Page)), None)
        if page is not None and page.STEP in BEFORE_RUN:
            answers = page.as_they_are()
            if answers != page.given:  # else they are kept already, or none of them is the user's
                await self._told(lambda: self._verbs.keep_answers(answers))
        self.exit()

    async def _keep(self, walk: Walk, step: Step) -> None:
        """Keep the answers for the next time, until there is a run of them."""
        if step in BEFORE_RUN:
            answers = None if walk.run else walk.answers
            await self._told(lambda: self._verbs.keep_answers(answers))

    async def _told(self, call: Callable[[], Value]) -> Value | None:
        """What a call gives; None when it fails, which is told and holds nothing up."""
        try:
            return await aside(call)
        except (ProblemError, OSError) as error:
            told = said_problem(problem_from(error))
            self.notify(told, severity="warning", markup=False)
            return None

    def _turn(self, walk: Walk, step: Step, answer: Any) -> Walk:
        """The walk after a page was left, by its answer or by going back."""
        match step, answer:
            case Step.RUN, None:
                return replace(walk, done=frozenset(Step))
            case Step.RUN, _ if self._look.leave_when_done:
                return replace(walk, done=frozenset(Step))
            case Step.FINISH, "new":
                return begin(walk.facts, replace(walk.answers, run_name=None))
            case _, Resumed():
                return back_to(walk, Step.RUN)
            case _, InForeground():
                self.foreground = True
            case _, Loaded():
                return loaded(walk, step, answer)
            case _, GoTo(step=earlier):
                return back_to(walk, earlier)
            case _, None:
                return back(walk, step)
        return answered(walk, step, answer)


def _given(steps: tuple[Step, ...]) -> str:
    """Which pages were passed over, in words."""
    names = " and ".join(step.value for step in steps)
    if len(steps) == 1:
        return f"{names} is known already and not asked; Esc goes there."
    return f"{names} are known already and not asked; Esc goes there." if steps else ""
