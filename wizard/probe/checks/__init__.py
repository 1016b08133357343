"""Facts → what is wrong with this machine: one small rule each, none of which asks anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from wizard.facts import Facts
from wizard.probe.checks import devices, host, links, settings, software, storage
from wizard.probe.checks.rule import Check
from wizard.problem import Problem

CHECKS: tuple[Check, ...] = (
    *devices.CHECKS,
    *links.CHECKS,
    *software.CHECKS,
    *host.CHECKS,
    *storage.CHECKS,
    *settings.CHECKS,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """What one check found."""

    check: Check
    problems: tuple[Problem, ...] = ()
    applies: bool = True
    """False when there is nothing to look at here, or it could not be read."""

    @property
    def state(self) -> Literal["ok", "note", "warn", "FAIL", "none"]:
        """The worst of its problems in a word; `none` when it does not apply."""
        if not self.applies:
            return "none"
        severities = {problem.severity for problem in self.problems}
        if "error" in severities:
            return "FAIL"
        if "warning" in severities:
            return "warn"
        return "note" if severities else "ok"


def results(facts: Facts) -> tuple[Result, ...]:
    """Every check, in the order of the list."""
    return tuple(_result(check, facts) for check in CHECKS)


def check(facts: Facts) -> tuple[Problem, ...]:
    """What all checks found."""
    return tuple(problem for result in results(facts) for problem in result.problems)


def _result(check: Check, facts: Facts) -> Result:
    found = check.find(facts)
    if found is None:
        return Result(check=check, applies=False)
    return Result(check=check, problems=tuple(found))
