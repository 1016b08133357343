"""The shipped fact tables: accelerators and models by name."""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from typing import TypeAlias

from wizard import paths

Row: TypeAlias = Mapping[str, str]


@functools.cache
def _table(name: str) -> Mapping[str, Row]:
    """Rows of a table in presets/facts by lower-case name; empty when the file is missing."""
    path = paths.shipped_presets() / "facts" / f"{name}.csv"
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return {
                alias.lower(): row
                for row in csv.DictReader(file)
                for alias in _aliases(row["name"])
            }
    except OSError:
        return {}


def _aliases(name: str) -> tuple[str, ...]:
    """`Ascend910_9391 / _9381` and `AMD Instinct MI250X / MI250` are one row under two names."""
    first, *others = name.split(" / ")
    stems = {"_": first.rpartition("_")[0], "M": first.rpartition(" ")[0] + " "}
    return (name, first, *(stems.get(other[0], "") + other for other in others))


def accelerator(name: str) -> Row | None:
    """The row of an accelerator under the name its driver reports; None when unknown.

    A MIG slice has no row of its own, and its parent's numbers are not its.
    """
    return _table("accelerators").get(name.lower())


def model(name: str) -> Row | None:
    """The row of a model by hub id, in any case; None when unknown."""
    return _table("models").get(name.lower())


def model_names() -> tuple[str, ...]:
    """Hub ids of the shipped table, in its order."""
    return tuple(dict.fromkeys(row["name"] for row in _table("models").values()))


def accelerator_names() -> tuple[str, ...]:
    """Names of the shipped table, in its order, as drivers report them."""
    return tuple(dict.fromkeys(row["name"] for row in _table("accelerators").values()))


def number(row: Row, column: str) -> float | None:
    """A numeric cell; blank and text are unknown."""
    try:
        return float(row[column])
    except (KeyError, ValueError):
        return None


def rates(row: Row) -> dict[str, float]:
    """Fields of a Device that the table tells: the rates no driver does."""
    columns = ("memory_bandwidth_gbs", "bf16_tflops")
    return {name: found for name in columns if (found := number(row, name)) is not None}
