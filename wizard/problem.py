"""Problem: what is wrong, where, how to fix it, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing that is wrong, in words a user can act on."""

    what: str
    where: str = ""
    """File, line, setting or device; empty when `what` says it."""
    fix: str = ""
    severity: Literal["error", "warning", "info"] = "error"
    exit_code: int = 1
    """What the command ends with when this stops it: 2 usage, 4 data, 5 nothing fits, 6 devices."""

    def __str__(self) -> str:
        """The problem as one line."""
        where = f"{self.where}: " if self.where else ""
        fix = f" ({self.fix})" if self.fix else ""
        return f"{where}{self.what}{fix}"


class ProblemError(Exception):
    """Carries a Problem that stops a command up to where it is shown."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem
