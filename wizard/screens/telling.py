"""What is known of data while it is read: what the reader said, and what the child tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.content import Content

from wizard import wording
from wizard.facts import Dataset, Model
from wizard.glossary import kind_of_rows
from wizard.language import said
from wizard.widgets import sample

if TYPE_CHECKING:
    from wizard.screens.verbs import DataPreview

COLUMNS = "columns"
DROPPED = "max_dropped_percent"
OF_ROWS = frozenset({COLUMNS, DROPPED})
"""Settings that go with one set of data and no other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DataVerbs:
    """What the page does to the world; each may raise ProblemError."""

    read: Callable[[str, Mapping[str, Any]], Dataset]
    """Data and settings → its facts."""
    preview: Callable[[str, Mapping[str, Any]], DataPreview] | None
    """Data and settings → a child that tells tokens; None while the tokenizer is not here."""
    memory: Callable[[Dataset, Mapping[str, Any], Sequence[int]], Mapping[int, str]]
    """Dataset, settings and lengths → predicted memory of the best plan at each length."""
    edit: Callable[[Path, int], None]
    """Opens a file at a line in the user's editor and waits for it."""
    first_row: Callable[[str], Mapping[str, Any]]
    """Data → its first row as its file has it."""
    nearby: tuple[str, ...] = ()
    """Data files in the current folder."""


@dataclass(kw_only=True, slots=True)
class Told:
    """What the child has said so far."""

    samples: list[Mapping[str, Any]] = field(default_factory=list)
    problems: list[Mapping[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    bars: Sequence[Mapping[str, Any]] = ()
    rows: int = 0
    report: Mapping[str, Any] | None = None

    def take(self, line: Mapping[str, Any]) -> None:
        """One line of the child; kinds that are not known are left."""
        match line.get("kind"):
            case "sample":
                self.samples.append(line)
            case "problem":
                self.problems.append(line)
            case "warning":
                self.warnings.append(str(line["text"]))
            case "progress":
                self.bars, self.rows = line["histogram"], line["rows"]
            case "report":
                self.report, self.bars, self.rows = line, line["histogram"], line["rows"]


def path_name(dataset: Dataset) -> str:
    """The last part of what the data is called."""
    return Path(dataset.path).name


def problems(told: Told, dataset: Dataset | None) -> list[tuple[str, int | None]]:
    """(what is wrong, the line it is in): rows first, then what concerns the whole."""
    if told.problems:
        found: list[tuple[str, int | None]] = [
            (f"{bad['unit']} {bad['line']}: {bad['reason']}", int(bad["line"]))
            for bad in told.problems
        ]
    else:
        known = dataset.problems if dataset else ()
        found = [(f"{bad.where}: {bad.what}", _line_of(bad.where)) for bad in known]
    of_all = [problem.what for problem in dataset.warnings] if dataset else []
    return [*found, *((f"warning: {text}", None) for text in (*of_all, *told.warnings))]


def place_of(
    told: Told, dataset: Dataset | None, shown: int, marked: int | None
) -> tuple[Path, int] | None:
    """File and line of the marked problem, else of the row that is shown."""
    if dataset is None:
        return None
    if marked is not None and marked < len(told.problems):
        bad = told.problems[marked]
        return Path(str(bad["file"])), int(bad["line"])
    found = problems(told, dataset)
    line = found[marked][1] if marked is not None and marked < len(found) else None
    if line is None and told.samples:
        one = told.samples[shown]
        return Path(str(one["file"])), int(one["line"])
    return Path(dataset.path), line or 1


def _line_of(where: str) -> int | None:
    """The number at the end of `train.jsonl, line 118`."""
    last = where.rsplit(" ", 1)[-1]
    return int(last) if last.isdecimal() else None


def summary(dataset: Dataset, model: Model | None) -> str:
    """Data on one line."""
    shape = kind_of_rows(dataset.format)
    dropped = f", {wording.count(dataset.dropped_rows)} dropped" if dataset.dropped_rows else ""
    template = "its own" if model is None or model.has_chat_template is not False else "chatml"
    return (
        f"{wording.count(dataset.rows)} rows{dropped}   {shape}   "
        f"{wording.gib(dataset.disk_bytes)}   template {template}"
    )


def estimated(dataset: Dataset | None) -> str:
    """Lengths as far as they are known without a tokenizer."""
    if dataset is None:
        return "Nothing read yet."
    return (
        f"longest row {wording.count(dataset.longest_row_chars)} characters, at most "
        f"{wording.count(dataset.longest_row_tokens)} tokens (estimated)"
    )


def first_row(rows: Sequence[Mapping[str, object]]) -> Content:
    """The first row as people read it: who says what."""
    if not rows:
        return Content(said("none"))
    parts = [
        Content.assemble((f"{wording.one_line(who)}\n", "bold $primary"), wording.many_lines(text))
        for who, text in _turns(rows[0])
    ]
    return Content("\n").join(parts)[: sample.MOST_CHARS]


def _turns(row: Mapping[str, object]) -> list[tuple[object, object]]:
    messages = row.get("messages", row.get("conversations"))
    if isinstance(messages, list):
        turns = [m for m in messages if isinstance(m, Mapping)]
        return [(m.get("role", m.get("from")), m.get("content", m.get("value"))) for m in turns]
    return [(key, value) for key, value in row.items() if value]
