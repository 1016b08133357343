"""Page 5: the few settings that matter, with the effect of changing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.content import Content
from textual.timer import Timer
from textual.widgets import Input

from wizard import wording
from wizard.answers import Answers
from wizard.problem import Problem
from wizard.steps import Chosen, Step, again
from wizard.widgets.field import Field
from wizard.widgets.memory import budget_line
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel
from wizard.widgets.plans import values_of
from wizard.widgets.table import counted

if TYPE_CHECKING:
    from wizard.plan import Plan

LABELS: Mapping[str, str] = {
    "learning_rate": "learning rate",
    "num_train_epochs": "epochs",
    "effective_batch_size": "effective batch",
    "max_length": "max length",
    "lora_rank": "LoRA rank",
    "lr_scheduler_type": "schedule",
    "save_steps": "save every",
    "seed": "seed",
}
RUN_NAME = "run_name"
REPLAN_SECONDS = 0.2


class TunePage(Page[Chosen]):
    """Leaves with the answers as edited and the plan made from them."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.TUNE
    QUESTION = "Change what you like; the planner chooses the rest."
    HINT = "Type to fix a value, empty it to give it back. Tab moves, Enter goes on."
    HELP_TEXT = (
        "A muted value is planned. What you type is fixed and checked as you type, and the plan is "
        "made anew with it; Ctrl+U empties a field, and the planner chooses again. The effective "
        "batch is rows per optimizer step over all ranks; how it is split follows from memory. "
        "Every other setting can be given on the command line with --set."
    )

    def __init__(
        self,
        make_plans: Callable[[Answers], tuple[Plan, ...]],
        chosen: Chosen,
        suggested_name: str,
    ) -> None:
        super().__init__()
        self._make_plans = make_plans
        self._before = chosen.plan
        self._chosen: Chosen | None = chosen
        self._answers = chosen.answers
        self._suggested_name = suggested_name
        self._refused: dict[str, str] = {}
        self._debounce: Timer | None = None
        self._leaving = False

    def body(self) -> ComposeResult:
        """The fields, and the effect."""
        with Box("Settings", id="settings"):
            for setting, label in LABELS.items():
                if setting != "lora_rank" or self._before.spec.method.method != "full":
                    yield self._field(setting, label)
            name = self._answers.run_name
            yield Field(RUN_NAME, "run name", self._suggested_name, "the name of its folder", name)
        yield Panel("Effect", id="effect")

    def on_mount(self) -> None:
        """Start in the first field."""
        self.query(Input).first().focus()
        self._show_effect(self._before)

    def on_field_edited(self, event: Field.Edited) -> None:
        """Check the value; plan anew when it is good."""
        wrong = self._take(event.setting, event.text.strip())
        self._field_of(event.setting).refuse(wrong is not None)
        self._refused.pop(event.setting, None)
        if wrong is not None:
            self._refused[event.setting] = wrong
        self._tell_refused()
        if wrong is not None:
            return
        self._chosen = None
        if self._debounce is not None:
            self._debounce.stop()
        self._debounce = self.set_timer(REPLAN_SECONDS, self._plan)

    def action_next(self) -> None:
        """Leave once everything is good and planned."""
        if self._refused:
            self._tell_refused()
        elif self._chosen is None:
            self._leaving = True
        else:
            self._leave(self._chosen)

    def refused(self, problem: Problem) -> None:
        """The settings contradict each other: nothing to leave with."""
        self._leaving = False
        self.show("#effect", problem_line(problem))
        super().refused(problem)

    def _tell_refused(self) -> None:
        """The newest error in full, for the rows have no room for it."""
        if self._refused:
            self.message.refuse(Problem(what=list(self._refused.values())[-1]))
        else:
            self.message.rest()

    def _field(self, setting: str, label: str) -> Field:
        planned = wording.setting(values_of(self._before)[setting])
        settings = self._answers.settings
        fixed = wording.setting(settings[setting]) if setting in settings else None
        return Field(setting, label, planned, self._before.reasons.get(setting, ""), fixed)

    def _field_of(self, setting: str) -> Field:
        return self.query_one(f"#field-{setting.replace('_', '-')}", Field)

    def _take(self, setting: str, text: str) -> str | None:
        """Put a value into the answers, or take it out; what is wrong with it, or None."""
        from engine.spec import SpecError, parse_setting

        if setting == RUN_NAME:
            self._answers = replace(self._answers, run_name=text or None)
            return "a run needs a name without `/`" if "/" in text else None
        settings = {k: v for k, v in self._answers.settings.items() if k != setting}
        if text:
            try:
                settings[setting] = parse_setting(setting, text)[1]
            except SpecError as error:
                return str(error)
        self._answers = replace(self._answers, settings=settings)
        return None

    def _plan(self) -> None:
        answers = self._answers
        self.ask(lambda: (answers, self._make_plans(answers)), self._planned, "planning anew")

    def _planned(self, made: tuple[Answers, tuple[Plan, ...]]) -> None:
        answers, plans = made
        plan = again(self._before, plans)
        if plan is None:
            self.refused(Problem(what="no plan of this kind is left", fix="undo the last change"))
            return
        if answers is not self._answers:
            return
        self._chosen = Chosen(answers=answers, plan=plan)
        self._show_effect(plan)
        self._show_planned(plan)
        if self._refused:
            self._tell_refused()
        elif self._leaving:
            self._leave(self._chosen)

    def _leave(self, chosen: Chosen) -> None:
        self._leaving = False
        if chosen.plan.fits:
            name = chosen.answers.run_name or self._suggested_name
            answers = replace(chosen.answers, run_name=name)
            self.dismiss(Chosen(answers=answers, plan=chosen.plan))
            return
        self.message.refuse(
            Problem(what=f"does not fit: {budget_line(chosen.plan)}", fix="a smaller value fits")
        )

    def _show_planned(self, plan: Plan) -> None:
        """The newly planned value and its reason at every field."""
        values = values_of(plan)
        for field in self.query(Field):
            if field.setting != RUN_NAME:
                reason = plan.reasons.get(field.setting, "")
                field.show_planned(wording.setting(values[field.setting]), reason)

    def _show_effect(self, plan: Plan) -> None:
        before, now = values_of(self._before), values_of(plan)
        changed = [
            f"{name} {wording.setting(before[name])} → {wording.setting(now[name])}"
            for name in now
            if now[name] != before[name]
        ]
        training = plan.spec.training
        rows = [
            f"memory   {budget_line(plan)}",
            f"steps    {wording.count(plan.steps)}",
            f"batch    {training.per_device_train_batch_size} per device × "
            f"{training.gradient_accumulation_steps} accumulation × "
            f"{counted(plan.spec.parallel.num_devices, 'device')} = "
            f"{training.effective_batch_size}",
            f"changed  {', '.join(changed) or 'nothing'}",
        ]
        problems = [problem_line(problem) for problem in plan.problems]
        shown = [Content(wording.one_line(row)) for row in rows]
        self.show("#effect", Content("\n").join([*shown, *problems]))
