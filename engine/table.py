"""Table: what every part of a spec is: frozen, with no unknown keys and no numbers without end."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

LARGEST = 2**31 - 1
"""Upper end of counts: what the trainer's libraries hold in 32 bits."""


class Table(BaseModel):
    """Settings that belong together; each has a sentence under it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False
    )
