"""How a memory estimate is shown: does it fit, by how much, and what it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from wizard import wording
from wizard.language import said
from wizard.widgets.table import Column, lines

if TYPE_CHECKING:
    from wizard.plan import Memory, Plan

TIGHT_SHARE = 0.05
"""A plan that leaves less than this share of the budget free is called tight."""
WEIGHTS = ("weights", "adapter", "gathered weights", "reference model", "autocast copies")
STATES = ("optimizer", "gradients", "gradient buckets", "optimizer step")
MARKS = {**dict.fromkeys(WEIGHTS, "#"), **dict.fromkeys(STATES, "=")}
OTHER_MARK = "."
LEGEND = "# weights   = optimizer, gradients   . activations, buffers   > over"


ROOM_FOR_BARS = 44
"""Width of a table of parts from which on its bars are long."""


def fit_word(plan: Plan) -> str:
    """`yes`, `tight` or `no`; `unknown` where the memory of the device is."""
    memory = plan.memory
    if not plan.fits:
        return "no"
    if memory.device_budget_bytes is None:
        return wording.UNKNOWN
    free = memory.device_budget_bytes - memory.device_bytes
    return "tight" if free < TIGHT_SHARE * memory.device_budget_bytes else "yes"


def best_fit(plans: Sequence[Plan]) -> str:
    """How the roomiest plan fits: a smaller model of a kind never fits worse than a larger one."""
    words = {fit_word(plan) for plan in plans}
    return next((word for word in ("yes", wording.UNKNOWN, "tight") if word in words), "no")


def margin(plan: Plan) -> str:
    """By how much it fits or does not: `+3.1 GiB over`, `11.2 GiB free`."""
    memory = plan.memory
    if memory.over_bytes > 0:
        return f"+{wording.gib(memory.over_bytes)} over"
    if memory.device_budget_bytes is None:
        return ""
    return f"{wording.gib(memory.device_budget_bytes - memory.device_bytes)} free"


def budget_line(plan: Plan, width: int = 26) -> str:
    """Predicted against budget on one line, with a bar."""
    memory = plan.memory
    used = said(wording.gib_of(memory.device_bytes, memory.device_budget_bytes))
    return " ".join(filter(None, (used, made_of(memory, width), fits(plan))))


def fits(plan: Plan) -> str:
    """Whether it fits, and by how much: `fits, 11.2 GiB free`."""
    told = ("fits" if plan.fits else "does not fit", margin(plan))
    return said(", ".join(filter(None, told)))


def made_of(memory: Memory, width: int) -> str:
    """The budget as a bar of `width` cells, each cell marked with what fills it (see LEGEND)."""
    inner, budget = max(width - 2, 1), memory.device_budget_bytes
    if not budget:
        return ""
    over = memory.device_bytes > budget
    whole = memory.device_bytes if over else budget
    filled, drawn = 0, ""
    for part in sorted(memory.parts, key=lambda part: "#=.".index(_mark(part.name))):
        filled += part.bytes
        drawn += _mark(part.name) * (round(inner * filled / whole) - len(drawn))
    return f"[{drawn[:inner]}>" if over else f"[{drawn:<{inner}}]"


def _mark(part: str) -> str:
    return MARKS.get(part, OTHER_MARK)


def parts_table(memory: Memory, width: int) -> str:
    """The parts of the estimate, each with its share of the whole."""
    columns = (Column(title="part", flexible=True), Column(title="", right=True), Column(title=""))
    largest = max((part.bytes for part in memory.parts), default=1) or 1
    cells = 10 if width >= ROOM_FOR_BARS else 4
    rows = [
        (
            said(part.name),
            wording.gib(part.bytes),
            _mark(part.name) * round(cells * part.bytes / largest),
        )
        for part in memory.parts
    ]
    total = (said("total"), wording.gib(memory.device_bytes), "")
    moment = [said(f"the peak is in {memory.moment}")] if memory.moment else []
    return "\n".join([*lines(columns, [*rows, total], width)[1:], *moment])
