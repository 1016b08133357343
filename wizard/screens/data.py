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
from wizard.screens.heard import Heard
from wizard.screens.telling import (
    COLUMNS,
    DROPPED,
    OF_ROWS,
    DataVerbs,
    column_prompt,
    path_name,
    summary,
)
from wizard.steps import Data, Step
from wizard.widgets.page import Page
from wizard.widgets.panel import Box, Panel, name_box
from wizard.widgets.question import Question
from wizard.widgets.table import Rows

LONGEST_DEFAULT = 2048
"""Rows are cut there unless a length is fixed, as the planner does."""
HINT_READ = "Enter goes on to the plans. Letters are keys now; o or / names another file."
PREVIEW = "tokens"
MEMORY = "memory"
EXAMPLES = """What a row may look like (JSON Lines, JSON, CSV, Parquet; several files with commas):

{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
{"instruction": "...", "input": "...", "output": "..."}
{"prompt": "...", "completion": "..."}

Other columns can be mapped: Tab, then m."""


class DataPage(Page[Data]):
    """Leaves with the data that was read, and the settings chosen for it."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.DATA
    QUESTION = "Which data? A file of rows, or several with commas."
    HINT = "Enter reads the file; Enter again goes on to the plans."
    HELP_TEXT = (
        "What is between # marks is learnt, the rest is context: the engine's own code makes both, "
        "so what you see is what is trained. v changes between rendered, raw and tokens, n and p "
        "go through the first rows, c chooses the length at which rows are cut, m maps columns, "
        "e opens the editor at the marked problem, o goes back to the name of the file. Rows that "
        "cannot be used are dropped, each named by its line. Your file is not changed."
    )
    HELP_ON: ClassVar[Mapping[str, str]] = {
        "data": "A file of rows, or several with commas: JSON Lines, JSON, CSV, Parquet, Arrow or "
        "text. Enter reads it, Down names the data files of this folder.",
        "sample": "One of the first rows. v: rendered is what the model sees, raw is the row of "
        "the file, tokens has one line a token. n and p go through the rows.",
        "bad": "Each row that cannot be used, with its line. e, or a click on the marked one, "
        "opens the editor there; the file is read again when it closes.",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "sample(1)", "Row", id="data.next", tooltip="The next row"),
        Binding(
            "p", "sample(-1)", "Previous", id="data.previous", show=False, tooltip="Row before"
        ),
        Binding("v", "view", "View", id="data.view", tooltip="Rendered, raw or tokens"),
        Binding("c", "cutoff", "Length", id="data.cutoff", tooltip="The next longer max_length"),
        Binding("m", "columns", "Map", id="data.columns", tooltip="Map columns"),
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
    ) -> None:
        super().__init__()
        self._verbs = verbs
        self._given = path or (dataset.path if dataset else "")
        self._suggested = "" if self._given or not verbs.nearby else verbs.nearby[0]
        self._typed: str | None = self._given if dataset else None
        self._dataset = dataset
        self._model = model
        self._fixed = dict(settings or {})
        self._chosen: dict[str, Any] = {}
        self._forgotten: frozenset[str] = frozenset()
        self._heard = Heard()
        self._read_at_once = path is not None and dataset is None

    def body(self) -> ComposeResult:
        """Path, a row as it is learnt, lengths, and what is wrong."""
        yield Input(
            wording.one_line(self._given),
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
        self.query_one(Input).focus()
        if self._suggested:
            name = wording.one_line(self._suggested)
            others = "Down names others" if len(self._verbs.nearby) > 1 else "it is the only one"
            self.message.hint(f"Enter reads {name} of this folder, {others}; or type a path.")
        if self._dataset is not None:
            self._show(self._dataset)
        elif self._read_at_once:
            self.action_next()

    @property
    def answers(self) -> Answers:
        """With the length and the columns that were chosen here."""
        return replace(self.given, settings={**self.given.settings, **self._chosen})

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
            if path != self._typed and self._typed is not None:
                self._forget()
            self._typed = path
            self._read()
        else:
            self.refused(Problem(what="no file is named", fix="type the path of a data file"))

    def _forget(self) -> None:
        """What was chosen for the rows of one set of data says nothing about another."""
        self._forgotten |= OF_ROWS & self._settings().keys()
        self._fixed = {k: v for k, v in self._fixed.items() if k not in OF_ROWS}
        self._chosen = {k: v for k, v in self._chosen.items() if k not in OF_ROWS}

    def action_sample(self, step: int) -> None:
        """Show another of the first rows."""
        self._heard.turn(step)
        self._show_sample()

    def action_view(self) -> None:
        """Show the row in another way."""
        self._heard.next_view()
        self._show_sample()

    def action_cutoff(self) -> None:
        """Fix the next longer max_length of those shown, after the longest the shortest."""
        lengths = sorted(self._heard.cuts)
        if not lengths:
            return
        longer = [length for length in lengths if length > self._max_length()]
        self._chosen["max_length"] = longer[0] if longer else lengths[0]
        self._show_lengths()
        self._preview()

    def action_columns(self) -> None:
        """Ask which column is which."""

        def take(text: str | None) -> None:
            if text is not None:
                from engine.settings import parse_setting

                self._chosen[COLUMNS] = parse_setting(COLUMNS, text)[1]
                self._read()

        self.app.push_screen(column_prompt(self._dataset, self._settings().get(COLUMNS)), take)

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
        self.query_one(Input).focus()

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
        self._show_lengths()
        self._show_problems()
        super().refused(problem)

    def refused_beside(self, subject: str, problem: Problem) -> None:
        """Tokens and memory are told where they are missed; the page goes on without them."""
        if subject == PREVIEW:
            self._heard.why_unknown = "not known: see below"
            self.message.refuse(replace(problem, severity="warning"))
            self._show_lengths()

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

    def _settings(self) -> dict[str, Any]:
        return {**self._fixed, **self._chosen}

    def _read(self) -> None:
        path, settings = self._typed or "", self._settings()
        self.ask(lambda: self._verbs.read(path, settings), self._show, f"reading {path}")

    def _leave(self, dataset: Dataset) -> None:
        from wizard.planner.refusals import too_many_dropped  # what it needs takes long to load

        report = self._heard.report
        if not dataset.rows:
            fix = "see the dropped rows"
            self.message.refuse(Problem(what="no row can be used", where=dataset.path, fix=fix))
        elif too_many_dropped(dataset, self._settings()) is not None:
            self._ask_without(dataset)
        elif report is not None and not report["usable"]:
            self.message.refuse(Problem(what=str(report["reason"]), where=dataset.path))
        else:
            self._dismiss(dataset)

    def _dismiss(self, dataset: Dataset) -> None:
        forgotten = self._forgotten - self._chosen.keys()
        self.dismiss(Data(dataset=dataset, settings=self._chosen, forgotten=forgotten))

    def _ask_without(self, dataset: Dataset) -> None:
        """More rows are dropped than by chance: go on without them only when told to."""
        percent = dataset.dropped_percent
        allowed = math.ceil(percent)

        def answered(choice: int | None) -> None:
            if choice == 0:
                self._chosen[DROPPED] = float(allowed)
                self._dismiss(dataset)

        bad = wording.counted(dataset.dropped_rows, "row")
        asked = f"{bad} of {path_name(dataset)} cannot be used, {percent:.3g} % of all"
        choices = [f"go on without them ({DROPPED}={allowed})", "back to the data"]
        self.app.push_screen(Question(asked, choices), answered)

    def _show(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._heard.forget()
        self._fill_in(self._typed or dataset.path)
        self.query_one("#sample").focus(scroll_visible=False)  # the numbers above it stay in sight
        self.message.hint(HINT_READ)
        self._preview()
        self.show("#summary", summary(dataset, self._model))
        self._show_sample()
        self._show_lengths()
        self._show_problems()

    def _preview(self) -> None:
        """Start the child that tells tokens; what was told before stays until it speaks."""
        self._heard.end()
        if self._verbs.preview is None or self._dataset is None:
            return
        settings = {**self._settings(), "max_length": self._max_length()}
        child = self._verbs.preview(self._dataset.path, settings)
        self._heard.listen(child)

        def listen() -> None:
            for line in child.lines():
                self.post_message(self.Said(line, child))

        self.ask_beside(listen, lambda _: None, PREVIEW)

    def _max_length(self) -> int:
        positions = self._model.max_positions if self._model else None
        default = min(LONGEST_DEFAULT, positions or LONGEST_DEFAULT)
        return int(self._settings().get("max_length") or default)

    def _ask_memory(self) -> None:
        dataset, lengths = self._dataset, sorted(self._heard.cuts)
        if dataset is None or not lengths:
            return
        settings = self._settings()

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
        self.show("#cuts", self._heard.cuts_table(self._settings().get("max_length")))

    def _show_problems(self) -> None:
        table = self.query_one("#bad", Rows)
        lines = self._heard.wrong(self._dataset)
        table.show(lines, min(table.highlighted or 0, max(len(lines) - 1, 0)))
        dropped = self._dataset.dropped_rows if self._dataset else 0
        name_box(self.query_one("#problems"), f"Problems ({dropped:,} rows dropped)", "e edits")
        self.query_one("#problems").display = bool(lines)
