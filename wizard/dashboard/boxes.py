"""The boxes of the dashboard: as many as there is room for, or one of them alone."""

from __future__ import annotations

from textual.reactive import reactive

from wizard.dashboard import layout
from wizard.dashboard.charts import METRICS, Chart
from wizard.dashboard.ranks import ORDERS, RankTable
from wizard.dashboard.state import RunState
from wizard.widgets.page import Page


class Boxes(Page[RunState]):
    """What a page of boxes does with them; `draw_boxes` fills them."""

    alone: reactive[str | None] = reactive(None, init=False, repaint=False)

    def draw_boxes(self) -> None:
        """Draw every box anew."""
        raise NotImplementedError

    def on_resize(self) -> None:
        """Choose boxes and columns for the new size."""
        self.place_boxes()

    def watch_alone(self) -> None:
        """One box, or all again."""
        self.place_boxes()

    def place_boxes(self) -> None:
        """Show the boxes there is room for, and draw them anew."""
        width, height = self.size
        shown = layout.boxes(width, height, self.alone)
        for name in (*layout.BOXES, "chart2"):
            self.query_one(f"#{name}").display = name in shown
        self.query_one("#top").display = bool(shown & {"chart", "chart2", "now"})
        self.query_one("#bottom").display = bool(shown & {"events", "log"})
        self.set_class(len(shown) == 1, "-alone")
        self.call_after_refresh(self.draw_boxes)

    def action_log(self) -> None:
        """The log alone, or all again."""
        self.alone = None if self.alone == "log" else "log"

    def action_maximise(self) -> None:
        """The focused box alone, or all again."""
        focused = self.focused.id if self.focused is not None else None
        box = focused if focused in layout.BOXES else "chart"
        self.alone = box if self.alone is None else None

    def action_box(self, by: int) -> None:
        """The next box: the only one shown where there is room for one, else the focus."""
        if self.alone is None and not layout.is_small(*self.size):
            (self.focus_next if by > 0 else self.focus_previous)()
            return
        at = layout.BOXES.index(self.alone or layout.BOXES[0])
        self.alone = layout.BOXES[(at + by) % len(layout.BOXES)]

    def action_metric(self) -> None:
        """The next curve."""
        chart = self.query_one("#chart", Chart)
        chart.metric = (chart.metric + 1) % len(METRICS)
        if not chart.display:
            self.alone = "chart"
        self.draw_boxes()

    def action_order(self) -> None:
        """Another order of ranks."""
        table = self.query_one(RankTable)
        table.order = ORDERS[(ORDERS.index(table.order) + 1) % len(ORDERS)]
        table.first = 0
        self.draw_boxes()
