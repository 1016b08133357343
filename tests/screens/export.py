"""A picture of a page or of a real run: `python -m tests.screens.export PAGE|RUN OUT.svg [W H]`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tests.screens.pages import PAGES
from tests.screens.stage import OnePage, rest, until
from wizard.app import TunewrightApp
from wizard.commands.verbs import verbs
from wizard.dashboard.screen import Dashboard


async def picture(what: str, width: int, height: int) -> str:
    """A page filled from values, or the dashboard of a run folder, as SVG."""
    folder = Path(what)
    app = TunewrightApp(verbs(), attach=folder) if folder.is_dir() else OnePage(PAGES[what])
    async with app.run_test(size=(width, height)) as pilot:
        await rest(pilot)
        screen = app.screen
        if isinstance(screen, Dashboard):
            await until(pilot, lambda: screen.state.step is not None)
        await pilot.pause()
        return app.export_screenshot(title="tunewright")


if __name__ == "__main__":
    given, out, *size = sys.argv[1:]
    columns, rows = (int(n) for n in size or ("120", "36"))
    Path(out).write_text(asyncio.run(picture(given, columns, rows)), encoding="utf-8")
