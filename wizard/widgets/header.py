"""The line on top: which step this is, and which are done."""

from __future__ import annotations

from textual.content import Content
from textual.widget import Widget

from wizard.steps import ORDER, Step

FULL_WIDTH = 120


class StepHeader(Widget):
    """All steps where there is room, else the number of this one; without a step, the place."""

    DEFAULT_CSS = """
    StepHeader { dock: top; height: 1; padding: 0 1; }
    """

    def __init__(self, step: Step | None, place: str = "") -> None:
        super().__init__(markup=False)
        self._step = step
        self._place = place

    def render(self) -> Content:
        """The line for the current width."""
        brand = ("tunewright", "bold $primary")
        if self._step is None:
            return Content.assemble(brand, f"   {self._place}")
        if self.size.width >= FULL_WIDTH:
            return Content.assemble(brand, "   ", *self._full(self._step))
        here = f"   step {self._step.number} of {len(ORDER)}   "
        return Content.assemble(brand, here, (self._step.value, "bold"))

    def _full(self, here: Step) -> list[tuple[str, str]]:
        return [
            (
                f"[{_mark(step, here).replace('.', ' ')}] {step.number} {step.value}   ",
                "bold" if step is here else "$foreground-muted",
            )
            for step in ORDER
        ]


def _mark(step: Step, here: Step) -> str:
    if step is here:
        return ">"
    return "x" if step.number < here.number else "."
