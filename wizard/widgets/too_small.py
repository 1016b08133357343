"""The page shown instead of all others when the terminal is too small."""

from __future__ import annotations

from textual.content import Content
from textual.geometry import Size
from textual.widget import Widget

from wizard.language import said

NEEDED_WIDTH, NEEDED_HEIGHT = 60, 16


def is_too_small(size: Size) -> bool:
    """Whether a terminal of this size shows this page alone."""
    return size.width < NEEDED_WIDTH or size.height < NEEDED_HEIGHT


class TooSmall(Widget):
    """Lies over the page below 60 x 16; what is under it keeps its state and focus."""

    DEFAULT_CSS = """
    TooSmall { layer: cover; dock: top; width: 100%; height: 100%; display: none; padding: 1 2; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def render(self) -> Content:
        """What is needed and what there is."""
        size = self.app.size
        return Content(
            said(
                f"This screen needs {NEEDED_WIDTH} x {NEEDED_HEIGHT}; "
                f"you have {size.width} x {size.height}.\n"
                "Make the terminal larger. A run is not affected.\n"
                "Ctrl+Q  leave (a run goes on)"
            )
        )
