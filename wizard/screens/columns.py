"""Which column of a file is which of ours: a question for each that is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from textual.screen import Screen

from wizard import wording
from wizard.language import said
from wizard.widgets.picker import Choice, Picker, matching

NONE = " none"
"""Stands for no column; none can be called so, as names that begin with a space are not offered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a row may hold, with our names of its columns."""

    about: str
    needed: tuple[str, ...]
    optional: tuple[str, ...] = ()


SHAPES = (
    Shape(
        about="a question and its answer",
        needed=("instruction", "output"),
        optional=("input", "system"),
    ),
    Shape(about="a conversation: a list of turns", needed=("messages",), optional=("system",)),
    Shape(about="text, all of it to be learnt", needed=("text",)),
    Shape(
        about="a better and a worse answer to the same prompt",
        needed=("prompt", "chosen", "rejected"),
    ),
    Shape(
        about="an answer, and whether it is good",
        needed=("prompt", "completion", "label"),
    ),
)
ABOUT: Mapping[str, str] = {
    "instruction": "the question",
    "output": "the answer",
    "input": "a text that the question is about",
    "system": "the system text",
    "messages": "the list of turns",
    "text": "the text",
    "prompt": "the prompt",
    "chosen": "the better answer",
    "rejected": "the worse answer",
    "completion": "the answer",
    "label": "whether it is good",
}


def nameable(row: Mapping[str, Any]) -> list[str]:
    """Columns that the setting can name: `,` and `=` are its own, and spaces around a name go."""
    return [name for name in row if name and not {*",="} & {*name} and name == name.strip()]


def as_setting(taken: Mapping[str, str]) -> str | None:
    """Our name → theirs, as the setting spells it; None where nothing is renamed."""
    pairs = [f"{ours}={theirs}" for ours, theirs in taken.items() if ours != theirs]
    return ",".join(pairs) or None


@dataclass(frozen=True, kw_only=True, slots=True)
class ColumnQuestions:
    """Asks for the shape of a row, then for a column for each part of it."""

    screen: Screen[Any]
    row: Mapping[str, Any]
    """The first row of the file."""
    done: Callable[[str | None], None]
    """Takes the value of the setting; not called where the questions are left."""

    def begin(self) -> None:
        """Ask what a row holds."""
        rows = [
            Choice(
                value=shape.about,
                line=f"{said(shape.about)}  ({', '.join(shape.needed)})",
            )
            for shape in SHAPES
        ]
        shapes = {shape.about: shape for shape in SHAPES}

        def take(value: str | None) -> None:
            if value in shapes:
                shape = shapes[value]
                self._ask(shape, [*shape.needed, *shape.optional], {})

        picker = Picker("What does a row hold?", matching(rows), hint="question, text ...")
        self.screen.app.push_screen(picker, take)

    def _ask(self, shape: Shape, left: list[str], taken: dict[str, str]) -> None:
        """Ask for the next part; those of which no column is left are not asked for."""
        free = [name for name in nameable(self.row) if name not in taken.values()]
        if not left or not (free or left[0] in shape.needed):
            self.done(as_setting(taken))
            return
        ours, *after = left
        choices = [
            Choice(value=name, line=f"{name:<20} {wording.cut(self.row[name], 60)}")
            for name in sorted(free, key=lambda name: name != ours)
        ]
        if ours in shape.optional:
            choices.insert(0, Choice(value=NONE, line=said("none of them")))

        def take(value: str | None) -> None:
            if value == NONE:
                self._ask(shape, after, taken)
            elif value in free:
                self._ask(shape, after, {**taken, ours: value})

        title = f"Which column is {ABOUT[ours]} ({ours})?"
        self.screen.app.push_screen(Picker(title, matching(choices), hint="its name ..."), take)
