"""A key is answered in one frame, and Escape at once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import RenderableType
from textual import constants, events
from textual._compositor import LayoutUpdate
from textual.message import Message
from textual.pilot import Pilot
from textual.screen import Screen

from tests.screens.pages import PAGES
from tests.screens.stage import RUN, OnePage, rest, shown, until
from tests.screens.test_tune_page import FACTS, START, with_settings
from wizard.answers import Answers
from wizard.plan import Plan
from wizard.screens.tune import TunePage
from wizard.widgets import frames, page, terminal


class Drawn(OnePage):
    """Keeps what would be written to a terminal."""

    def __init__(self, page: Callable[[], Screen[object]]) -> None:
        super().__init__(page)
        self.frames: list[RenderableType] = []

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if renderable is not None and not self._batch_count:
            self.frames.append(renderable)
        super()._display(screen, renderable)


@pytest.mark.parametrize(
    ("name", "key"), [("plan", "down"), ("data", "v"), ("tune", "tab"), ("finish", "question_mark")]
)
async def test_all_that_follows_from_a_key_is_one_frame(
    name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "PATIENCE_SECONDS", 5.0)  # of a machine that is busy
    monkeypatch.setattr(page, "SOON_SECONDS", 5.0)
    app = Drawn(lambda: tune() if name == "tune" else PAGES[name]())
    async with app.run_test(size=(80, 24)) as pilot:
        await begun(pilot, app)
        await pilot.press(key)
        await rest(pilot)
        await pilot.pause(0.1)
        assert len(app.frames) == 1


async def test_what_is_typed_is_drawn_before_it_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second frame has the plan; none of the screen that stays as it was is drawn again."""
    monkeypatch.setattr(frames, "PATIENCE_SECONDS", 5.0)
    drawn_before: list[int] = []

    def make_plans(answers: Answers) -> tuple[Plan, ...]:
        drawn_before.append(len(app.frames))
        return with_settings(answers)

    app = Drawn(lambda: TunePage(make_plans, START, RUN.name, FACTS))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("tab")
        await begun(pilot, app)
        await pilot.press("4")
        await until(pilot, lambda: "num_train_epochs 3 → 4" in shown(app))
        await pilot.pause(0.1)
    assert drawn_before == [1]
    assert len(app.frames) == 2
    assert not any(isinstance(frame, LayoutUpdate) for frame in app.frames)


async def begun(pilot: Pilot[Any], app: Drawn) -> None:
    """Everything drawn until now is forgotten, and nothing is on its way."""
    await until(pilot, lambda: bool(app.frames))
    while app.frames:
        app.frames.clear()
        await rest(pilot)
        await pilot.pause(0.1)


async def test_a_moved_focus_does_not_draw_the_whole_screen() -> None:
    app = Drawn(tune)
    async with app.run_test(size=(80, 24)) as pilot:
        await begun(pilot, app)
        await pilot.press("tab")
        await until(pilot, lambda: bool(app.frames))
        assert not any(isinstance(frame, LayoutUpdate) for frame in app.frames)


def tune() -> TunePage:
    return TunePage(with_settings, START, RUN.name, FACTS)


@pytest.mark.parametrize("delay", [None, "300"])
def test_escape_needs_no_byte_after_it_and_an_arrow_stays_one_key(
    delay: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 0.3)
    monkeypatch.delenv("ESCDELAY", raising=False)
    if delay is not None:
        monkeypatch.setenv("ESCDELAY", delay)
    reads, writes = os.pipe()
    pressed: list[Message] = []
    ours = terminal.Terminal.__new__(terminal.Terminal)
    ours.fileno, ours._debug, ours.exit_event = reads, False, threading.Event()
    ours.process_message = pressed.append  # type: ignore[assignment]
    thread = threading.Thread(target=ours.run_input_thread, daemon=True)
    thread.start()

    def told(number: int) -> list[str]:
        ends = time.monotonic() + 10
        while len(pressed) < number and time.monotonic() < ends:
            time.sleep(0.005)
        return [one.key for one in pressed if isinstance(one, events.Key)]

    os.write(writes, b"\x1b[A")
    assert told(1) == ["up"]
    os.write(writes, b"\x1b")
    assert told(2) == ["up", "escape"]
    assert (0.3 if delay else terminal.ESCAPE_SECONDS) == constants.ESCAPE_DELAY
    os.close(writes)  # a terminal that is gone ends the reading
    thread.join(10)
    assert not thread.is_alive()
