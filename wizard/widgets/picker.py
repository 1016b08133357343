"""One of many, found by typing: the rows that match, and what the marked one is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList

from wizard.language import said
from wizard.widgets.frames import OneFrame
from wizard.widgets.panel import Panel, name_box
from wizard.widgets.table import Rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A row of a picker."""

    value: str
    line: str
    words: str = ""
    """What else it is found by."""


Finder: TypeAlias = Callable[[str], Sequence[Choice]]
"""What was typed → the rows to offer."""


def matching(choices: Sequence[Choice]) -> Finder:
    """Those of the choices that hold every word that was typed, those named by it first."""

    def find(typed: str) -> Sequence[Choice]:
        words = typed.lower().split()
        found = [
            c for c in choices if all(w in f"{c.value} {c.line} {c.words}".lower() for w in words)
        ]
        named = typed.strip().lower()
        return sorted(found, key=lambda choice: named not in choice.words.lower().split())

    return find


class Picker(ModalScreen[str | None], OneFrame):
    """Leaves with the value of the marked row, else with what was typed, else with None."""

    DEFAULT_CSS = """
    Picker { align: center middle; }
    Picker > Vertical { width: 100; max-width: 98%; height: auto; max-height: 96%; }
    Picker > Vertical { border: round; padding: 0 1; }
    Picker Input { margin-bottom: 1; }
    Picker Rows { max-height: 9; min-height: 3; }
    Picker #detail { display: none; }
    Picker #detail.-some { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "take", "Choose", id="picker.take", priority=True, tooltip="Take it"),
        Binding("escape", "cancel", "Cancel", id="picker.cancel", tooltip="Back without choosing"),
        Binding("down", "move(1)", "Next", id="picker.down", priority=True, tooltip="Next row"),
        Binding("up", "move(-1)", "Previous", id="picker.up", priority=True, tooltip="Row before"),
    ]

    def __init__(
        self,
        title: str,
        find: Finder,
        *,
        hint: str,
        detail: Callable[[str], Content] | None = None,
        empty: str = "Nothing in this list holds these words.",
    ) -> None:
        """`empty` is said where nothing matches."""
        super().__init__()
        self._heading = title
        self._find = find
        self._hint = hint
        self._detail = detail
        self._empty = empty
        self._found: Sequence[Choice] = ()

    def compose(self) -> ComposeResult:
        """Field, rows, and the marked one in full."""
        with Vertical() as box:
            name_box(box, self._heading, "Enter takes the marked row   Esc cancels")
            yield Input(placeholder=said(self._hint), compact=True)
            yield Rows()
            yield Panel("", id="detail")

    def on_mount(self) -> None:
        """Everything is offered until something is typed."""
        self.query_one(Rows).can_focus = False
        self.query_one(Input).focus()
        self._offer("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Offer what matches."""
        event.stop()
        self._offer(event.value)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Tell what the marked row is."""
        event.stop()
        if self._detail is not None and event.option_index < len(self._found):
            self.query_one("#detail", Panel).show(
                self._detail(self._found[event.option_index].value)
            )

    def on_rows_clicked(self) -> None:
        """A click chooses."""
        self.action_take()

    def action_move(self, rows: int) -> None:
        """Mark another row."""
        offered = self.query_one(Rows)
        if offered.highlighted is not None:
            offered.highlighted = min(max(offered.highlighted + rows, 0), len(self._found) - 1)

    def action_take(self) -> None:
        """Leave with the marked row, once the field has taken the keys that came before."""
        self.query_one(Input).call_later(self._take)

    def action_cancel(self) -> None:
        """Leave as if nothing had been asked."""
        self.dismiss(None)

    def _take(self) -> None:
        marked = self.query_one(Rows).highlighted
        typed = self.query_one(Input).value.strip()
        if marked is not None and self._found:
            self.dismiss(self._found[marked].value)
        elif typed:
            self.dismiss(typed)

    def _offer(self, typed: str) -> None:
        self._found = self._find(typed)
        self.query_one(Rows).show([choice.line for choice in self._found])
        detail = self.query_one("#detail", Panel)
        detail.set_class(not self._found or self._detail is not None, "-some")
        if not self._found:
            detail.show(Content(said(self._empty)))
