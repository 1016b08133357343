"""Page 5: the few settings that matter, with the effect of changing them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.events import DescendantFocus
from textual.widgets import Input

from wizard import wording
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.glossary import glossary
from wizard.language import foreign, said
from wizard.presets import TEXTS
from wizard.problem import Problem
from wizard.settings import every_setting, setting
from wizard.steps import Chosen, Step, again
from wizard.widgets.about import about
from wizard.widgets.effect import effect
from wizard.widgets.field import Field
from wizard.widgets.memory import budget_line
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel
from wizard.widgets.picker import Choice, Picker, matching
from wizard.widgets.plans import values_of

if TYPE_CHECKING:
    from wizard.plan import Decision, Plan

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
LETTERS = {"find": "/", "undo": "z", "redo": "y", "defaults": "d", "accept_warnings": "!"}
"""Action → the character that does it where no value can hold it."""
RUN_NAME = "run_name"
SHORTEST_LABEL = 18


class TunePage(Page[Chosen]):
    """Leaves with the answers as edited and the plan made from them."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.TUNE
    QUESTION = "Change what you like; the planner chooses the rest."
    HINT = "Type to fix a value, empty it to give it back. Tab moves, / finds any setting."
    HELP_TEXT = (
        "A muted value is planned. What you type is fixed and checked as you type, and the plan is "
        "made anew with it. In a field that was entered, typing replaces the value, and arrows or "
        "End edit it; Backspace empties it, and the planner chooses again. The effective "
        "batch is rows per optimizer step over all ranks; how it is split follows from memory. "
        "/ finds every other setting, also by its name in Hugging Face, ms-swift, LLaMA-Factory "
        "and axolotl. z takes back the last change, y does it again, d gives all values back. "
        "A warning stays until its value is changed or you accept it with !, which a file of the "
        "run then says; an error is never accepted."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "find",
            "Find",
            key_display="/",
            id="tune.find",
            priority=True,
            tooltip="Find any setting by its name here or elsewhere",
        ),
        Binding("z", "undo", "Undo", id="tune.undo", priority=True, tooltip="Undo a change"),
        Binding("y", "redo", "Redo", id="tune.redo", priority=True, show=False, tooltip="Redo it"),
        Binding(
            "d",
            "defaults",
            "Defaults",
            id="tune.defaults",
            priority=True,
            tooltip="Give every value back to the planner",
        ),
        Binding(
            "exclamation_mark",
            "accept_warnings",
            "Accept",
            key_display="!",
            id="tune.accept",
            priority=True,
            tooltip="Accept the warnings; a file beside the script says so",
        ),
    ]

    def __init__(
        self,
        make_plans: Callable[[Answers], tuple[Plan, ...]],
        chosen: Chosen,
        suggested_name: str,
        facts: Facts,
    ) -> None:
        super().__init__()
        self._make_plans = make_plans
        self._facts = facts
        self._before = chosen.plan
        self._chosen: Chosen | None = chosen
        self._answers = chosen.answers
        self._suggested_name = suggested_name
        self._refused: dict[str, str] = {}
        self._undone: list[Answers] = []
        self._done: list[Answers] = []
        self._last_edited: str | None = None
        self._asked_for: Answers | None = None
        """What is being planned; what is typed meanwhile is planned together after it."""
        self._leaving = False

    def body(self) -> ComposeResult:
        """The fields, the setting at hand where there is room, and the effect."""
        with Horizontal(id="upper"):
            with Box("Settings", id="settings"):
                for name in self._shown():
                    yield self._field(name)
                given = self._answers.run_name
                why = "you fixed it" if given else "its folder's name"
                yield Field(RUN_NAME, "run name", self._suggested_name, why, given)
            yield Panel("About", id="about")
        yield Panel("Effect", id="effect")

    def on_mount(self) -> None:
        """Start in the first field."""
        self.query(Input).first().focus()
        self._align()
        self._show_effect(self._before)

    @property
    def answers(self) -> Answers:
        """With what was changed here."""
        return self._answers

    def so_far(self) -> Answers:
        """What was changed here."""
        return self._answers

    def unfinished(self) -> Problem | None:
        """A value that was typed and cannot be used."""
        return Problem(what=list(self._refused.values())[-1]) if self._refused else None

    def on_resize(self) -> None:
        """The effect is a table of the page's width."""
        if self._chosen is not None:
            self._show_effect(self._chosen.plan)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """Explain the field that was entered."""
        self._last_edited = None
        field = self._focused_field()
        if field is not None:
            self.show("#about", self._about(field.setting))

    def help_text(self) -> str:
        """The setting at hand, then the page."""
        field = self._focused_field()
        here = [foreign(self._about(field.setting).plain)] if field else []
        return "\n\n".join([*here, said(self.HELP_TEXT)])

    def help_words(self) -> str:
        """What settings are about."""
        return glossary()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Where text is typed, letters are text."""
        if action == "accept_warnings" and not self._to_accept():
            return False
        if action in LETTERS:
            field = self._focused_field()
            return field is None or not _may_hold(field.setting, LETTERS[action])
        return super().check_action(action, parameters)

    def on_field_edited(self, event: Field.Edited) -> None:
        """Check the value; plan anew when it is good."""
        before = self._answers
        wrong = self._take(event.setting, event.text.strip())
        self._field_of(event.setting).refuse(wrong is not None)
        self._refused.pop(event.setting, None)
        if wrong is not None:
            self._refused[event.setting] = wrong
        self._tell_refused()
        if wrong is not None:
            return
        if self._last_edited != event.setting:
            self._done.append(before)
            self._last_edited = event.setting
        self._undone.clear()
        self._plan_soon()

    def action_undo(self) -> None:
        """Take back what was done to one setting."""
        if self._done:
            self._undone.append(self._answers)
            self._return_to(self._done.pop())

    def action_redo(self) -> None:
        """Do again what was taken back."""
        if self._undone:
            self._done.append(self._answers)
            self._return_to(self._undone.pop())

    def action_defaults(self) -> None:
        """Give every value back to the planner, or to the preset."""
        if self._answers.settings:
            self._done.append(self._answers)
            self._undone.clear()
            self._return_to(replace(self._answers, settings={}))

    def action_accept_warnings(self) -> None:
        """Go on in spite of the warnings; a value that warns in other words is asked about anew."""
        new = self._to_accept()
        if self._chosen is None or not new:
            return
        self._done.append(self._answers)
        self._undone.clear()
        self._last_edited = None
        self._answers = replace(self._answers, accepted=(*self._answers.accepted, *new))
        self._chosen = replace(self._chosen, answers=self._answers)
        self._show_effect(self._chosen.plan)
        self.message.say(f"{wording.counted(len(new), 'warning')} accepted; z takes that back")

    def action_find(self) -> None:
        """Find any setting and go to its field."""
        values, decisions = values_of(self._before), self._decisions()
        choices = [
            Choice(
                value=one.name,
                line=f"{one.name:<30} {wording.cut(wording.setting(values[one.name]), 30)}",
                words=f"{one.words} {one.about}",
            )
            for one in every_setting()
            if one.name not in ("model", "data")
        ]
        picker = Picker(
            f"All {len(choices)} settings",
            matching(choices),
            hint="learning rate, cutoff_len, lora_r ...",
            detail=lambda name: about(setting(name), decisions.get(name)),
        )
        self.app.push_screen(picker, self._go_to)

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
        if self._newer():
            return
        self._leaving = False
        self.show("#effect", problem_line(problem))
        super().refused(problem)

    def _shown(self) -> list[str]:
        """The settings that matter for this method, and whatever else the user fixed."""
        full = self._before.spec.method.method == "full"
        mattering = [name for name in LABELS if not (full and name == "lora_rank")]
        return [*mattering, *(name for name in self._answers.settings if name not in mattering)]

    def _field(self, name: str) -> Field:
        planned = wording.setting(values_of(self._before)[name])
        settings = self._answers.settings
        fixed = wording.setting(settings[name]) if name in settings else None
        label = LABELS.get(name, name)
        keys = "".join(c for c in LETTERS.values() if not _may_hold(name, c))
        return Field(name, label, planned, self._before.reasons.get(name, ""), fixed, keys=keys)

    def _field_of(self, name: str) -> Field:
        return self.query_one(f"#field-{name.replace('_', '-')}", Field)

    def _focused_field(self) -> Field | None:
        parent = self.focused.parent if self.focused is not None else None
        return parent if isinstance(parent, Field) else None

    async def _go_to(self, name: str | None) -> None:
        """Focus a setting's field, which is added when it is none of those shown."""
        if name is None or name not in {one.name for one in every_setting()}:
            return
        if not self.query(f"#field-{name.replace('_', '-')}"):
            await self.query_one("#settings").mount(
                self._field(name), before=f"#field-{'run-name'}"
            )
            self._align()
        field = self._field_of(name)
        field.query_one(Input).focus()
        field.scroll_visible()

    def _align(self) -> None:
        """Values begin in one column, behind the longest label."""
        fields = list(self.query(Field))
        width = max([SHORTEST_LABEL, *(cell_len(field.label) + 1 for field in fields)])
        for field in fields:
            field.set_label_width(width)

    def _return_to(self, answers: Answers) -> None:
        """Earlier answers, in the fields as well."""
        self._answers = answers
        self._last_edited = None
        self._refused.clear()
        for field in self.query(Field):
            name = field.setting
            settings = {**answers.settings, RUN_NAME: answers.run_name}
            given = settings.get(name)
            field.set_text(
                "" if given is None and name not in answers.settings else wording.setting(given)
            )
            field.refuse(False)
        self._tell_refused()
        self._plan_soon()

    def _to_accept(self) -> list[str]:
        """Warnings of the plan as it is shown that were not accepted, as they are told."""
        plan = self._chosen.plan if self._chosen else None
        warned = [str(one) for one in plan.problems if one.severity == "warning"] if plan else []
        return [one for one in warned if one not in self._answers.accepted]

    def _decisions(self) -> dict[str, Decision]:
        plan = self._chosen.plan if self._chosen else self._before
        return {decision.setting: decision for decision in plan.decisions}

    def _about(self, name: str) -> Content:
        if name == RUN_NAME:
            return Content(
                said("run name\nThe run's folder is called so; it is how you find it again.")
            )
        return about(setting(name), self._decisions().get(name))

    def _tell_refused(self) -> None:
        """The newest error in full, for the rows have no room for it."""
        if (wrong := self.unfinished()) is not None:
            self.message.refuse(wrong)
        else:
            self.message.rest()

    def _take(self, name: str, text: str) -> str | None:
        """Put a value into the answers, or take it out; what is wrong with it, or None."""
        from engine.settings import parse_setting
        from engine.spec import SpecError

        if name == RUN_NAME:
            self._answers = replace(self._answers, run_name=text or None)
            return "a run needs a name without `/`" if "/" in text else None
        settings = {k: v for k, v in self._answers.settings.items() if k != name}
        if text:
            if name in TEXTS:
                text = text.replace("\\n", "\n").replace("\\t", "\t")
            try:
                settings[name] = parse_setting(name, text)[1]
            except SpecError as error:
                return str(error)
        self._answers = replace(self._answers, settings=settings)
        return None

    def _plan_soon(self) -> None:
        self._chosen = None
        if self._asked_for is None:
            self._plan()

    def _plan(self) -> None:
        answers = self._asked_for = self._answers

        def plan() -> tuple[Answers, tuple[Plan, ...]]:
            return answers, self._make_plans(answers)

        self.ask(plan, self._planned, "planning anew", later=True)

    def _newer(self) -> bool:
        """Whether the answers changed while they were planned; then they are planned again."""
        asked, self._asked_for = self._asked_for, None
        newer = asked is not None and asked is not self._answers
        if newer:
            self._plan()
        return newer

    def _planned(self, made: tuple[Answers, tuple[Plan, ...]]) -> None:
        if self._newer():
            return
        answers, plans = made
        plan = again(self._before, plans)
        if plan is None:
            self.refused(Problem(what="no plan of this kind is left", fix="undo the last change"))
            return
        self._chosen = Chosen(answers=answers, plan=plan, others=plans)
        self._show_effect(plan)
        self._show_planned(plan)
        if self._refused:
            self._tell_refused()
        elif self._leaving:
            self._leave(self._chosen)

    def _leave(self, chosen: Chosen) -> None:
        self._leaving = False
        if chosen.plan.fits:
            self.dismiss(chosen)
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
        field_now = self._focused_field()
        if field_now is not None:
            self.show("#about", self._about(field_now.setting))

    def _show_effect(self, plan: Plan) -> None:
        width, accepted = self.size.width - 6, self._answers.accepted
        self.show("#effect", effect(self._before, plan, self._facts, width, accepted))
        self.refresh_bindings()  # whether there is a warning to accept


def _may_hold(name: str, character: str) -> bool:
    """Whether a value of the setting may have this character in it."""
    if name == RUN_NAME:
        return True
    from engine.settings import setting_info

    return _holds(setting_info(name).annotation, character)


def _holds(kind: Any, character: str) -> bool:
    if kind is str:
        return True
    parts = get_args(kind)
    return any(
        character in part if isinstance(part, str) else _holds(part, character) for part in parts
    )
