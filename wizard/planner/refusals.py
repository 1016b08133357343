"""What is refused before a run is planned, because the trainer would refuse it, only later."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any

from engine.spec import DataTable
from wizard.facts import Dataset, Model, module_name
from wizard.problem import Problem
from wizard.wording import counted

MOST_NAMED = 12


def too_many_dropped(data: Dataset, fixed: Mapping[str, Any]) -> Problem | None:
    """More unusable rows than `max_dropped_percent` allows; None where they are fewer."""
    if not data.dropped_rows:
        return None
    default = DataTable.model_fields["max_dropped_percent"].default
    limit = float(fixed.get("max_dropped_percent", default))
    rows, percent = data.rows_there + data.dropped_rows, data.dropped_percent
    if percent <= limit:
        return None
    first = f"; the first: {data.problems[0]}" if data.problems else ""
    some = f"{data.dropped_rows:,} of {counted(rows, 'row')}"
    return Problem(
        what=f"{some} cannot be used, {percent:.3g} %{first}",
        where=data.path,
        fix=f"repair them, or go on without them: --set max_dropped_percent={math.ceil(percent)}",
        exit_code=4,
    )


def absent_modules(model: Model, fixed: Mapping[str, Any]) -> Problem | None:
    """A module that an adapter is asked for and the model has not.

    None also where its modules are not known. Ends of names count, as PEFT matches them.
    """
    places = {"target_modules": model.matrices, "modules_to_save": model.modules}
    for setting, modules in places.items():
        for name in _named(fixed.get(setting)) if modules else ():
            if not any(_ends(known, name) for known in modules):
                return _absent(name, setting, modules)
    return None


def _named(value: object) -> list[str]:
    if not isinstance(value, str) or value == "all-linear":
        return []
    return [module_name(part.strip()) for part in value.split(",")]


def _ends(known: str, name: str) -> bool:
    return known == name or known.endswith(f".{name}") or name == "lm_head"


def _absent(name: str, setting: str, modules: tuple[str, ...]) -> Problem:
    ends = list(dict.fromkeys(known.rpartition(".")[2] for known in modules))
    near = difflib.get_close_matches(name.rpartition(".")[2], ends, n=1)
    more = ", …" if len(ends) > MOST_NAMED else ""
    known = f"it has {', '.join(ends[:MOST_NAMED])}{more}"
    return Problem(
        what=f"the model has no module `{name}`",
        where=setting,
        fix=f"did you mean {near[0]}? {known}" if near else known,
        exit_code=2,
    )
