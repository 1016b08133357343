"""Help over a page: what it is about, and every key that works there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen

from wizard.widgets.panel import Panel
from wizard.widgets.table import pairs


def keys_once(keys: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """(key, what it does) with each thing once: all its keys together, digits as a range."""
    found: dict[str, list[str]] = {}
    for key, does in keys:
        known = found.setdefault(does, [])
        if key not in known:
            known.append(key)
    return tuple((_together(known), does) for does, known in found.items())


def _together(keys: list[str]) -> str:
    if len(keys) > 2 and all(key.isdigit() for key in keys):
        return f"{keys[0]}-{keys[-1]}"
    return ", ".join(keys)


class Help(ModalScreen[None]):
    """Closed by the keys that close things."""

    DEFAULT_CSS = """
    Help { align: center middle; }
    Help VerticalScroll { width: 76; max-width: 95%; height: auto; max-height: 90%; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q,question_mark,f1", "close", "Close", id="help.close"),
    ]

    def __init__(self, title: str, text: str, keys: tuple[tuple[str, str], ...]) -> None:
        super().__init__()
        self._heading = title
        self._text = text
        self._keys = keys

    def compose(self) -> ComposeResult:
        """One box."""
        text = Content.assemble(self._text, "\n\n", pairs(self._keys)) if self._keys else self._text
        with VerticalScroll():
            yield Panel(self._heading, text)

    def action_close(self) -> None:
        """Back to the page."""
        self.dismiss(None)
