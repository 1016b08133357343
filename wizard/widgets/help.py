"""Help over a page: what it is about, and every key that works there."""

from __future__ import annotations

from collections.abc import Iterable

from textual.content import Content

from wizard.language import said
from wizard.widgets.sheet import Sheet
from wizard.widgets.table import pairs

Keys = tuple[tuple[str, str], ...]
"""(key, what it does)."""


def keys_once(keys: Iterable[tuple[str, str]]) -> Keys:
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


class Help(Sheet):
    """Narrow, for it is prose: a text, the keys, and what is already said below them."""

    DEFAULT_CSS = """
    Help VerticalScroll { width: 76; max-width: 95%; }
    """

    def __init__(
        self, title: str, text: str, keys: tuple[tuple[str, str], ...], more: str = ""
    ) -> None:
        told = pairs([(key, said(does)) for key, does in keys])
        parts = [Content(said(text)), *([told] if keys else []), *([Content(more)] if more else [])]
        super().__init__(title, Content("\n\n").join(parts))
