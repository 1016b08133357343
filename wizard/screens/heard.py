"""The child that reads data: what it has said so far, and how the Data page puts that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.content import Content

from wizard import wording
from wizard.facts import Dataset
from wizard.language import said
from wizard.screens.telling import Told, estimated, first_row, place_of, problems
from wizard.widgets import sample
from wizard.widgets.sample import VIEWS

if TYPE_CHECKING:
    from wizard.screens.verbs import DataPreview

ROOMY = 100
"""Cells from which on there is room for whole explanations."""


def not_fixed(estimated_tokens: int, longest: int, covering: int) -> str:
    """What the planner goes by, and what was counted.

    The planner has the estimate alone, so that the command, which counts nothing, plans the same.
    """
    return (
        f"not fixed: planned from the text, for at most {estimated_tokens:,} tokens; "
        f"counted: {longest:,}, so c fixes {covering:,}"
    )


class Heard:
    """What is known of the data on the page; it holds no more than one child."""

    def __init__(self) -> None:
        self.child: DataPreview | None = None
        self.why_unknown = ""
        """Why lengths are not known, where the child failed."""
        self.memory: Mapping[int, str] = {}
        """Length → predicted memory of the best plan."""
        self._told = Told()
        self._told_before = False
        """What is told is of a child before the one that runs."""
        self._at = 0
        self._view = VIEWS[0]

    def forget(self) -> None:
        """Other data: nothing was said of them."""
        self._told = Told()
        self._at = 0

    def listen(self, child: DataPreview) -> None:
        """From now on to this child; what was told before stays until it speaks."""
        self.end()
        self.child = child
        self._told_before = True
        self.why_unknown = ""

    def end(self) -> None:
        """The child is of no use any more."""
        if self.child is not None:
            self.child.close()
            self.child = None

    def hear(self, line: Mapping[str, Any], child: object) -> bool:
        """Take what a child said; False for an older one, which is not heard."""
        if child is not self.child:
            return False
        if self._told_before:
            self._told, self._told_before = Told(), False
        self._told.take(line)
        self._at = min(self._at, max(len(self._told.samples) - 1, 0))
        return True

    def turn(self, step: int) -> None:
        """Look at another of the first rows."""
        if self._told.samples:
            self._at = (self._at + step) % len(self._told.samples)

    def next_view(self) -> None:
        """Look at the row in another way."""
        self._view = VIEWS[(VIEWS.index(self._view) + 1) % len(VIEWS)]

    @property
    def report(self) -> Mapping[str, Any] | None:
        """What the child said of all rows, once it has read them."""
        return self._told.report

    @property
    def cuts(self) -> dict[int, int]:
        """Length → rows that are longer; empty until all were read."""
        report = self.report
        return {int(length): cut for length, cut in report["cuts"].items()} if report else {}

    def row(self, dataset: Dataset | None, width: int) -> tuple[str, str, Content] | None:
        """(title, subtitle, text) of the row that is looked at; None before anything was read."""
        if self._told.samples:
            one = self._told.samples[self._at]
            views = "  ".join(f"[{view}]" if view == self._view else view for view in VIEWS)
            title = f"Row {self._at + 1} of the first {len(self._told.samples)}, {views}"
            legend = sample.LEGEND if width >= ROOMY else sample.SHORT_LEGEND
            return title, f"{sample.in_numbers(one)}   {legend}", sample.shown(one, self._view)
        if dataset is None:
            return None
        waiting = "tokens follow" if self.child else "tokens: once the model is on this machine"
        return "First row as it was read", waiting, first_row(dataset.first_rows)

    def lengths(self, dataset: Dataset | None, width: int) -> str:
        """How long rows are, as far as that is known; the bars are `width` cells long."""
        told = self._told
        rows = [sample.histogram(told.bars, width)] if told.bars else []
        if told.report is not None:
            rows.append(sample.spread(told.report))
        elif self.why_unknown:
            rows.append(self.why_unknown)
        elif self.child is not None:
            rows.append(f"{told.rows:,} rows so far ...")
        return "\n".join(rows) or estimated(dataset)

    def cuts_table(self, chosen: int | None, estimated_tokens: int | None) -> str:
        """What each max_length would cut, and its memory; what is planned where none is fixed."""
        cuts = self.cuts
        if not cuts:
            return ""
        table = sample.cuts_table(cuts, self._told.rows, self.memory, chosen)
        if chosen is not None or self.report is None or estimated_tokens is None:
            return table
        longest = int(self.report["whole_lengths"].get("max", 0))
        return "\n".join([table, said(not_fixed(estimated_tokens, longest, max(cuts)))])

    def wrong(self, dataset: Dataset | None) -> list[str]:
        """What is wrong with rows, a line each."""
        return [wording.one_line(said(text)) for text, _ in problems(self._told, dataset)]

    def place(self, dataset: Dataset | None, marked: int | None) -> tuple[Path, int] | None:
        """File and line of the marked problem, else of the row that is looked at."""
        return place_of(self._told, dataset, self._at, marked)
