"""Machines that are not this one: found by typing, composed of a count and a name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from textual.screen import Screen

from wizard.screens.verbs import Machines
from wizard.widgets.picker import Choice, Picker, matching

COUNT = re.compile(r"\s*(\d{1,2})\s*[x×*]?\s*(.*)")
SIZE_ALONE = re.compile(r"\s*\d{1,4}\s*gi?b?\s*", re.IGNORECASE)
FORMS = (
    "No machine is called so. Understood are: 8xH100 and 4x L40S, a count and a name; 4x24 or "
    "4 x 24 GB, a count and a memory; a name of the list; and the path of a file that "
    "`tunewright probe -o FILE` saved, which Enter takes as it is typed."
)


def offered(machines: Machines, typed: str) -> Sequence[Choice]:
    """Recorded machines that match; with a count before it, any accelerator so many times."""
    found = list(matching([Choice(value=name, line=name) for name in machines.snapshots])(typed))
    counted = None if SIZE_ALONE.fullmatch(typed) else COUNT.fullmatch(typed)
    number, rest = (counted[1], counted[2]) if counted else ("1", typed)
    composed = {
        name: Choice(value=f"{number}x {name}", line=f"{number} × {name}")
        for name in machines.devices
    }
    named = matching([*composed.values()])(rest)
    sized = [composed[name] for name in machines.sold_with(rest)]
    return [*found, *named, *(one for one in sized if one not in named)]


def pick_machine(page: Screen[Any], machines: Machines, then: Callable[[str | None], None]) -> None:
    """Ask for a machine over a page."""
    picker = Picker(
        "Which machine? Recorded ones, or a count and a name",
        lambda typed: offered(machines, typed),
        hint="8xH100, 4x L40S, 4x24 GB, a saved file ...",
        empty=FORMS,
    )
    page.app.push_screen(picker, then)
