"""Curves as inline SVG: no script, no font, no file beside it."""

from __future__ import annotations

import html
from collections.abc import Sequence

from wizard.language import said

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 10, 26
TICKS = 4

Point = tuple[float, float]


def plot(title: str, points: Sequence[Point], dots: Sequence[Point] = ()) -> str:
    """One curve with its axes, and dots over it; empty when there are fewer than two points."""
    if len(points) < 2:
        return ""
    low_x, high_x = points[0][0], max(points[-1][0], points[0][0] + 1)
    values = [y for _, y in (*points, *dots)]
    low, high = min(values), max(values)
    if high - low < 1e-12 * max(abs(high), 1.0):
        low, high = low - abs(low or 1) / 10, high + abs(high or 1) / 10

    def place(point: Point) -> tuple[float, float]:
        x = LEFT + (WIDTH - LEFT - RIGHT) * (point[0] - low_x) / (high_x - low_x)
        return x, TOP + (HEIGHT - TOP - BOTTOM) * (high - point[1]) / (high - low)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, points))
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in map(place, dots))
    grid = "".join(
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
        for value in (low + (high - low) * part / TICKS for part in range(TICKS + 1))
        for _, y in (place((low_x, value)),)
    )
    steps = "".join(
        f'<text x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="middle">{step:,.0f}</text>'
        for step in (low_x + (high_x - low_x) * part / TICKS for part in range(TICKS + 1))
        for x, _ in (place((step, low)),)
    )
    name = html.escape(said(title))
    return (
        f'<figure><figcaption>{name}</figcaption><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{name}">{grid}{steps}'
        f'<polyline points="{line}"/>{marks}</svg></figure>'
    )


def short(value: float) -> str:
    """A number for an axis."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
