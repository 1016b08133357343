"""The loss over the steps, drawn with as many points as there are columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from wizard import wording
from wizard.dashboard.state import RunState
from wizard.widgets.panel import name_box

if TYPE_CHECKING:
    from textual_plotext import PlotextPlot

Point = tuple[int, float]


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points, each the mean of its neighbours; the last one stays exact."""
    if len(points) <= most:
        return list(points)
    size = math.ceil(len(points) / max(most - 1, 1))
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    means = [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]
    return [*means[:-1], points[-1]]


def whole_ticks(first: int, last: int, most: int = 5) -> list[int]:
    """At most `most` different whole steps, evenly apart, both ends included."""
    parts = most - 1
    return sorted({round(first + (last - first) * part / parts) for part in range(most)})


class LossChart(Vertical):
    """Waits for the second loss before it loads what draws."""

    DEFAULT_CSS = """
    LossChart { border: round; }
    """

    def __init__(self) -> None:
        super().__init__(id="chart")
        self._plot: PlotextPlot | None = None
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Words until there is something to draw."""
        yield Static("No loss yet.", id="no-loss", markup=False)

    def on_mount(self) -> None:
        """Name the box."""
        name_box(self, "Loss")

    def show(self, state: RunState) -> None:
        """Draw the losses if they changed."""
        if len(state.losses) < 2:
            return
        drawn = (state.losses[-1], len(state.losses), self.size)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        first, last = state.losses[0][1], state.losses[-1][1]
        name_box(self, f"Loss   {wording.loss(first)} → {wording.loss(last)}", "step")
        self._draw(thinned(state.losses, max(2 * self.size.width - 16, 16)))

    def _draw(self, points: Sequence[Point]) -> None:
        plot = self._plot or self._load()
        plot.plt.clear_data()
        plot.plt.plot(
            [step for step, _ in points],
            [loss for _, loss in points],
            marker="braille",
            color="cyan+",
        )
        plot.plt.xticks(whole_ticks(points[0][0], points[-1][0]))
        plot.refresh()

    def _load(self) -> PlotextPlot:
        from textual_plotext import PlotextPlot

        self._plot = PlotextPlot()
        self.query_one("#no-loss").remove()
        self.mount(self._plot)
        return self._plot
