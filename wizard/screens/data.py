"""Page 3: which rows are learnt, and what the model will see of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from textual.app import ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.message import Message
from textual.widgets import Input, Static

from wizard import wording
from wizard.answers import Answers
from wizard.facts import Dataset, Model
from wizard.language import said
from wizard.problem import Problem
from wizard.screens.columns import ColumnQuestions
from wizard.screens.data_words import EXAMPLES, HELP, HELP_ON, HINT_READ
from wizard.screens.fixing import LENGTH, RowSettings, length_told
from wizard.screens.heard import Heard
from wizard.screens.telling import COLUMNS, DROPPED, DataVerbs, path_name, summary
from wizard.steps import Data, Step
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel, name_box
from wizard.widgets.question import Question
from wizard.widgets.table import Rows

PREVIEW = "tokens"
MEMORY = "memory"


class DataPage(Page[Data]):
    """Leaves with the data that was read, and the settings chosen for it."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.DATA
    QUESTION = "Which data? A file of rows, or several with commas."
    HINT = "Enter reads the file; Enter again goes on to the plans."
    HELP_TEXT = HELP
    HELP_ON = HELP_ON
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "sample(1)", "Row", id="data.next", tooltip="The next row"),
        Binding(
            "p", "sample(-1)", "Previous", id="data.previous", show=False, tooltip="Row before"
        ),
        Binding("v", "view", "View", id="data.view", tooltip="Rendered, raw or tokens"),
        Binding(
            "c", "cutoff", "Length", id="data.cutoff", tooltip="Fix the next shorter max_length"
        ),
        Binding(
            "m", "columns", "Map", id="data.columns", tooltip="Say which of the columns are which"
        ),
        Binding("e", "edit", "Edit", id="data.edit", tooltip="Open the editor at the problem"),
        Binding("o", "open", "Other file", id="data.open", tooltip="Name another file"),
        Binding(
            "slash", "begin('/')", id="data.begin", show=False, tooltip="Type another file's path"
        ),
        Binding("tilde", "begin('~')", id="data.begin-home", show=False, tooltip="The same"),
        Binding("full_stop", "begin('.')", id="data.begin-here", show=False, tooltip="The same"),
        Binding(
            "down", "nearby", id="data.nearby", show=False, tooltip="A data file of this folder"
        ),
    ]

    class Said(Message):
        """The child said a line."""

        def __init__(self, line: Mapping[str, Any], child: object) -> None:
            super().__init__()
            self.line = line
            self.child = child

    def __init__(
        self,
        verbs: DataVerbs,
        *,
        path: str | None,
        dataset: Dataset | None,
        model: Model | None = None,
        settings: Mapping[str, Any] | None = None,
        of_preset: frozenset[str] = frozenset(),
    ) -> None:
        """`settings` are fixed already, those of a preset among them."""
        super().__init__()
        self._verbs = verbs
        self._given = path or (dataset.path if dataset else "")
        self._suggested = "" if self._given or not verbs.nearby else verbs.nearby[0]
        self._typed: str | None = self._given if dataset else None
        self._dataset = dataset
        self._model = model
        self._settings = RowSettings(before=settings or {}, of_preset=of_preset)
        self._heard = Heard()
        self._read_at_once = path is not None and dataset is None

    def body(self) -> ComposeResult:
        """Path, a row as it is learnt, lengths, and what is wrong."""
        yield Input(
            self.typed_before or wording.one_line(self._given),
            placeholder=wording.one_line(self._suggested) or said("path of a file"),
            id="data",
            compact=True,
            select_on_focus=False,
        )
        yield Static(id="summary", markup=False)
        with VerticalScroll(id="sample"):
            yield Static(said(EXAMPLES), id="text", markup=False)
        with Horizontal(classes="columns"):
            yield Panel("Length in tokens, all rows", id="lengths")
            yield Panel("Cut at max_length", id="cuts")
        with Box("Problems", id="problems"):
            yield Rows(id="bad")

    def on_mount(self) -> None:
        """Start in the field, with what is known already."""
        name_box(self.query_one("#sample"), "Row")
        self._enter_field()
        self._offer()
        if self._dataset is not None:
            self._show(self._dataset)
        elif self._read_at_once and not self.typed_before:
            self.action_next()

    @property
    def answers(self) -> Answers:
        """With the data that was read, and the length and the columns that were chosen here."""
        data = self._dataset.path if self._dataset else self.given.data
        settings = self._settings.of_answers(self.given.settings)
        return replace(self.given, data=data, settings=settings)

    def so_far(self) -> Data | None:
        """The data that was read, with what was chosen for it."""
        return None if self._dataset is None else self._settings.leave(self._dataset)

    def typed(self) -> str:
        """A path that was not read."""
        value = self.query_one(Input).value
        read = self._dataset is not None and self._typed_path() == self._typed
        return "" if read or value == wording.one_line(self._given) else value

    def on_resize(self) -> None:
        """Bars are as long as there is room."""
        self._show_lengths()

    def on_unmount(self) -> None:
        """The child is of use to this page only."""
        self._heard.end()

    def action_next(self) -> None:
        """Read the data that is named, or leave with what was read."""
        path = self._typed_path()
        if self.busy:
            return
        if self._dataset is not None and path == self._typed:
            self._leave(self._dataset)
        elif path:
            self._turn_to(path)
            self._read()
        else:
            self.refused(Problem(what="no file is named", fix="type the path of a data file"))

    def action_sample(self, step: int) -> None:
        """Show another of the first rows."""
        self._heard.turn(step)
        self._show_sample()

    def action_view(self) -> None:
        """Show the row in another way."""
        self._heard.next_view()
        self._show_sample()

    def action_cutoff(self) -> None:
        """Fix the next shorter max_length of those shown, or none again, and say so."""
        cuts, most = self._heard.cuts, self._model.max_positions if self._model else None
        lengths = [length for length in cuts if most is None or length <= most]
        if not lengths:
            what = "lengths are not counted yet"
            self.message.refuse(Problem(what=what, severity="info"))
            return
        length = self._settings.next_length(lengths)
        of_preset = LENGTH not in self._settings.chosen
        self.message.say(length_told(length, of_preset, cuts.get(length or 0, 0)))
        self._show_lengths()
        self._preview()

    def action_columns(self) -> None:
        """Ask which column is which."""
        path = self._typed_path()
        if self.busy or not path:
            self.message.refuse(Problem(what="no file is named", fix="type the path of one"))
            return

        def take(columns: str | None) -> None:
            self._turn_to(path)
            self._settings.take(COLUMNS, columns)
            self.query_one("#sample").focus()
            self._read()

        def begin(row: Mapping[str, Any]) -> None:
            ColumnQuestions(screen=self, row=row, done=take).begin()

        self.ask_beside(lambda: self._verbs.first_row(path), begin, COLUMNS)

    def action_edit(self) -> None:
        """Open the editor at the marked problem, or at the row that is shown."""
        place = self._heard.place(self._dataset, self.query_one("#bad", Rows).highlighted)
        if place is None:
            self.message.refuse(Problem(what="no file was read yet", fix="name one first"))
            return
        try:
            with self.app.suspend():
                self._verbs.edit(*place)
        except SuspendNotSupported:
            where = f"{place[0]}, line {place[1]}"
            self.message.refuse(Problem(what="this terminal cannot be lent out", where=where))
            return
        self._read()

    def row_taken(self) -> None:
        """A click on the marked problem opens the editor there."""
        self.action_edit()

    def action_open(self) -> None:
        """Back to the name of the file."""
        self._enter_field()

    def action_back(self) -> None:
        """A path that was begun is taken back first; then one page back."""
        if not self._edited:
            super().action_back()
            return
        self.query_one(Input).value = wording.one_line(self._typed or "")
        self._given = self._typed or ""
        self.query_one("#sample").focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Rows that are shown are those of what was read, whatever stands in the field."""
        event.stop()
        if self.message.problem is not None and self._typed_path() != (self._typed or ""):
            self.message.rest()  # it was about another path
        if self._dataset is not None:
            self._show_summary(self._dataset)
        else:
            self._offer()

    def _offer(self) -> None:
        """Say which file Enter would read while none is named."""
        if not self._suggested:
            return
        name = wording.one_line(self._suggested)
        unnamed = self._typed_path() == self._suggested
        offer = f"Enter reads {name} of this folder; or type a path."
        if len(self._verbs.nearby) > 1:
            offer = f"Enter reads {name} of this folder, Down names others; or type a path."
        self.message.hint(offer if unnamed else self.HINT)

    @property
    def _edited(self) -> bool:
        """Whether the field names something else than what was read."""
        return self._dataset is not None and self._typed_path() != self._typed

    def _show_summary(self, dataset: Dataset) -> None:
        told = summary(dataset, self._model)
        if self._edited:
            name = wording.shorten(wording.one_line(path_name(dataset)), 24)
            told = f"Not read yet: Enter reads it. Below is still {name}; Esc takes it back."
        self.show("#summary", told)

    def _turn_to(self, path: str) -> None:
        """From now on it is about these data."""
        if self._typed is not None:
            self._settings.turn(self._typed, path)
        self._typed = path

    def _enter_field(self) -> None:
        """Typing replaces a path that was filled in; End and arrows edit it."""
        named = self.query_one(Input)
        named.focus()
        if not self.typed_before:
            named.select_all()

    def action_begin(self, character: str) -> None:
        """A path was begun where letters are keys: it goes on in the field."""
        named = self.query_one(Input)
        named.value = character
        named.focus()
        named.cursor_position = len(character)

    def action_nearby(self) -> None:
        """Put in the next data file of this folder."""
        near, named = self._verbs.nearby, self.query_one(Input)
        if near and self.focused is named:
            at = near.index(self._typed_path()) + 1 if self._typed_path() in near else 0
            named.value = near[at % len(near)]
            named.select_all()  # typing replaces it

    def on_data_page_said(self, event: Said) -> None:
        """Show what the child said, unless it is an older one."""
        if not self._heard.hear(event.line, event.child):
            return
        self._show_sample()
        self._show_lengths()
        self._show_problems()
        if self._heard.report is not None:
            self._ask_memory()

    def refused(self, problem: Problem) -> None:
        """What was shown before does not belong to this path."""
        self._dataset = None
        self._heard.forget()
        self._heard.end()
        self.show("#summary", "Nothing read.")
        self.show("#text", EXAMPLES)
        name_box(self.query_one("#sample"), "Row")
        self.message.hint(self.HINT)  # below the problem, for when it has been read
        self._show_lengths()
        self._show_problems()
        if _of_columns(problem):
            self.query_one("#sample").focus()  # a letter in the field would be part of the path
        super().refused(_with_key(problem))

    def refused_beside(self, subject: str, problem: Problem) -> None:
        """Tokens and memory are told where they are missed; the page goes on without them."""
        if subject == PREVIEW:
            self._heard.why_unknown = "not known: see below"
            self.message.refuse(replace(_with_key(problem), severity="warning"))
            self._show_lengths()
        elif subject == COLUMNS:
            self.message.refuse(problem)

    def _typed_path(self) -> str:
        """What was typed; the file that is suggested where nothing was."""
        typed = self.query_one(Input).value.strip()
        if not typed:
            return self._suggested
        return self._given if typed == wording.one_line(self._given) else typed

    def _fill_in(self, path: str) -> None:
        """What was read stands in the field, also when it was only suggested."""
        named = self.query_one(Input)
        if not named.value.strip():
            self._given, named.value = path, wording.one_line(path)

    def _read(self) -> None:
        path, settings = self._typed or "", self._settings.all
        self.ask(lambda: self._verbs.read(path, settings), self._show, f"reading {path}")

    def _leave(self, dataset: Dataset) -> None:
        from wizard.planner.refusals import too_many_dropped  # what it needs takes long to load

        report = self._heard.report
        if not dataset.rows:
            fix = "see the dropped rows"
            self.message.refuse(Problem(what="no row can be used", where=dataset.path, fix=fix))
        elif too_many_dropped(dataset, self._settings.all) is not None:
            self._ask_without(dataset)
        elif report is not None and not report["usable"]:
            self.message.refuse(Problem(what=str(report["reason"]), where=dataset.path))
        else:
            self.dismiss(self._settings.leave(dataset))

    def _ask_without(self, dataset: Dataset) -> None:
        """More rows are dropped than by chance: go on without them only when told to."""
        percent = dataset.dropped_percent
        allowed = math.ceil(percent)

        def answered(choice: int | None) -> None:
            if choice == 0:
                self._settings.take(DROPPED, float(allowed))
                self.dismiss(self._settings.leave(dataset))

        bad = wording.counted(dataset.dropped_rows, "row")
        asked = f"{bad} of {path_name(dataset)} cannot be used, {percent:.3g} % of all"
        choices = [f"go on without them ({DROPPED}={allowed})", "back to the data"]
        self.app.push_screen(Question(asked, choices), answered)

    def _show(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._heard.forget()
        self._fill_in(self._typed or dataset.path)
        self.query_one("#sample").focus(scroll_visible=False)  # the numbers above it stay in sight
        self.message.hint(f"{self.notice} {HINT_READ}".strip())
        self._preview()
        self._show_summary(dataset)
        self._show_sample()
        self._show_lengths()
        self._show_problems()

    def _preview(self) -> None:
        """Start the child that tells tokens; what was told before stays until it speaks."""
        self._heard.end()
        if self._verbs.preview is None or self._dataset is None:
            return
        settings = {**self._settings.all, LENGTH: self._settings.cut_length(self._model)}
        child = self._verbs.preview(self._dataset.path, settings)
        self._heard.listen(child)

        def listen() -> None:
            for line in child.lines():
                self.post_message(self.Said(line, child))

        self.ask_beside(listen, lambda _: None, PREVIEW)

    def _ask_memory(self) -> None:
        dataset, lengths = self._dataset, sorted(self._heard.cuts)
        if dataset is None or not lengths:
            return
        settings = self._settings.all

        def told(memory: Mapping[int, str]) -> None:
            self._heard.memory = memory
            self._show_lengths()

        self.ask_beside(lambda: self._verbs.memory(dataset, settings, lengths), told, MEMORY)

    def _show_sample(self) -> None:
        row = self._heard.row(self._dataset, self.size.width)
        if row is not None:
            title, subtitle, text = row
            name_box(self.query_one("#sample"), title, subtitle)
            self.show("#text", text)

    def _show_lengths(self) -> None:
        self.show("#lengths", self._heard.lengths(self._dataset, self.size.width // 2 - 4))
        self.show(
            "#cuts",
            self._heard.cuts_table(
                self._settings.all.get(LENGTH),
                self._settings.longest_tokens(self._model, self._dataset),
            ),
        )

    def _show_problems(self) -> None:
        table = self.query_one("#bad", Rows)
        lines = self._heard.wrong(self._dataset)
        table.show(lines, min(table.highlighted or 0, max(len(lines) - 1, 0)))
        dropped = self._dataset.dropped_rows if self._dataset else 0
        name_box(self.query_one("#problems"), f"Problems ({dropped:,} rows dropped)", "e edits")
        self.query_one("#problems").display = bool(lines)


def _of_columns(problem: Problem) -> bool:
    """Whether other names of the columns would help."""
    return "columns=ours=theirs" in problem.fix


def _with_key(problem: Problem) -> Problem:
    """The same, with the key that does what the command's option would."""
    if not _of_columns(problem):
        return problem
    return replace(problem, fix="m says which of its columns are which")
