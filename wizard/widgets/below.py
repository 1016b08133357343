"""What a box lies over: the screen below it, dimmed; each style is blended once, not each word."""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.color import Color
from textual.css.styles import RulesMap
from textual.renderables.background_screen import BackgroundScreen
from textual.screen import Screen
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

STYLES = 1024
"""How many are remembered; a screen has some twenty."""


class Below(Visual):
    """Draws what the toolkit's BackgroundScreen does."""

    def __init__(self, screen: Screen[object], color: Color) -> None:
        """`color` is laid over the screen; it lets some of that shine through."""
        self._screen = screen
        self._color = color

    def render_strips(
        self, width: int, height: int | None, style: Style, options: RenderOptions
    ) -> list[Strip]:
        """The lines of the screen."""
        return [self._dim(strip) for strip in self._screen._compositor.render_strips()[:height]]

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        """As wide as the screen."""
        return self._screen.size.width

    def get_height(self, rules: RulesMap, width: int) -> int:
        """As high as the screen."""
        return self._screen.size.height

    def _dim(self, strip: Strip) -> Strip:
        color = self._color
        segments = [Segment(text, dimmed(style, color)) for text, style, control in strip]
        return Strip(segments, strip.cell_length)


@lru_cache(maxsize=STYLES)
def dimmed(style: RichStyle | None, color: Color) -> RichStyle | None:
    """A style as it shines through a colour; nothing in it can be clicked."""
    [segment] = BackgroundScreen.process_segments([Segment("", style)], color)
    return segment.style
