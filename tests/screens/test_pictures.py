"""Pictures of every page at both reference sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.screens.pages import PAGES
from tests.screens.stage import OnePage, rest, until
from wizard.dashboard.screen import Dashboard


async def settle(pilot: Pilot[Any]) -> None:
    """Everything read, drawn, and at rest."""
    await rest(pilot)
    screen = pilot.app.screen
    if isinstance(screen, Dashboard):
        await until(pilot, lambda: screen.state.step is not None)
        await pilot.pause()
    await rest(pilot)


@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=["80x24", "140x40"])
@pytest.mark.parametrize("page", PAGES)
def test_page_looks_as_it_did(
    page: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    """Aligned boxes, header with the step, hint and keys below; nothing cut off or overlapping."""
    assert snap_compare(OnePage(PAGES[page]), terminal_size=size, run_before=settle)
