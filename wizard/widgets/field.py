"""One setting on one line: its name, its value, and why it has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from textual.app import ComposeResult
from textual.containers import HorizontalGroup
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Input, Static

from wizard import wording
from wizard.language import said
from wizard.widgets.panel import redraw

WRONG = "error: see below"


class Value(Input):
    """An input that leaves some characters to the page, as keys that the footer names."""

    def __init__(self, text: str, planned: str, keys: str) -> None:
        super().__init__(text, placeholder=planned, compact=True)  # typing replaces it
        self._keys = keys

    def refresh(
        self,
        *regions: Region,
        repaint: bool = True,
        layout: bool = False,
        recompose: bool = False,
    ) -> Self:
        """Draw the text; the toolkit lays the page out anew too, but no text changes its size."""
        still = layout and self.size.width > 0
        return super().refresh(
            *regions, repaint=repaint, layout=layout and not still, recompose=recompose
        )

    def check_consume_key(self, key: str, character: str | None) -> bool:
        """What is typed, but for the keys of the page."""
        left = character is not None and character in self._keys
        return not left and super().check_consume_key(key, character)


class Field(HorizontalGroup):
    """Empty, it shows the planned value muted; what is typed fixes it. Posts Edited per change."""

    DEFAULT_CSS = """
    Field { height: 1; }
    Field > .label { width: 18; }
    Field > Value { width: 16; }
    Field > .note { width: 1fr; height: 1; padding-left: 2; }
    Field > .note { text-wrap: nowrap; text-overflow: ellipsis; }
    """

    @dataclass
    class Edited(Message):
        """The text of a field changed; an empty one gives the value back to the planner."""

        setting: str
        text: str

    def __init__(
        self,
        setting: str,
        label: str,
        planned: str,
        note: str,
        fixed: str | None = None,
        *,
        keys: str = "",
    ) -> None:
        """`keys` are characters that no value holds: they are left to the page."""
        super().__init__(id=f"field-{setting.replace('_', '-')}")
        self._keys = keys
        self.setting = setting
        self._label = label
        self._planned = wording.one_line(planned)
        self._text = wording.one_line(fixed or "")
        self._note = note

    def compose(self) -> ComposeResult:
        """Label, input, note."""
        yield Static(said(self._label), classes="label", markup=False)
        yield Value(self._text, self._planned, self._keys)
        yield Static(_muted(self._note), classes="note", markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the page."""
        event.stop()
        if event.value != self._text:
            self._text = event.value
            self.post_message(self.Edited(self.setting, event.value))

    @property
    def label(self) -> str:
        """What stands before the value."""
        return self._label

    def set_label_width(self, cells: int) -> None:
        """Room for the label; all fields of a page have the same."""
        self.query_one(".label").styles.width = cells

    def set_text(self, text: str) -> None:
        """Another value than the user typed, which is told to nobody."""
        self._text = wording.one_line(text)
        value = self.query_one(Input)
        value.value = self._text
        if value.has_focus:
            value.select_all()

    def show_planned(self, planned: str, note: str) -> None:
        """What the planner takes now, and why; the text stays as it was typed."""
        self._note = note
        self.query_one(Input).placeholder = wording.one_line(planned)
        if not self.has_class("-wrong"):
            redraw(self.query_one(".note", Static), _muted(note))

    def refuse(self, wrong: bool) -> None:
        """Mark the value as wrong, or as good."""
        self.set_class(wrong, "-wrong")
        note = Content.styled(said(WRONG), "bold $text-error") if wrong else _muted(self._note)
        redraw(self.query_one(".note", Static), note)


def _muted(text: str) -> Content:
    return Content.styled(wording.one_line(said(text)), "$foreground-muted")
