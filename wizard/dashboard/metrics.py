"""The events of a run as the rows of one table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from wizard.dashboard.fields import number, text

KINDS = ("step", "train", "eval", "pulse")
WHERE = ("t", "kind", "rank", "attempt", "rung", "step")
MEASURED = (
    "steps",
    "seconds",
    "sampled_steps",
    "own_seconds",
    "wait_seconds",
    "data_seconds",
    "tokens",
    "padded_tokens",
    "loss",
    "learning_rate",
    "grad_norm",
    "tokens_seen",
    "epoch",
    "memory_allocated_bytes",
    "memory_reserved_bytes",
    "memory_peak_bytes",
    "memory_used_bytes",
    "process_memory_bytes",
    "process_memory_peak_bytes",
    "utilization_percent",
    "sm_clock_mhz",
    "temperature_c",
    "power_w",
    "power_cap_w",
    "pcie_link_width",
    "xid",
)

Event = Mapping[str, Any]
Cell = float | str | None


def columns(evals: Iterable[Event]) -> tuple[str, ...]:
    """The table's columns: the fixed ones, and the metrics of these evaluations by their names."""
    names: dict[str, None] = {}
    for event in evals:
        metrics = event.get("metrics")
        names |= dict.fromkeys(map(str, metrics if isinstance(metrics, Mapping) else ()))
    return (*WHERE, *MEASURED, *sorted(name for name in names if name not in (*WHERE, *MEASURED)))


def rows(events: Iterable[Event], wanted: tuple[str, ...]) -> Iterator[dict[str, Cell]]:
    """A row for each event that measured something; what is not known is None, never 0.

    A number that is not finite is what JSON called it: `nan`, `inf`, `-inf`.
    """
    for event in events:
        kind = text(event, "kind")
        if kind not in KINDS:
            continue
        metrics = event.get("metrics") if kind == "eval" else None
        found = {**event, **(metrics if isinstance(metrics, Mapping) else {})}
        yield {name: kind if name == "kind" else _cell(found, name) for name in wanted}


def _cell(event: Event, name: str) -> Cell:
    value = event.get(name)
    return value if value in ("nan", "inf", "-inf") else number(event, name)
