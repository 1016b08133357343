"""Pictures of every page, and of what its keys open, at both reference sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.screens.pages import PAGES
from tests.screens.stage import OnePage, rest, until
from tests.tiers import spread
from wizard.dashboard.screen import Dashboard

SLOW = pytest.mark.slow
STATES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "plan-why": ("plan", ("w",)),
    "plan-two": ("plan", ("c", "down", "c")),
    "plan-what-if": ("plan", ("+", "4", "x", "l")),
    "data-tokens": ("data", ("v", "v", "c")),
    "tune-find": ("tune", ("/", *"lora")),
    "review-diff": ("review", ("d",)),
    "model-search": ("model", ("ctrl+u", *"llama")),
}
"""Name → page and the keys that lead there."""


async def settle(pilot: Pilot[Any], keys: tuple[str, ...] = ()) -> None:
    """Everything read, drawn, and at rest."""
    await rest(pilot)
    screen = pilot.app.screen
    if isinstance(screen, Dashboard):
        await until(pilot, lambda: screen.state.step is not None)
        await pilot.pause()
    await pilot.press(*keys)
    await rest(pilot)
    await rest(pilot)


@pytest.mark.parametrize(
    "size",
    [pytest.param((80, 24), id="80x24"), pytest.param((140, 40), id="140x40", marks=SLOW)],
)
@pytest.mark.parametrize("page", spread(PAGES, every=2))
def test_page_looks_as_it_did(
    page: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    """Aligned boxes, header with the step, hint and keys below; nothing cut off or overlapping."""
    assert snap_compare(OnePage(PAGES[page]), terminal_size=size, run_before=settle)


@pytest.mark.parametrize(
    "size",
    [pytest.param((80, 24), id="80x24"), pytest.param((140, 40), id="140x40", marks=SLOW)],
)
@pytest.mark.parametrize("state", spread(STATES, every=3))
def test_what_keys_open_looks_as_it_did(
    state: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    """The box lies over its page, within the screen, with a way out named or known."""
    page, keys = STATES[state]
    before = partial(settle, keys=keys)
    assert snap_compare(OnePage(PAGES[page]), terminal_size=size, run_before=before)
