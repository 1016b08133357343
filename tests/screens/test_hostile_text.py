"""At every size: text we did not write is shown as it is, the page's own and its keys are whole."""

from __future__ import annotations

import pytest
from textual.widgets import Input

from tests.screens import hostile
from tests.screens.stage import OnePage, rest, shown, until
from tests.tiers import spread
from wizard.dashboard.screen import Dashboard
from wizard.widgets.page import Page

SIZES = [(60, 16), (20, 5), (200, 60)]


@pytest.mark.parametrize("page", spread(hostile.PAGES, every=4))
async def test_foreign_text_breaks_no_page_at_any_size(page: str) -> None:
    app = OnePage(hostile.PAGES[page])
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        screen = app.screen
        if isinstance(screen, Dashboard):
            await until(pilot, lambda: bool(screen.state.ranks))
            await pilot.press("1")
        await until(pilot, lambda: "[/bold]" in shown(app) or "[bold]" in shown(app))
        assert all(line.isprintable() for line in shown(app).split("\n"))
        focused = app.focused
        for size in SIZES:
            await pilot.resize_terminal(*size)
            await pilot.pause()
            lines = shown(app).split("\n")
            assert all(line.isprintable() for line in lines)
            if size[0] >= 60 and isinstance(screen, Page) and not isinstance(screen, Dashboard):
                assert screen.QUESTION in lines[1]
                assert lines[-1].rstrip().endswith("Quit")
        assert "[/bold]" in shown(app) or "[bold]" in shown(app)
        assert app.focused is focused


@pytest.mark.wide
async def test_below_sixty_by_sixteen_the_page_says_what_it_needs() -> None:
    app = OnePage(hostile.PAGES["model"])
    async with app.run_test(size=(59, 16)) as pilot:
        await rest(pilot)
        assert "needs 60 x 16; you have 59 x 16" in shown(app)
        before = app.screen
        await pilot.press("x", "ctrl+u", "question_mark", "ctrl+p", "escape", "enter")
        await pilot.pause()
        assert app.screen is before, "no key acts on what cannot be seen"
        assert not app.left
        await pilot.resize_terminal(60, 16)
        await pilot.pause()
        assert "needs 60 x 16" not in shown(app)
        assert isinstance(app.focused, Input)
        assert not app.focused.value.endswith("x")
        await pilot.resize_terminal(59, 16)
        await pilot.pause()
        await pilot.press("ctrl+q")
        await pilot.pause()
    assert not app.is_running


async def test_foreign_text_breaks_neither_the_fault_finder_nor_the_ranks_by_host() -> None:
    app = OnePage(hostile.PAGES["failed"])
    async with app.run_test(size=(140, 40)) as pilot:
        screen = app.screen
        assert isinstance(screen, Dashboard)
        await until(pilot, lambda: bool(screen.state.ranks))
        await pilot.press("o", "o", "o", "a")
        await rest(pilot)
        assert "by host" in shown(app)
        assert all(line.isprintable() for line in shown(app).split("\n"))
        await pilot.press("f")
        await until(pilot, lambda: "How it failed" in shown(app))
        assert all(line.isprintable() for line in shown(app).split("\n"))
