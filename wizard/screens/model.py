"""Page 2: which model is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, OptionList, Static

from wizard import wording
from wizard.answers import Answers
from wizard.facts import KnownModel, Model
from wizard.language import said
from wizard.modelcard import describe, untrainable
from wizard.problem import Problem, ProblemError
from wizard.steps import Step
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel
from wizard.widgets.table import Column, Rows, Table, pairs

DETAILS = "details"
FITS = "fits"
MOST_FITS = 12
"""Models whose fit is looked up at a time: those that may be seen."""
WAITING = "..."
FITTING = "fits"
PLACEHOLDER = "search, a folder or a hub id"
SUGGESTED = "Enter takes the demo's model, which is on this machine; or type, or mark one."
NONE_MATCHES = "No listed model matches. Enter reads what is typed, as a folder or a hub id."
COLUMNS = (
    Column(title="fit"),
    Column(title="name", flexible=True, keep_end=True, names=True),
    Column(title="params", right=True),
    Column(title="licence", flexible=True, optional=True),
    Column(title="here", optional=True),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelVerbs:
    """What the page asks the world; each may raise ProblemError."""

    read: Callable[[str], Model]
    """Folder or hub id → its facts."""
    known: Callable[[], tuple[KnownModel, ...]]
    """Models that can be named without asking anybody."""
    sibling: Callable[[str], str | None]
    """The base model of an instruct one, or the other way."""
    read_hub: Callable[[str], Model]
    """Hub id → its facts, asked of the hub."""
    fit: Callable[[Model], str]
    """How it fits this machine in the roomiest way: `yes`, `tight`, `no`, `unknown`."""
    offline: str = ""
    """Why the hub is not asked; empty where it may be."""


class ModelPage(Page[Model]):
    """Leaves with the Model that was named and read."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.MODEL
    QUESTION = "Which model? Type to search, or a folder, or a hub id."
    HINT = "Enter takes the marked model; a name that is not listed is read first."
    HELP_TEXT = (
        "fit: whether a way to train keeps to this machine's memory, with one row of 2,048 tokens "
        "at once; `fits` leaves 5 % free or more, `tight` less. lock: the hub wants a token "
        "(HF_TOKEN) for it. here: "
        "it is on this machine; others are fetched when the run starts, and the revision is "
        "recorded. A folder holds config.json, the weights (safetensors) and the tokenizer. "
        "Weights in pickle files are not loaded, and quantised ones cannot be trained: method "
        "qlora makes the original 4-bit while it loads. A base model has no chat habit."
    )
    HELP_ON: ClassVar[Mapping[str, str]] = {
        "model": "Words of a name, a folder, or a hub id. The list below holds every word typed; "
        "Up and Down mark one of it, Enter takes the marked one, Ctrl+U empties the field.",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "move(1)", show=False, id="model.down", priority=True, tooltip="Next"),
        Binding("up", "move(-1)", show=False, id="model.up", priority=True, tooltip="Previous"),
        Binding(
            "ctrl+b",
            "sibling",
            "Base/instruct",
            id="model.sibling",
            tooltip="The base model of an instruct one, or the other way",
        ),
        Binding(
            "ctrl+o",
            "hub",
            "Ask the hub",
            id="model.hub",
            tooltip="Ask the hub about the id that is typed",
        ),
        Binding(
            "ctrl+t",
            "suggested",
            "Demo model",
            id="model.suggested",
            tooltip="Take the demo's small model, which is on this machine",
        ),
    ]

    class Fits(Message):
        """Whether a model fits is known."""

        def __init__(self, name: str, word: str) -> None:
            super().__init__()
            self.name = name
            self.word = word

    def __init__(
        self,
        verbs: ModelVerbs,
        *,
        name: str | None,
        model: Model | None,
        suggested: str | None = None,
        disk_free_bytes: int | None = None,
    ) -> None:
        super().__init__()
        self._verbs = verbs
        self._given = name or (model.name if model else "")
        self._typed = self._given if model else None
        self._model = model
        self._read_at_once = name is not None and model is None
        self._suggested = suggested
        self._disk_free_bytes = disk_free_bytes
        self._known: tuple[KnownModel, ...] = ()
        self._listed: tuple[KnownModel, ...] = ()
        self._fit: dict[str, str] = {}
        self._searched = False
        self._offered: str | None = None
        self._look = 0
        self._looked_up: list[str] = []

    def body(self) -> ComposeResult:
        """Name, the models that match, and what is known of the marked one."""
        yield Input(
            self.typed_before or wording.one_line(self._given),
            placeholder=wording.one_line(self._suggested or "") or said(PLACEHOLDER),
            id="model",
            compact=True,
            select_on_focus=False,
        )
        with Horizontal(classes="columns"):
            with Box("Models", id="models"):
                yield Table()
                yield Static(id="none", markup=False)
            yield Panel("Model", "Nothing read yet.", id="facts")

    def on_mount(self) -> None:
        """Start in the field, with what is known already."""
        self.query_one(Rows).can_focus = False
        named = self.query_one(Input)
        named.focus()
        if not self.typed_before:
            named.select_all()  # typing replaces a name that was filled in; End and arrows edit it
        if self._suggested and not self._given:
            self.message.hint(SUGGESTED)
        if self._model is not None:
            self._show(self._model)
        elif self._read_at_once and not self.typed_before:
            self._typed = name = self._given
            self.ask(lambda: self._verbs.read(name), self._show, f"reading {name}")
        self.ask_beside(self._verbs.known, self._list, "models")

    @property
    def answers(self) -> Answers:
        """With the model that was read."""
        return replace(self.given, model=self._model.name) if self._model else self.given

    def so_far(self) -> Model | None:
        """The model that was read."""
        return self._model

    def typed(self) -> str:
        """A name that was not read."""
        value = self.query_one(Input).value
        return "" if value.strip() in (self._typed, wording.one_line(self._given)) else value

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Without a demo model on the machine there is none to offer."""
        if action == "suggested" and self._suggested is None:
            return False
        return super().check_action(action, parameters)

    def action_suggested(self) -> None:
        """Fill in the demo's model."""
        self._fill_in(self._suggested or "")

    def action_sibling(self) -> None:
        """Put in the base model of the instruct one, or the other way."""
        name = self._wanted()
        other = self._verbs.sibling(name) if name else None
        if other is None:
            what = f"no base or instruct model of {name or 'nothing'} is known"
            self.message.refuse(Problem(what=what, severity="info"))
        else:
            self._fill_in(other)

    def _fill_in(self, name: str) -> None:
        """Put a name into the field; typing replaces it."""
        named = self.query_one(Input)
        named.value = name
        named.select_all()

    def action_hub(self) -> None:
        """Ask the hub, which is never asked before."""
        name = self.query_one(Input).value.strip()
        if self._verbs.offline:
            what = f"offline, so the hub is not asked: {self._verbs.offline}"
            self.message.refuse(Problem(what=what, fix="unset it, or name a folder"))
        elif not self.busy and name:
            self._typed = name
            self._searched = False
            self._given = name
            self.ask(lambda: self._verbs.read_hub(name), self._show, f"asking the hub about {name}")

    def action_move(self, step: int) -> None:
        """Mark another model; from now on Enter takes the marked one."""
        table = self.query_one(Rows)
        if table.option_count:
            table.highlighted = min(max((table.highlighted or 0) + step, 0), table.option_count - 1)
            self._searched = True
            at = table.highlighted or 0
            self._look_up(self._listed[max(at - MOST_FITS // 2, 0) : at + MOST_FITS])

    def action_next(self) -> None:
        """Leave with the model that was read, or read the one that is marked or named."""
        self._catch_up()
        name = self._wanted()
        if self.busy:
            return
        if self._model is not None and name == self._typed:
            self._leave(self._model)
        elif name:
            self._typed = name
            marked = name in {one.name for one in self._listed}
            then = self._take if marked else self._show
            self.ask(lambda: self._verbs.read(name), then, f"reading {name}")
        else:
            self.refused(Problem(what="no model is named", fix="type a folder or a hub id"))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Offer what matches."""
        event.stop()
        self._catch_up()
        typed = event.value.strip()
        if self.message.problem is not None and typed != (self._typed or ""):
            self.message.rest()  # it was about another name
        if self._suggested and self._given in ("", self._suggested):
            theirs = typed == wording.one_line(self._suggested) if typed else not self._searched
            self.message.hint(SUGGESTED if theirs else self.HINT)

    def _catch_up(self) -> None:
        """List what matches the field; Enter may come before the field's own word of a change."""
        value = self.query_one(Input).value
        if value == self._offered or (
            value == wording.one_line(self._given) and not self._searched
        ):
            return
        self._searched = True
        self._offer()

    def on_rows_clicked(self, event: Rows.Clicked) -> None:
        """From now on the marked model is taken; the page's own handler comes after this one."""
        self._searched = True
        self._offered = self.query_one(Input).value

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Read the marked model beside the page."""
        event.stop()
        if self._searched and event.option_index < len(self._listed):
            name = self._listed[event.option_index].name
            self.ask_beside(lambda: self._verbs.read(name), self._describe, DETAILS)

    def on_model_page_fits(self, event: Fits) -> None:
        """Fill in a word of the table."""
        self._fit[event.name] = event.word
        self._offer(keep=True)

    def refused(self, problem: Problem) -> None:
        """What was shown before does not belong to this name."""
        self._model = None
        self.show("#facts", "Nothing read.")
        if "download it" in problem.fix:
            problem = replace(problem, fix="Ctrl+O asks the hub about it; a folder works as well")
        super().refused(problem)

    def refused_beside(self, subject: str, problem: Problem) -> None:
        """What a marked model lacks is told in its place."""
        if subject == DETAILS:
            self.show("#facts", problem_line(problem))

    def _wanted(self) -> str:
        """The marked model, once something was searched; else what was typed."""
        typed = self.query_one(Input).value.strip()
        if not self._searched and typed == wording.one_line(self._given):
            return self._given or self._suggested or ""
        marked = self.query_one(Rows).highlighted
        if not _is_path(typed) and marked is not None and marked < len(self._listed):
            return self._listed[marked].name
        return typed

    def _list(self, known: tuple[KnownModel, ...]) -> None:
        self._known = known
        self._searched = self._searched or not (self._given or self._suggested)
        if self._model is not None:
            self._describe(self._model)
        self._offer()

    def _offer(self, *, keep: bool = False) -> None:
        """The models that match what was typed; all of them before anything was."""
        table = self.query_one(Rows)
        typed = self.query_one(Input).value if self._searched else ""
        if not keep:
            self._offered = self.query_one(Input).value
        self._listed = matching(self._known, typed)
        rows = [self._row(one) for one in self._listed]
        names = [one.name for one in self._listed]
        first = names.index(self._given) if not self._searched and self._given in names else 0
        marked = min(table.highlighted or 0, max(len(rows) - 1, 0)) if keep else first
        self.query_one(Table).show(COLUMNS, rows, marked)
        self.show("#none", "" if rows else NONE_MATCHES)
        self.query_one("#none").display = not rows
        if not keep:
            self._look_up(self._listed)

    def _row(self, one: KnownModel) -> tuple[str, ...]:
        fit = "lock" if one.gated and not one.on_disk else self._fit.get(one.name, WAITING)
        size = wording.parameters(one.parameters) if one.parameters else "?"
        return fit, one.name, size, one.licence or "?", "yes" if one.on_disk else ""

    def _look_up(self, models: Sequence[KnownModel]) -> None:
        """Plan for those that may be seen, one after the other, beside the page."""
        wanted = [one.name for one in models if one.name not in self._fit][:MOST_FITS]
        if not wanted or wanted == self._looked_up:
            return
        self._looked_up = wanted
        self._look += 1
        look = self._look

        def plan() -> None:
            for name in wanted:
                if look != self._look or not self.is_running:
                    return
                self.post_message(self.Fits(name, self._word(name)))

        self.ask_beside(plan, lambda _: None, FITS)

    def _word(self, name: str) -> str:
        try:
            return {"yes": FITTING}.get(word := self._verbs.fit(self._verbs.read(name)), word)
        except ProblemError:
            return "?"

    def _take(self, model: Model) -> None:
        self._show(model)
        self._leave(model)

    def _leave(self, model: Model) -> None:
        wrong = untrainable(model)
        if wrong is not None:
            self.message.refuse(wrong)
            return
        self.dismiss(model)

    def _show(self, model: Model) -> None:
        self._model = model
        named = self.query_one(Input)
        if not named.value.strip() and not self._searched:
            self._given, named.value = model.name, wording.one_line(model.name)
        self._describe(model)

    def _describe(self, model: Model) -> None:
        kind = next((one.kind for one in self._known if one.name == model.name), None)
        self.show("#facts", pairs(describe(model, kind, self._disk_free_bytes)))


def matching(known: Sequence[KnownModel], typed: str) -> tuple[KnownModel, ...]:
    """Models whose name holds every word that was typed; the one typed in full comes first."""
    words = typed.lower().split()
    found = [one for one in known if all(word in one.name.lower() for word in words)]
    return tuple(sorted(found, key=lambda one: one.name.lower() != typed.lower().strip()))


def _is_path(typed: str) -> bool:
    return typed.startswith(("/", "~", "./", "../"))
