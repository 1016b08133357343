"""Which boxes a dashboard of a size shows, and how many lines the table of ranks gets."""

from __future__ import annotations

BOXES = ("now", "chart", "ranks", "events", "log")
"""In the order in which Tab walks them where only one has room."""
AROUND = 7
"""Lines of header, summary, progress, message, keys, and of a box's border."""


def is_small(width: int, height: int) -> bool:
    """Whether there is room for one box at a time only."""
    return width < 80 or height < 24


def boxes(width: int, height: int, alone: str | None) -> frozenset[str]:
    """The boxes shown; `alone` is the one that has the whole screen."""
    if alone is not None:
        return frozenset({alone})
    if is_small(width, height):
        return frozenset({BOXES[0]})
    found = {"now", "chart", "ranks", "events"}
    if width >= 120:
        found.add("log")
    if width >= 180:
        found.add("chart2")
    return frozenset(found)


def rank_room(height: int, alone: str | None, wanted: int) -> int:
    """Lines within the border of the table of ranks."""
    if alone == "ranks":
        return max(height - AROUND, 3)
    most = 4 if height < 30 else 12 if height < 50 else 24
    return max(min(wanted, most), 2)
