"""One setting on one line: its name, its value to edit, and why it has it."""

from __future__ import annotations

from dataclasses import dataclass

from textual.app import ComposeResult
from textual.containers import HorizontalGroup
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from wizard import wording


class Field(HorizontalGroup):
    """Posts Edited for every change of the text; what is wrong replaces the reason."""

    DEFAULT_CSS = """
    Field { height: 1; }
    Field > .label { width: 18; }
    Field > Input { width: 16; }
    Field > .note { width: 1fr; height: 1; padding-left: 2; }
    Field > .note { text-wrap: nowrap; text-overflow: ellipsis; }
    """

    @dataclass
    class Edited(Message):
        """The text of a field changed."""

        setting: str
        text: str

    def __init__(self, setting: str, label: str, value: str, note: str) -> None:
        super().__init__(id=f"field-{setting.replace('_', '-')}")
        self.setting = setting
        self._label = label
        self._value = wording.one_line(value)
        self._note = note

    def compose(self) -> ComposeResult:
        """Label, input, note."""
        yield Static(self._label, classes="label", markup=False)
        yield Input(self._value, compact=True)
        yield Static(_muted(self._note), classes="note", markup=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Tell the page."""
        event.stop()
        if event.value != self._value:
            self._value = event.value
            self.post_message(self.Edited(self.setting, event.value))

    def refuse(self, text: str | None) -> None:
        """Say what is wrong with the value, or None when nothing is."""
        self.set_class(text is not None, "-wrong")
        note = _muted(self._note)
        if text is not None:
            note = Content.assemble(("error: ", "bold $text-error"), wording.one_line(text))
        self.query_one(".note", Static).update(note)


def _muted(text: str) -> Content:
    return Content.styled(wording.one_line(text), "$foreground-muted")
