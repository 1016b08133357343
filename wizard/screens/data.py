"""Page 3: which rows are learnt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input

from wizard import wording
from wizard.facts import Dataset
from wizard.problem import Problem
from wizard.steps import Step
from wizard.widgets.message import problem_line
from wizard.widgets.page import Page
from wizard.widgets.panel import Panel
from wizard.widgets.table import pairs

SHOWN_PROBLEMS = 8
SHOWN_CHARS = 4000


class DataPage(Page[Dataset]):
    """Leaves with the Dataset that was named and read."""

    CSS_PATH = Path(__file__).with_suffix(".tcss")
    STEP = Step.DATA
    QUESTION = "Which data? A JSON or JSON Lines file of `messages` or `instruction` rows."
    HINT = "Enter reads the file; Enter again goes on to the plans."
    HELP_TEXT = (
        "messages: each row is {'messages': [{'role': ..., 'content': ...}, ...]}.\n"
        "alpaca: each row has 'instruction', 'output' and perhaps 'input'.\n"
        "Rows that cannot be used are dropped, each named by its line. Your file is not changed."
    )

    def __init__(
        self,
        read_dataset: Callable[[str], Dataset],
        *,
        path: str | None,
        dataset: Dataset | None,
    ) -> None:
        super().__init__()
        self._read = read_dataset
        self._given = path or (dataset.path if dataset else "")
        self._typed: str | None = self._given if dataset else None
        self._dataset = dataset

    def body(self) -> ComposeResult:
        """Path, what the file holds, and its first row."""
        yield Input(
            wording.one_line(self._given),
            placeholder="path of a file",
            id="data",
            compact=True,
            select_on_focus=False,
        )
        with Horizontal(classes="columns"):
            yield Panel("File", "Nothing read yet.", id="facts")
            yield Panel("Dropped rows", id="dropped")
        yield Panel("First row", id="sample")

    def on_mount(self) -> None:
        """Start in the field, with what is known already."""
        self.query_one(Input).focus()
        if self._dataset is not None:
            self._show(self._dataset)

    def action_next(self) -> None:
        """Read the file that is named, or leave with the one that was read."""
        path = self._typed_path()
        if self.busy:
            return
        if self._dataset is not None and path == self._typed:
            self._leave(self._dataset)
        elif path:
            self._typed = path
            self.ask(lambda: self._read(path), self._show, f"reading {path}")
        else:
            self.refused(Problem(what="no file is named", fix="type the path of a data file"))

    def _typed_path(self) -> str:
        typed = self.query_one(Input).value.strip()
        return self._given if typed == wording.one_line(self._given) else typed

    def refused(self, problem: Problem) -> None:
        """What was shown before does not belong to this path."""
        self._dataset = None
        for part in ("#facts", "#dropped", "#sample"):
            self.show(part, "Nothing read.")
        super().refused(problem)

    def _leave(self, dataset: Dataset) -> None:
        if dataset.rows:
            self.dismiss(dataset)
            return
        self.message.refuse(
            Problem(what="no row can be used", where=dataset.path, fix="see the dropped rows")
        )

    def _show(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.show("#facts", _file(dataset))
        self.show("#dropped", _dropped(dataset))
        self.show("#sample", sample(dataset.first_rows))


def _file(dataset: Dataset) -> Content:
    mean = dataset.total_chars / dataset.rows if dataset.rows else None
    return pairs(
        (
            ("path", dataset.path),
            ("format", dataset.format or wording.UNKNOWN),
            ("rows", wording.count(dataset.rows)),
            ("dropped", wording.count(dataset.dropped_rows)),
            ("size", wording.gib(dataset.disk_bytes)),
            ("longest row", f"{wording.count(dataset.longest_row_chars)} characters"),
            ("mean row", f"{wording.count(mean)} characters"),
        )
    )


def _dropped(dataset: Dataset) -> Content:
    if not dataset.problems:
        return Content("none")
    shown = [problem_line(problem) for problem in dataset.problems[:SHOWN_PROBLEMS]]
    more = dataset.dropped_rows - len(shown)
    if more > 0:
        shown.append(Content.styled(f"and {wording.count(more)} more", "$foreground-muted"))
    return Content("\n").join(shown)


def sample(rows: Sequence[Mapping[str, object]]) -> Content:
    """The first row as people read it: who says what."""
    if not rows:
        return Content("none")
    parts = [
        Content.assemble((f"{wording.one_line(who)}\n", "bold $primary"), wording.many_lines(text))
        for who, text in _turns(rows[0])
    ]
    return Content("\n").join(parts)[:SHOWN_CHARS]


def _turns(row: Mapping[str, object]) -> list[tuple[object, object]]:
    messages = row.get("messages")
    if isinstance(messages, list):
        return [(m.get("role"), m.get("content")) for m in messages if isinstance(m, Mapping)]
    return [(key, value) for key, value in row.items() if value]
