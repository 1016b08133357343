"""What a machine's checks came to, as lines and as plain values."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from wizard.facts import Facts
from wizard.language import said_place
from wizard.probe.checks import Result, results
from wizard.problem import Problem

STATES = {"error": "FAIL", "warning": "warn", "info": "note"}


def examine(facts: Facts) -> tuple[tuple[Result, ...], tuple[Problem, ...]]:
    """(every check, problems that the probe itself met and no check repeats)."""
    found = results(facts)
    repeated = {problem for result in found for problem in result.problems}
    met = dict.fromkeys(problem for problem in facts.problems if problem not in repeated)
    return found, tuple(met)


def passes(facts: Facts) -> bool:
    """Whether nothing found is an error."""
    found, met = examine(facts)
    problems = [*met, *(problem for result in found for problem in result.problems)]
    return all(problem.severity != "error" for problem in problems)


def lines(facts: Facts) -> list[str]:
    """A line for each check that applies, or its problems, each with the remedy below it."""
    found, met = examine(facts)
    shown = [result for result in found if result.applies]
    text = [line for problem in met for line in _problem_lines(problem)]
    text += [line for result in shown for line in _check_lines(result)]
    return [*text, "", _summary(shown, met, skipped=len(found) - len(shown))]


def as_json(facts: Facts) -> dict[str, Any]:
    """The same as plain values; a check that does not apply has the state `none`."""
    found, met = examine(facts)
    checks = [
        {
            "id": result.check.id,
            "title": result.check.title,
            "state": result.state,
            "problems": [dataclasses.asdict(problem) for problem in result.problems],
        }
        for result in found
    ]
    return {
        "schema": 1,
        "ok": passes(facts),
        "checks": checks,
        "probe": [dataclasses.asdict(problem) for problem in met],
    }


def _check_lines(result: Result) -> Iterator[str]:
    if not result.problems:
        yield f"ok    {result.check.title}"
    for problem in result.problems:
        yield from _problem_lines(problem)


def _problem_lines(problem: Problem) -> Iterator[str]:
    where = f"{said_place(problem.where)}: " if problem.where else ""
    yield f"{STATES[problem.severity]:<4}  {where}{problem.what}"
    if problem.fix:
        yield f"      fix: {problem.fix}"


def _summary(shown: Sequence[Result], met: Sequence[Problem], skipped: int) -> str:
    states = Counter([result.state for result in shown] + [STATES[one.severity] for one in met])
    parts = [
        f"{states['ok']} ok",
        f"{states['note']} to note",
        f"{states['warn']} {'warning' if states['warn'] == 1 else 'warnings'}",
        f"{states['FAIL']} failed",
    ]
    return ", ".join(parts) + (f"; {skipped} do not apply here" if skipped else "")
