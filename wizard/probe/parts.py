"""Parts of the probe, read at once: each in its own thread, with its own time limit."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from engine.theirs import with_class
from wizard.problem import Problem


@dataclass(frozen=True, slots=True)
class Part:
    """One thing to read."""

    name: str
    read: Callable[..., Any]
    """Called with nothing; with a function to tell of early values where `tells` is true."""
    limit_seconds: float
    tells: bool = False


Answer: TypeAlias = tuple[str, Any, Problem | None]
"""(name of the part, what was read, what went wrong)."""


def together(parts: Sequence[Part]) -> Iterator[Answer]:
    """Answers in the order in which they come in; a part that tells may have several.

    A part that raises or does not return in time is a problem, and takes nothing with it.
    """
    answers: queue.Queue[tuple[Part, Answer, bool]] = queue.Queue()
    begun = time.monotonic()
    for part in parts:
        # A daemon: a part stuck in a driver must not keep the program from ending.
        threading.Thread(
            target=_read, args=(part, answers), name=f"probe {part.name}", daemon=True
        ).start()
    waiting = list(parts)
    while waiting:
        first = min(waiting, key=lambda part: part.limit_seconds)
        left_seconds = begun + first.limit_seconds - time.monotonic()
        try:
            part, answer, last = answers.get(timeout=max(0.0, left_seconds))
        except queue.Empty:
            part, answer, last = first, (first.name, None, _late(first)), True
        if part in waiting:
            if last:
                waiting.remove(part)
            yield answer


def _read(part: Part, answers: queue.Queue[tuple[Part, Answer, bool]]) -> None:
    def tell(early: Any) -> None:
        answers.put((part, (part.name, early, None), False))

    try:
        value = part.read(tell) if part.tells else part.read()
        answers.put((part, (part.name, value, None), True))
    except Exception as error:  # whatever a driver or a file makes of it: said, never raised
        answers.put((part, (part.name, None, failed(part.name, error)), True))


def _late(part: Part) -> Problem:
    return Problem(
        what=f"could not be read within {part.limit_seconds:.0f} seconds",
        where=part.name,
        fix="something it asks hangs; the rest of the machine is known",
        severity="warning",
        exit_code=6,
    )


def failed(name: str, error: Exception) -> Problem:
    """A part that raised, which none should."""
    return Problem(
        what=f"could not be read: {with_class(error)}",
        where=name,
        fix="this is a fault of the probe; the rest of the machine is known",
        severity="warning",
        exit_code=6,
    )
