"""The line on top: which step this is, and which are done."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content
from textual.widget import Widget

from wizard import wording
from wizard.language import said
from wizard.steps import DONE, ORDER, Step
from wizard.widgets.terminal import can_show

FULL_WIDTH = 120
ROOM_FOR_GAPS = 66
ROOM_FOR_BOTH = 80
"""Cells for the name of the program and the word `offline`."""
DONE_IN_ASCII = "+"


class StepHeader(Widget):
    """All steps where there is room, else the number of this one; without a step, the place."""

    DEFAULT_CSS = """
    StepHeader { dock: top; height: 1; padding: 0 1; }
    """

    def __init__(
        self,
        step: Step | None,
        place: str = "",
        marks: Mapping[Step, str] | None = None,
        *,
        offline: bool = False,
    ) -> None:
        super().__init__(markup=False)
        self._step = step
        self._place = place
        self._marks = marks or {}
        self._offline = offline
        self._has_done = can_show(DONE)

    def render(self) -> Content:
        """The line for the current width."""
        brand = ("tunewright", "bold $primary")
        if self._offline:
            roomy = self.size.width >= ROOM_FOR_BOTH
            word = said("offline")
            brand = (f"tunewright   {word}" if roomy else word, "bold $text-warning")
        if self._step is None:
            return Content.assemble(brand, f"   {said(self._place)}")
        if self.size.width >= FULL_WIDTH:
            return Content.assemble(brand, "   ", *self._full(self._step))
        here = said(f"step {self._step.number} of {len(ORDER)}")
        name = wording.padded(said(self._step.value), 10)
        return Content.assemble(brand, f"   {here}   ", (name, "bold"), *self._short(self._step))

    def _short(self, here: Step) -> list[tuple[str, str]]:
        gap = " " if self.size.width >= ROOM_FOR_GAPS else ""
        return [
            (f"{self._mark(step, here)}{step.number}{gap}", _style(step, here)) for step in ORDER
        ]

    def _full(self, here: Step) -> list[tuple[str, str]]:
        return [
            (
                f"[{self._mark(step, here).replace('.', ' ')}] {step.number} {said(step.value)}   ",
                _style(step, here),
            )
            for step in ORDER
        ]

    def _mark(self, step: Step, here: Step) -> str:
        if step is here:
            return ">"
        mark = self._marks.get(step, DONE if step.number < here.number else ".")
        return mark if mark != DONE or self._has_done else DONE_IN_ASCII


def _style(step: Step, here: Step) -> str:
    return "bold" if step is here else "$foreground-muted"
