"""Writes a picture of a page: `python -m tests.screens.export PAGE OUT.svg [WIDTH HEIGHT]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.screens.pages import PAGES
from tests.screens.stage import OnePage, rest, until
from wizard.dashboard.screen import Dashboard


async def picture(page: str, width: int, height: int) -> str:
    """The page as SVG."""
    app = OnePage(PAGES[page])
    async with app.run_test(size=(width, height)) as pilot:
        await rest(pilot)
        screen = app.screen
        if isinstance(screen, Dashboard):
            await until(pilot, lambda: screen.state.step is not None)
        await pilot.pause()
        return app.export_screenshot(title="tunewright")


if __name__ == "__main__":
    name, out, *size = sys.argv[1:]
    columns, rows = (int(n) for n in size or ("120", "36"))
    Path(out).write_text(asyncio.run(picture(name, columns, rows)), encoding="utf-8")
