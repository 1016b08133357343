"""Page 4: every way to train here, which one is best, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import OptionList

from wizard import wording
from wizard.answers import Answers, Goal
from wizard.facts import Facts
from wizard.glossary import defined, glossary
from wizard.language import said
from wizard.problem import Problem
from wizard.screens.exporting import Export, ExportVerbs
from wizard.screens.machines import pick_machine
from wizard.screens.planned import (
    GOALS,
    best_by_goal,
    changes,
    elsewhere,
    refusal,
    taken_before,
)
from wizard.screens.telling import OF_ROWS
from wizard.screens.verbs import Machines
from wizard.steps import Chosen, Step, again
from wizard.widgets.memory import LEGEND, parts_table
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel, name_box
from wizard.widgets.plans import (
    MEANINGS,
    ROOMY,
    comparison,
    explanation,
    plan_table,
    speed_line,
)
from wizard.widgets.sheet import Sheet
from wizard.widgets.table import Rows, Table, counted

if TYPE_CHECKING:
    from wizard.plan import Plan

SHEET_WIDTH = 106
SCROLL = "Scroll the page"
Smallest: TypeAlias = "Callable[[tuple[Plan, ...], Facts, Answers], tuple[str, Plan] | None]"
MakePlans: TypeAlias = "Callable[[Facts, Answers], tuple[Plan, ...]]"


class PlanPage(Page[Chosen]):
    """Leaves with the plan that was picked and the answers it came from."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.PLAN
    QUESTION = "Which way to train? The first is what the planner takes."
    HINT = "Enter takes the marked plan. Predicted memory is per rank."
    HELP_TEXT = (
        "Every plan is shown, also those that do not fit, with what they lack. `tight` leaves "
        "less than 5 % of the budget free. A plan that does not fit cannot be taken: a shorter "
        "max_length or a smaller model may make room. c marks a plan, c on another one compares "
        "the two; + shows the plans of another machine, + and Enter on nothing comes back."
    )
    HELP_ON: ClassVar[Mapping[str, str]] = {
        "rows": "Every way to train here, the best for the goal first. Up and Down mark one, Enter "
        "or a click on the marked row takes it."
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "goal", "Goal", id="plan.goal", tooltip="Rank by the next goal"),
        Binding("w", "why", "Why", id="plan.why", tooltip="Every number with its formula"),
        Binding("c", "compare", "Compare", id="plan.compare", tooltip="Two plans side by side"),
        Binding(
            "plus",
            "what_if",
            "What if",
            key_display="+",
            id="plan.what-if",
            tooltip="The plans of another machine",
        ),
        Binding(
            "x",
            "export",
            "Export",
            id="plan.export",
            tooltip="The marked plan in another form, into a file",
        ),
        Binding(
            "d",
            "give_back",
            "Give back",
            id="plan.give-back",
            show=False,
            tooltip="Give the settings that you fixed back to the planner",
        ),
        Binding("pagedown", "scroll(8)", id="plan.down", show=False, priority=True, tooltip=SCROLL),
        Binding("pageup", "scroll(-8)", id="plan.up", show=False, priority=True, tooltip=SCROLL),
    ]

    def __init__(
        self,
        make_plans: MakePlans,
        facts: Facts,
        answers: Answers,
        machines: Machines,
        *,
        exports: ExportVerbs,
        name_for: Callable[[Plan, Answers], str],
        before: Plan | None = None,
        stale: bool = False,
        smallest_full: Smallest | None = None,
    ) -> None:
        """`before` is the plan that was taken; it is `stale` once its ground has changed."""
        super().__init__()
        self._exports = exports
        self._name_for = name_for
        self._stale = stale
        self._make_plans = make_plans
        self._smallest_full = smallest_full
        self._here = facts
        self._facts = facts
        self._answers = answers
        self._machines = machines
        self._before = before
        self._plans: tuple[Plan, ...] = ()
        self._best: dict[Goal, str] = {}
        self._compared: Plan | None = None
        self._smallest = ""

    def body(self) -> ComposeResult:
        """The table, and why and memory of the marked row."""
        with Box("Plans", id="plans"):
            yield Table()
        with Horizontal(classes="columns"):
            yield Panel("Why", id="why")
            yield Panel("Predicted memory of a rank", id="memory")

    def on_mount(self) -> None:
        """Plan."""
        self.query_one(Rows).focus()
        self._plan()

    @property
    def answers(self) -> Answers:
        """With what was changed here."""
        return self._answers

    def so_far(self) -> Answers:
        """What was changed here."""
        return self._answers

    def on_resize(self) -> None:
        """Choose columns for the new width."""
        if self._plans:
            self._show_table(self.query_one(Rows).highlighted or 0)

    def help_text(self) -> str:
        """The text, and what the columns shown here mean."""
        columns, _ = plan_table(self._plans, self.size.width)
        meanings = [(c.title, MEANINGS[c.title]) for c in columns if c.title in MEANINGS]
        told = defined([*meanings, (said("bar"), LEGEND)])
        return "\n".join([super().help_text(), "", *told])

    def help_words(self) -> str:
        """Methods and ways to share a model out."""
        return glossary()

    def action_scroll(self, lines_down: int) -> None:
        """Move the page where it is longer than the terminal; the arrows move the mark."""
        self.query_one("#body").scroll_relative(y=lines_down, animate=False)

    def action_goal(self) -> None:
        """Rank by the next goal."""
        goal = GOALS[(GOALS.index(self._answers.goal) + 1) % len(GOALS)]
        self._answers = replace(self._answers, goal=goal)
        self._before = None
        self._plan()

    def action_give_back(self) -> None:
        """Let the planner choose what was fixed, which may not go with another model or data."""
        settings = self._answers.settings
        if self._given_back():
            kept = {name: value for name, value in settings.items() if name in OF_ROWS}
            self._answers = replace(self._answers, settings=kept)
            self._plan()

    def _given_back(self) -> list[str]:
        settings = self._answers.settings
        return [f"{k}={wording.setting(v)}" for k, v in settings.items() if k not in OF_ROWS]

    def refused(self, problem: Problem) -> None:
        """Fixed settings may be why: they can be given back."""
        if fixed := self._given_back():
            given_back = f"d gives back what you fixed: {', '.join(fixed)}"
            problem = replace(problem, fix="; ".join(filter(None, (problem.fix, given_back))))
        super().refused(problem)

    def action_why(self) -> None:
        """Every number of the marked plan; what would move it follows when it is planned."""
        plan = self._marked()
        if plan is None:
            return
        facts, answers = self._facts, self._answers
        width = min(SHEET_WIDTH, self.size.width - 10)
        sheet = Sheet("Why these numbers", explanation(plan, facts, width, None))
        self.app.push_screen(sheet)
        self.ask_beside(
            lambda: changes(plan, lambda changed: self._make_plans(facts, changed), answers),
            lambda made: sheet.show(explanation(plan, facts, width, made)),
            "what moves it",
        )

    def action_export(self) -> None:
        """Write the marked plan in another form, if it fits and is of this machine."""
        plan = self._marked()
        if self.busy or plan is None:
            return
        if self._facts is not self._here or not plan.fits:
            other = self._facts is not self._here
            self.message.refuse(elsewhere(self._facts.machine) if other else refusal(plan))
            return
        chosen = Chosen(answers=self._answers, plan=plan, others=self._plans)
        name, facts = self._name_for(plan, self._answers), self._facts
        Export(page=self, verbs=self._exports, chosen=chosen, facts=facts, name=name).begin()

    def action_compare(self) -> None:
        """Remember the marked plan, or show it beside the one remembered."""
        plan, other = self._marked(), self._compared
        if plan is None:
            return
        if other is None or other is plan:
            self._compared = plan if other is None else None
            told = (
                f"c on another plan compares it with {plan.title}" if other is None else self.HINT
            )
            self.message.say(told)
            return
        self._compared = None
        self.message.rest()
        width = min(SHEET_WIDTH, self.size.width - 10)
        self.app.push_screen(Sheet("Two plans", comparison(other, plan, width)))

    def action_what_if(self) -> None:
        """Ask for a machine and show its plans; the ones of this machine come back by no name."""

        def look(name: str | None) -> None:
            if name is None:
                return
            self.ask(lambda: self._machines.find(name), self._look_at, f"looking up {name}")

        if self._facts is self._here:
            pick_machine(self, self._machines, look)
        else:
            self._look_at(self._here)

    def action_next(self) -> None:
        """Leave with the marked plan, if it fits and is of this machine."""
        plan = self._marked()
        if self.busy or plan is None:
            return
        if self._facts is not self._here:
            self.message.refuse(elsewhere(self._facts.machine))
        elif plan.fits:
            self.dismiss(Chosen(answers=self._answers, plan=plan, others=self._plans))
        else:
            self.message.refuse(refusal(plan))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Explain the marked plan."""
        if event.option_index < len(self._plans):
            self._explain(self._plans[event.option_index])

    def _look_at(self, machine: Facts) -> None:
        known = self._here
        if machine is known:
            self._facts = known
        else:
            self._facts = replace(machine, model=known.model, dataset=known.dataset)
        self._compared = None
        self._plan()

    def _marked(self) -> Plan | None:
        marked = self.query_one(Rows).highlighted
        return self._plans[marked] if marked is not None and marked < len(self._plans) else None

    def _plan(self) -> None:
        facts, answers = self._facts, self._answers

        def make() -> tuple[tuple[Plan, ...], dict[Goal, str]]:
            made = self._make_plans(facts, answers)
            return made, best_by_goal(lambda a: self._make_plans(facts, a), answers, made)

        self.ask(make, self._show, "planning")

    def _show(self, made: tuple[tuple[Plan, ...], dict[Goal, str]]) -> None:
        from wizard.plan import speeds_unknown  # loaded by then

        self._plans, self._best = made
        plans = self._plans
        fitting = sum(plan.fits for plan in plans)
        where = "" if self._facts is self._here else f" on {self._facts.machine}, what if"
        shown = GOALS if self.size.width >= ROOMY else (self._answers.goal,)
        unknown = {"fastest": "fastest (unknown)"} if speeds_unknown(plans) else {}
        goals = "  ".join(
            f"[{name}]" if g == self._answers.goal else name
            for g, name in ((g, unknown.get(g, g)) for g in shown)
        )
        title = f"Plans{where} ({fitting} of {len(plans)} fit)   goal: {goals}"
        if self._smallest_full is not None and self._facts is self._here:
            find, answers = self._smallest_full, self._answers
            self.ask_beside(
                lambda: find(plans, self._here, answers), self._tell_smallest, "smallest"
            )
        name_box(self.query_one("#plans"), title, LEGEND if self.size.width >= ROOMY else "")
        kept = again(self._before, plans) if self._before else None
        taken = kept is not None and kept.fits and not self._stale
        self._show_table(plans.index(kept) if kept is not None and taken else 0)
        if self._before is not None and not taken:
            self.message.refuse(taken_before(self._before, kept))

    def _tell_smallest(self, found: tuple[str, Plan] | None) -> None:
        """Which machine would tune all weights, where this one cannot on its devices."""
        if found is None:
            self._smallest = ""
            return
        machine, plan = found
        need = wording.gib_of(plan.memory.device_bytes, plan.memory.device_budget_bytes)
        self._smallest = f"smallest known machine for full tuning: {machine}, {need} a rank"
        marked = self._marked()
        if marked is not None:
            self._explain(marked)

    def _show_table(self, marked: int) -> None:
        columns, rows = plan_table(self._plans, self.size.width)
        self.query_one(Table).show(columns, rows, marked)

    def _explain(self, plan: Plan) -> None:
        self.show("#why", self._why(plan))
        left_out = [wording.one_line(said(f"not in it: {part}")) for part in plan.memory.left_out]
        width = max(self.size.width // 2 - 4, 30)
        self.show("#memory", "\n".join([parts_table(plan.memory, width), *left_out]))

    def _why(self, plan: Plan) -> Content:
        title = Content.styled(wording.one_line(said(plan.title)), "bold")
        problems = [problem_line(problem) for problem in plan.problems]
        training, devices = plan.spec.training, plan.spec.parallel.num_devices
        batch = (
            f"batch: {training.per_device_train_batch_size} × "
            f"{training.gradient_accumulation_steps} × {counted(devices, 'device')} = "
            f"{training.effective_batch_size}, {counted(plan.steps, 'step')}"
            f"{', recomputing' if training.gradient_checkpointing else ''}"
        )
        others = [
            f"{goal}: {'stays' if best == plan.title else best or 'speeds are unknown'}"
            for goal, best in self._best.items()
            if goal != self._answers.goal
        ]
        how = wording.how_to_know_speeds(self._facts.machine)
        ways_out = [f"would fit: {way}" for way in plan.would_fit]
        told = [*ways_out, *plan.why, batch, speed_line(plan)]
        if plan.tokens_per_second is None:
            told.append(f"speeds: {how}")
        if others and plan is self._plans[0]:
            told.append("the pick by goal: " + "; ".join(others))
        if self._smallest and self._facts is self._here:
            told.append(self._smallest)
        return Content("\n").join(
            [title, *problems, *(Content(wording.one_line(said(s))) for s in told)]
        )
