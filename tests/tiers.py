"""Which cases of a long table `pytest` alone runs, and which only CI does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def spread(cases: Iterable[Any], every: int, ids: Iterable[str] | None = None) -> list[Any]:
    """Every nth case stays in the default tier, the others are marked `wide`.

    A case that is a tuple is spread over the parameters, as pytest does with several names.
    """
    names = list(ids) if ids is not None else None
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if place % every == 0 else pytest.mark.wide,
            id=names[place] if names else None,
        )
        for place, case in enumerate(cases)
    ]
