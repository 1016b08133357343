"""One line asked for over a page, with what it is about above it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from wizard.problem import Problem
from wizard.widgets.frames import OneFrame
from wizard.widgets.message import problem_line
from wizard.widgets.panel import name_box


class Prompt(ModalScreen[str | None], OneFrame):
    """Leaves with the text once nothing is wrong with it, or with None."""

    DEFAULT_CSS = """
    Prompt { align: center middle; }
    Prompt > Vertical { width: 90; max-width: 98%; height: auto; max-height: 96%; }
    Prompt > Vertical { border: round; padding: 0 1; }
    Prompt Input { margin: 1 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Take", id="prompt.take", priority=True, tooltip="Take the text"),
        Binding("escape", "cancel", "Cancel", id="prompt.cancel", tooltip="Back without an answer"),
    ]

    def __init__(
        self, title: str, about: Content, value: str, check: Callable[[str], str | None]
    ) -> None:
        """`check` says what is wrong with a text, or None."""
        super().__init__()
        self._heading = title
        self._about = about
        self._value = value
        self._check = check

    def compose(self) -> ComposeResult:
        """What it is about, the field, what is wrong."""
        with Vertical() as box:
            name_box(box, self._heading, "Enter takes it   Esc cancels")
            yield Static(self._about, markup=False)
            yield Input(self._value, compact=True)  # typing replaces what is suggested
            yield Static(id="wrong", markup=False)

    def action_take(self) -> None:
        """Leave, once the field has taken the keys that came before Enter."""
        self.query_one(Input).call_later(self._take)

    def action_cancel(self) -> None:
        """Leave as if nothing had been asked."""
        self.dismiss(None)

    def _take(self) -> None:
        text = self.query_one(Input).value.strip()
        wrong = self._check(text)
        if wrong is None:
            self.dismiss(text)
        else:
            self.query_one("#wrong", Static).update(problem_line(Problem(what=wrong)))
