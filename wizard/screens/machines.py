"""Machines that are not this one: found by typing, composed of a count and a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from textual.screen import Screen

from wizard.screens.verbs import Machines
from wizard.widgets.picker import Choice, Picker, matching

COUNT = re.compile(r"\s*(\d{1,2})\s*[x×*]?\s*(.*)")


def offered(machines: Machines, typed: str) -> Sequence[Choice]:
    """Recorded machines that match; with a count before it, any accelerator so many times."""
    found = list(matching([Choice(value=name, line=name) for name in machines.snapshots])(typed))
    counted = COUNT.fullmatch(typed)
    number, rest = (counted[1], counted[2]) if counted else ("1", typed)
    composed = [
        Choice(value=f"{number}x {name}", line=f"{number} × {name}") for name in machines.devices
    ]
    return [*found, *matching(composed)(rest)]


def pick_machine(page: Screen[Any], machines: Machines, then: Callable[[str | None], None]) -> None:
    """Ask for a machine over a page."""
    picker = Picker(
        "Which machine? Recorded ones, or a count and a name",
        lambda typed: offered(machines, typed),
        hint="8xH100, 4x L40S, a saved file ...",
    )
    page.app.push_screen(picker, then)
