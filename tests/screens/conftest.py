"""Screens without what moves by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from textual.widgets import Input


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No blinking cursor, no animation, one time zone, the app's own theme."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    original = Input.__init__

    def without_blink(self: Input, *args: object, **kwargs: object) -> None:
        original(self, *args, **kwargs)  # type: ignore[arg-type]
        self.cursor_blink = False

    monkeypatch.setattr(Input, "__init__", without_blink)
    yield
    monkeypatch.undo()
    time.tzset()
