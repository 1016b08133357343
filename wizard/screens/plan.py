"""Page 4: every way to train here, which one is best, and why."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, get_args

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import OptionList, Static

from wizard import wording
from wizard.answers import Answers, Goal
from wizard.problem import Problem
from wizard.steps import Chosen, Step, again
from wizard.widgets.memory import fit_word, margin, parts_table
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel, name_box
from wizard.widgets.table import Column, Rows, lines

if TYPE_CHECKING:
    from wizard.plan import Plan

NARROW, ROOMY, WIDE = 76, 96, 110
"""From the first width on the batch is shown, from the second a bar, from the third more."""
MEANINGS = {
    "fits": "whether predicted memory keeps to the budget; `+` by how many GiB it does not",
    "GiB, budget": "predicted memory of a rank, and what a rank may use",
    "by": "how much is free, or over",
    "batch": "rows a rank holds at once × how often it gathers before a step",
    "steps": "optimizer steps of the run",
}
GOALS: tuple[Goal, ...] = get_args(Goal)


class PlanPage(Page[Chosen]):
    """Leaves with the plan that was picked and the answers it came from."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.PLAN
    QUESTION = "Which way to train? The first one is what the planner would take."
    HINT = "Enter takes the marked plan. Predicted memory is per rank."
    HELP_TEXT = (
        "Every plan is shown, also those that do not fit, with what they lack. `tight` leaves "
        "less than 5 % of the budget free. A plan that does not fit cannot be taken: a shorter "
        "max_length or a smaller model may make room."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "goal", "Goal", id="plan.goal", tooltip="Quality, fastest, least memory"),
    ]

    def __init__(
        self,
        make_plans: Callable[[Answers], tuple[Plan, ...]],
        answers: Answers,
        *,
        before: Plan | None = None,
    ) -> None:
        super().__init__()
        self._make_plans = make_plans
        self._answers = answers
        self._before = before
        self._plans: tuple[Plan, ...] = ()

    def body(self) -> ComposeResult:
        """The table, and why and memory of the marked row."""
        with Box("Plans", id="plans"):
            yield Static(id="head", markup=False)
            yield Rows(id="rows")
        with Horizontal(classes="columns"):
            yield Panel("Why", id="why")
            yield Panel("Predicted memory of a rank", id="memory")

    def on_mount(self) -> None:
        """Plan."""
        self.query_one(Rows).focus()
        self._plan()

    def on_resize(self) -> None:
        """Choose columns for the new width."""
        if self._plans:
            self._show_table(self.query_one(Rows).highlighted or 0)

    def help_text(self) -> str:
        """The text, and what the columns shown here mean."""
        columns, _ = plan_table(self._plans, self.size.width)
        meanings = [f"{c.title}: {MEANINGS[c.title]}" for c in columns if c.title in MEANINGS]
        return "\n".join([self.HELP_TEXT, "", *meanings])

    def action_goal(self) -> None:
        """Rank by the next goal."""
        goal = GOALS[(GOALS.index(self._answers.goal) + 1) % len(GOALS)]
        self._answers = replace(self._answers, goal=goal)
        self._plan()

    def action_next(self) -> None:
        """Leave with the marked plan, if it fits."""
        marked = self.query_one(Rows).highlighted
        if self.busy or marked is None:
            return
        plan = self._plans[marked]
        if plan.fits:
            self.dismiss(Chosen(answers=self._answers, plan=plan))
        else:
            self.message.refuse(_refusal(plan))

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Explain the marked plan."""
        if event.option_index < len(self._plans):
            self._explain(self._plans[event.option_index])

    def _plan(self) -> None:
        answers = self._answers
        self.ask(lambda: self._make_plans(answers), self._show, "planning")

    def _show(self, plans: tuple[Plan, ...]) -> None:
        self._plans = plans
        fitting = sum(plan.fits for plan in plans)
        title = f"Plans ({fitting} of {len(plans)} fit)   goal: {self._answers.goal}"
        name_box(self.query_one("#plans"), title)
        kept = again(self._before, plans) if self._before else None
        self._show_table(plans.index(kept) if kept else 0)

    def _show_table(self, marked: int) -> None:
        columns, rows = plan_table(self._plans, self.size.width)
        head, *body = lines(columns, rows, max(self.size.width - 9, 40))
        self.show("#head", Content.styled("  " + head, "$foreground-muted"))
        self.query_one(Rows).show(body, marked)

    def _explain(self, plan: Plan) -> None:
        title = Content.styled(wording.one_line(plan.title), "bold")
        problems = [problem_line(problem) for problem in plan.problems]
        reasons = [Content(f"{wording.one_line(reason)}") for reason in plan.why]
        self.show("#why", Content("\n").join([title, *problems, *reasons]))
        left_out = [f"not in it: {wording.one_line(part)}" for part in plan.memory.left_out]
        width = max(self.size.width // 2 - 4, 30)
        self.show("#memory", "\n".join([parts_table(plan.memory, width), *left_out]))


def plan_table(
    plans: tuple[Plan, ...], width: int
) -> tuple[tuple[Column, ...], list[tuple[str, ...]]]:
    """Columns and rows for a screen of this width."""
    wide = width >= WIDE
    shown: list[tuple[Column, Callable[[Plan], str]]] = [
        (Column(title="plan", flexible=True, keep_end=True), lambda plan: plan.title),
        (Column(title="fits"), fit_word if wide else _fit_and_margin),
        (Column(title="GiB, budget", right=True), _used_of_budget),
    ]
    if width >= ROOMY:
        shown.append((Column(title=""), lambda plan: _bar(plan, 20 if wide else 10)))
    if wide:
        shown.append((Column(title="by", right=True), margin))
    if width >= NARROW:
        shown.append((Column(title="batch", right=True), _batch))
    shown.append((Column(title="steps", right=True), lambda plan: wording.cell(plan.steps)))
    rows = [tuple(cell(plan) for _, cell in shown) for plan in plans]
    return tuple(column for column, _ in shown), rows


def _used_of_budget(plan: Plan) -> str:
    memory = plan.memory
    return f"{_gib(memory.device_bytes)} / {_gib(memory.device_budget_bytes)}"


def _gib(memory_bytes: int | None) -> str:
    return wording.gib(memory_bytes).removesuffix(" GiB")


def _bar(plan: Plan, width: int) -> str:
    return wording.bar(plan.memory.device_bytes, plan.memory.device_budget_bytes, width)


def _batch(plan: Plan) -> str:
    training = plan.spec.training
    return f"{training.per_device_train_batch_size}×{training.gradient_accumulation_steps}"


def _fit_and_margin(plan: Plan) -> str:
    over = plan.memory.over_bytes
    return f"{fit_word(plan)} +{_gib(over)}" if over > 0 else fit_word(plan)


def _refusal(plan: Plan) -> Problem:
    errors = [problem for problem in plan.problems if problem.severity == "error"]
    if errors and plan.memory.fits:
        return errors[0]
    return Problem(
        what=f"{plan.title} does not fit: {margin(plan)} of what a rank may use",
        fix="take one that fits, or go back for a smaller model",
    )
