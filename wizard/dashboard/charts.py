"""What was measured over the steps, drawn with as many points as there are columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from wizard import wording
from wizard.dashboard.state import Row, RunState
from wizard.language import said
from wizard.widgets.panel import name_box, redraw

if TYPE_CHECKING:
    from textual_plotext import PlotextPlot

Point = tuple[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One curve."""

    name: str
    of: Callable[[Row], float | None]
    word: Callable[[float], str]
    """A value in words."""


METRICS = (
    Metric(name="loss", of=lambda row: row.loss, word=wording.loss),
    Metric(name="lr", of=lambda row: row.learning_rate, word="{:.3g}".format),
    Metric(name="grad norm", of=lambda row: row.grad_norm, word="{:.3g}".format),
    Metric(name="tok/s", of=lambda row: row.tokens_per_second, word="{:,.0f}".format),
    Metric(
        name="memory GiB",
        of=lambda row: None if row.memory_bytes is None else row.memory_bytes / wording.GIB,
        word="{:.2f} GiB".format,
    ),
)


def points(state: RunState, metric: Metric) -> list[Point]:
    """(step, value) where the value is known."""
    return [(row.step, value) for row in state.history if (value := metric.of(row)) is not None]


def eval_points(state: RunState) -> list[Point]:
    """(step, loss) of the evaluations."""
    return [
        (found.step, found.metrics["eval_loss"])
        for found in state.evals
        if found.step is not None and "eval_loss" in found.metrics
    ]


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


def too_few(metric: Metric, curve: Sequence[Point]) -> str:
    """What stands where a curve has no two points."""
    if not curve:
        return f"No {metric.name} yet."
    step, value = curve[0]
    return f"{metric.name} {metric.word(value)} at step {step}; a curve needs two values."


class Chart(Vertical):
    """One metric; it waits for the second value before it loads what draws."""

    DEFAULT_CSS = """
    Chart { border: round; }
    Chart > Static { padding: 0 1; }
    """

    def __init__(self, *, id: str, metric: int = 0) -> None:  # noqa: A002 – Textual's own name
        super().__init__(id=id)
        self.metric = metric
        self._plot: PlotextPlot | None = None
        self._drawn: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        """Words until there is something to draw."""
        yield Static(markup=False)

    def show(self, state: RunState, waiting: str) -> None:
        """Draw the metric if it changed; `waiting` stands there while there is nothing to draw."""
        metric = METRICS[self.metric]
        curve = points(state, metric)
        words = self.query_one("Chart > Static", Static)
        if len(curve) < 2:
            launching = state.step is None and not state.ended
            if launching:
                name_box(self, "Launch")
            else:
                self._title(metric, "", [])
            words.display = True
            redraw(words, waiting if launching else said(too_few(metric, curve)))
            if self._plot is not None:
                self._plot.display = False
            self._drawn = ()
            return
        evals = eval_points(state) if metric.name == "loss" else []
        drawn = (self.metric, curve[0], curve[-1], len(curve), len(evals), self.size)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        words.display = False
        self._title(metric, f"{metric.word(curve[0][1])} → {metric.word(curve[-1][1])}", evals)
        self._draw(thinned(curve, max(2 * self.size.width - 16, 16)), evals)

    def _title(self, metric: Metric, values: str, evals: Sequence[Point]) -> None:
        wide = self.size.width >= 60
        names = [f"[{said(m.name)}]" if m is metric else said(m.name) for m in METRICS]
        tabs = "  ".join(names) if wide else said(metric.name)
        best = min((value for _, value in evals), default=None)
        note = "step" if best is None else f"o eval, best {best:.4f}   step"
        name_box(self, f"{tabs}   {values}".rstrip(), note)

    def _draw(self, curve: Sequence[Point], evals: Sequence[Point]) -> None:
        plot = self._plot or self._load()
        plot.display = True
        plt = plot.plt
        plt.clear_data()
        xs, ys = [step for step, _ in curve], [value for _, value in curve]
        plt.plot(xs, ys, marker="braille", color="cyan+")
        if evals:
            plt.scatter([s for s, _ in evals], [v for _, v in evals], marker="o", color="orange+")
        plt.xticks(whole_ticks(curve[0][0], curve[-1][0]))
        plot.refresh()

    def _load(self) -> PlotextPlot:
        from textual_plotext import PlotextPlot

        self._plot = PlotextPlot()
        self.mount(self._plot)
        return self._plot
