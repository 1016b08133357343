"""What is odd about usable rows: labels that judge nothing, repeated rows, wrapped lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.rows.formats import format_named
from engine.rows.values import Judged
from engine.spec import all_labelled
from wizard.problem import Problem
from wizard.wording import counted

KTO = format_named("kto")
FEW_PARAGRAPHS = 3
WRAPPED_CHARS = 200
"""Lines of wrapped texts are no longer."""
MOST_REMEMBERED = 1_000_000
"""Different rows of which a hash is kept, some 80 bytes each."""


@dataclass(kw_only=True, slots=True)
class Labels:
    """What labels say which rows are judged by, or seem to be."""

    good: int = 0
    bad: int = 0
    odd: int = 0
    """Rows whose label judges nothing, so that they are read as other rows."""
    first_odd: object = None

    def add(self, row: Any, content: object) -> None:
        """Count a row's label, if it has one."""
        if isinstance(content, Judged):
            self.good += content.label
            self.bad += not content.label
        elif "label" in row and KTO.recognises(row):
            self.first_odd = self.first_odd if self.odd else row["label"]
            self.odd += 1

    def warnings(self, data: str) -> Iterator[Problem]:
        """What a run would not tell, or only once it has begun."""
        if self.good + self.bad and not (self.good and self.bad):
            yield Problem(
                what=all_labelled("good" if self.good else "bad"),
                where=data,
                fix="stage=kto needs both kinds; stage=sft learns answers without a label",
                severity="warning",
            )
        if self.odd:
            yield Problem(
                what=f"{counted(self.odd, 'row')} with a `label` such as {self.first_odd!r:.40}, "
                "which is neither true nor false: the label is not used, the answers are learnt",
                where=data,
                fix="stage=kto learns from labels that are true or false",
                severity="warning",
            )


@dataclass(kw_only=True, slots=True)
class Repeats:
    """How many rows say word for word what an earlier one says."""

    most: int = MOST_REMEMBERED
    rows: int = 0
    """Rows that were compared: all until `most` different ones are known."""
    repeated: int = 0
    seen: set[int] = field(default_factory=set)

    def add(self, content: bytes) -> None:
        """Count a row by the hash of its texts, which two different rows do not share."""
        if len(self.seen) >= self.most:
            return
        self.rows += 1
        known = hash(content)
        self.repeated += known in self.seen
        self.seen.add(known)

    def warnings(self, data: str) -> Iterator[Problem]:
        """How many there are, if any; nothing is left out."""
        if not self.repeated:
            return
        first = "the first " if len(self.seen) >= self.most else ""
        yield Problem(
            what=f"{counted(self.repeated, 'row')} of {first}{self.rows:,} say word for word what "
            "an earlier one says: all are learnt, such a row more often than others",
            where=data,
            fix="leave them out of the file, unless they are meant to count more",
            severity="warning",
        )


@dataclass(kw_only=True, slots=True)
class Wrapped:
    """Whether the lines of a text, each of them a row, are pieces of paragraphs."""

    lines: int = 0
    paragraphs: int = 0
    """Lines with an empty one before them, or nothing."""
    longest: int = 0
    """Characters."""
    last: int = 0

    def add(self, line: int, chars: int) -> None:
        """Count a line of text by its number, which leaves out empty ones."""
        self.paragraphs += line != self.last + 1 or not self.lines
        self.lines += 1
        self.longest = max(self.longest, chars)
        self.last = line

    def warnings(self, data: str) -> Iterator[Problem]:
        """What will be learnt that hardly anyone wants: where lines end, texts end."""
        several = self.paragraphs >= FEW_PARAGRAPHS
        if several and self.lines >= 2 * self.paragraphs and self.longest <= WRAPPED_CHARS:
            yield Problem(
                what=f"each of the {self.lines:,} lines is a row of its own, and they look like "
                f"{self.paragraphs:,} paragraphs that were wrapped: texts that end in "
                "mid-sentence would be learnt",
                where=data,
                fix="put each paragraph in one line, or in JSON Lines as `text`",
                severity="warning",
            )
