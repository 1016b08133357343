"""One frame for one answer: a screen is drawn when all that follows from a key has been said."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any, ClassVar

from textual.geometry import Size
from textual.reactive import Reactive
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.widget import Widget

from wizard.widgets.below import Below

PATIENCE_SECONDS = 0.04
"""A frame is not held back for longer."""
AT_REST = 2
"""Looks in turn that find nothing; scrollbars are no children, and are heard a look later."""
LOOK_SECONDS = 0.001
"""Before the last look."""
LOADED_SECONDS = 1.0
"""After which a screen has loaded what it needs."""


class OneFrame(Screen[Any]):
    """Draws what changed once, after the messages and layouts that follow from it.

    The toolkit draws as soon as the screen itself has nothing to do, and lays out again what a
    layout changed a frame later: a key that marks a row, explains it and so moves what is below
    took four frames, 16 ms apart, of which three showed something half done. A ModalScreen is named
    before this one, for styles are those of the first class.
    """

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """The toolkit draws the whole screen anew when it changes; both widgets draw themselves."""
    _held = False
    _next_frame: asyncio.Event | None = None
    _loaded: ClassVar[set[type]] = set()

    def on_mount(self) -> None:
        """Let what the first screen of its kind loads be no part of later collections of garbage.

        Going through all that modules, settings and styles are held a key up by 60 ms every few
        seconds.
        """
        if type(self) not in self._loaded:
            self._loaded.add(type(self))
            self.set_timer(LOADED_SECONDS, _keep_loaded)

    def render(self) -> Any:
        """What is under the screen, where it is a box over another."""
        rendered = super().render()
        if isinstance(rendered, BackgroundScreen):
            return Below(rendered.screen, rendered.color)
        return rendered

    def _screen_resized(self, size: Size) -> None:
        """Lay out for a new size alone.

        The toolkit does so again for the one it has, and for all below, when a box is opened.
        """
        if self._compositor.size != size:
            super()._screen_resized(size)

    def next_frame(self) -> asyncio.Event:
        """Set once what was changed so far is drawn; never where nothing was."""
        if self._next_frame is None:
            self._next_frame = asyncio.Event()
        return self._next_frame

    async def answer(self) -> bool:
        """Wait for what may be answered at once, beside the screen; whether there was any."""
        return False

    def _compositor_refresh(self) -> None:
        """Where the toolkit draws: changed regions are kept until all is said."""
        if self.app.screen is not self:  # under another: it tells that one, which draws
            super()._compositor_refresh()
        elif not self._held:
            self._held = True
            self._drawing = asyncio.create_task(self._draw_at_rest())

    async def _draw_at_rest(self) -> None:
        try:
            await self._at_rest()
        finally:
            self.call_next(self._draw)

    async def _at_rest(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        looks = 0
        while (looks < AT_REST and time.monotonic() < until) or self.app._batch_count:
            await asyncio.sleep(LOOK_SECONDS if looks else 0)
            if self._on_its_way():
                looks = 0
            elif self._layout_required or self._scroll_required or self._repaint_required:
                looks = 0
                self.call_next(self._on_timer_update)  # lays out; its drawing is this one
            elif self._changes_below() or await self.answer():
                looks = 0
            else:
                looks += 1

    def _on_its_way(self) -> bool:
        """Whether a message is queued anywhere that is seen."""
        return bool(self.app.message_queue_size) or any(
            node.message_queue_size
            for screen in (self, *self.app._background_screens)
            for node in screen.walk_children(with_self=True)
        )

    def _changes_below(self) -> bool:
        """Whether a screen under this one changed, as by losing the focus; it is told so here."""
        changed = [screen for screen in self.app._background_screens if screen._dirty_widgets]
        for screen in changed:
            screen._on_timer_update()
            screen._dirty_widgets.clear()
        return bool(changed)

    def _draw(self) -> None:
        if self.app._batch_count:  # what is drawn now would be lost
            self._drawing = asyncio.create_task(self._draw_at_rest())
            return
        self._held = False
        self._compositor.update_widgets(self._dirty_widgets)
        super()._compositor_refresh()
        if self._next_frame is not None:
            self._next_frame.set()
            self._next_frame = None


def _keep_loaded() -> None:
    gc.collect()
    gc.freeze()
