"""Finding: one thing that is wrong with a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What is wrong, how that is known, and why it may be."""

    kind: str
    """One word for programs: `straggler`, `hang`, `near_oom`."""
    severity: Literal["error", "warning", "info"]
    what: str
    evidence: str
    """The numbers it rests on."""
    cause: str = ""
    """The likely cause, from what else differs; empty when nothing points to one."""
    fix: str = ""
    ranks: tuple[int, ...] = ()


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks in words: `rank 3`, `ranks 0-6, 9`."""
    numbers = sorted(ranks)
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    parts = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    kept = parts[:6] + (["..."] if len(parts) > 6 else [])
    return ("rank " if len(numbers) == 1 else "ranks ") + ", ".join(kept)
