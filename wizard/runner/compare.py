"""Two runs beside each other: the settings that differ, and what each measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wizard.dashboard.state import RunState
from wizard.runner.again import read_spec, settings_of
from wizard.runner.folder import read_json, summary
from wizard.runner.follow import Follower

MEASURED = (
    "steps",
    "train_loss_first",
    "train_loss_last",
    "tokens_per_second",
    "step_seconds",
    "seconds",
    "memory_peak_bytes",
    "process_memory_peak_bytes",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One thing of both runs; None where a run does not have it."""

    name: str
    first: Any
    second: Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """What differs, and what came out."""

    settings: tuple[Row, ...]
    measured: tuple[Row, ...]


def compare(first: Path, second: Path) -> Comparison:
    """Two runs by their folders.

    Raises ProblemError for a run whose spec.toml cannot be used.
    """
    left, right = settings_of(read_spec(first)), settings_of(read_spec(second))
    settings = [
        Row(name=key, first=left.get(key), second=right.get(key))
        for key in dict.fromkeys((*left, *right))
        if left.get(key) != right.get(key)
    ]
    a, b = _measured(first), _measured(second)
    measured = [
        Row(name=key, first=a.get(key), second=b.get(key))
        for key in ("state", *MEASURED)
        if a.get(key) is not None or b.get(key) is not None
    ]
    return Comparison(settings=tuple(settings), measured=tuple(measured))


def _measured(folder: Path) -> dict[str, Any]:
    """The whole run's own numbers, from its events; what only its end tells is of its last attempt.

    A run that did not end with a result has what its events tell.
    """
    found = read_json(folder / "result.json").get("measured")
    values: Mapping[str, Any] = found if isinstance(found, dict) else {}
    last = {key: _largest(values.get(key)) for key in MEASURED}
    told = _told(Follower(folder).poll())
    whole = ("steps", "train_loss_first", "train_loss_last", "seconds")
    merged = {
        key: told.get(key) if last[key] is None or (key in whole and key in told) else last[key]
        for key in MEASURED
    }
    return {"state": summary(folder).state, **merged}


def _told(state: RunState) -> dict[str, Any]:
    """What the events of all attempts tell; without what they do not."""
    told = {
        "steps": state.step,
        "train_loss_first": state.first_loss,
        "train_loss_last": state.last_loss,
        "tokens_per_second": state.tokens_per_second,
        "step_seconds": state.step_seconds,
        "seconds": state.running_seconds(),
    }
    return {key: value for key, value in told.items() if value is not None}


def _largest(value: Any) -> Any:
    """Of a list with an entry for each rank the largest that is known."""
    if isinstance(value, list):
        return max((v for v in value if isinstance(v, int | float)), default=None)
    return value
