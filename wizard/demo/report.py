"""The demo's report: answers before and after, loss, time and memory, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from wizard import wording
from wizard.language import foreign, said

CHART_WIDTH = 56
CHART_HEIGHT = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What the demo found out."""

    before: Mapping[str, str]
    """Question → answer of the untrained model."""
    after: Mapping[str, str]
    losses: Sequence[tuple[int, float]]
    """(step, loss)."""
    seconds: Mapping[str, float]
    """Stage → seconds, in the order they ran."""
    result: Mapping[str, Any]
    """result.json of the run."""


def lines(outcome: Outcome) -> Iterator[str]:
    """The whole report."""
    yield from ("", "Before and after")
    for question, before in outcome.before.items():
        yield f"  {foreign(question)}"
        yield f"    before  {_quoted(before)}"
        yield f"    after   {_quoted(outcome.after.get(question, ''))}"
    yield from ("", said("Loss"))
    yield from loss_chart(outcome.losses)
    yield from ("", said("Time"))
    for stage, seconds in outcome.seconds.items():
        yield f"  {wording.padded(said(stage), 18)} {wording.duration(seconds):>7}"
    together = wording.duration(sum(outcome.seconds.values()))
    yield f"  {wording.padded(said('together'), 18)} {together:>7}"
    yield ""
    yield memory_line(outcome.result)


def loss_chart(losses: Sequence[tuple[int, float]]) -> Iterator[str]:
    """Loss over steps, drawn with characters; one sentence when there is nothing to draw."""
    if not losses:
        yield "  no loss was recorded"
        return
    columns = _columns([loss for _, loss in losses])
    low, high = min(columns), max(columns)
    span = high - low or 1.0
    rows = [round((loss - low) / span * (CHART_HEIGHT - 1)) for loss in columns]
    for level in reversed(range(CHART_HEIGHT)):
        label = f"{low + span * level / (CHART_HEIGHT - 1):8.3f}"
        yield f"  {label} |" + "".join("*" if row == level else " " for row in rows).rstrip()
    first, last = losses[0][0], losses[-1][0]
    yield " " * 11 + "+" + "-" * len(columns)
    yield " " * 12 + f"step {first} to {last}"


def _columns(values: Sequence[float]) -> list[float]:
    """At most CHART_WIDTH means of neighbouring values."""
    width = min(CHART_WIDTH, len(values))
    edges = [index * len(values) // width for index in range(width + 1)]
    parts = [values[begin:end] for begin, end in pairwise(edges)]
    return [sum(part) / len(part) for part in parts]


def memory_line(result: Mapping[str, Any]) -> str:
    """Predicted beside measured peak memory of the busiest rank."""
    measured = result.get("measured") or {}
    predicted = (result.get("predicted") or {}).get("device_bytes")
    peaks, kind = _known(measured.get("memory_peak_bytes")), "device memory"
    if not peaks:
        peaks, kind = _known(measured.get("process_memory_peak_bytes")), "process memory"
    peak = max(peaks, default=None)
    return (
        f"Peak {kind} of a rank: predicted {wording.gib(predicted)}, measured {wording.gib(peak)}"
    )


def _known(values: object) -> list[float]:
    return [v for v in values if isinstance(v, int | float)] if isinstance(values, list) else []


def _quoted(answer: str) -> str:
    return foreign(wording.one_line(answer)) if answer else "(nothing)"
