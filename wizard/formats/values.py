"""What an import or an export came to: what was carried, and what was not and why."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wizard.answers import Preset

SECRET = re.compile(r"token$|secret|passw|api_?key|credential|(^|_)key$", re.IGNORECASE)
"""Names of settings whose value is shown to nobody."""
LONGEST = 60
"""Characters of a value in a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Carried:
    """A setting that means the same on both sides."""

    keys: tuple[str, ...]
    """As the other trainer names it; several when only together they say it."""
    setting: str
    value: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """A setting that is not carried over."""

    key: str
    value: Any
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """A preset made of another trainer's configuration; no key of it is missing here."""

    format: str
    preset: Preset
    carried: tuple[Carried, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """The files of an export, the one to start with first."""

    files: Mapping[str, str]
    left: tuple[Left, ...] = field(default=())

    @property
    def main(self) -> str:
        """Name of the file to start with."""
        return next(iter(self.files))


def told(left: Iterable[Left], *, values: bool = True) -> list[str]:
    """One line for each reason, with every key it holds for; text from outside is not escaped."""
    reasons: dict[str, list[str]] = {}
    for one in left:
        reasons.setdefault(one.why, []).append(_named(one) if values else one.key)
    return [f"{', '.join(keys)}: {why}" for why, keys in reasons.items()]


def _named(one: Left) -> str:
    if SECRET.search(one.key):
        return f"{one.key} = (hidden)"
    return f"{one.key} = {short(one.value)}"


def short(value: Any) -> str:
    """A value in few characters."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
