"""Every malformed data file gives line and reason, or is read rightly; none is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.data.files import Case, by_kind
from wizard.facts import Dataset
from wizard.probe.dataset import read_dataset
from wizard.problem import ProblemError

KINDS = by_kind()


def test_there_are_hundreds_of_them() -> None:
    assert sum(map(len, KINDS.values())) >= 200


@pytest.mark.parametrize("kind", KINDS)
def test_malformed_files_are_read_or_refused_as_they_should(kind: str, tmp_path: Path) -> None:
    for case in KINDS[kind]:
        path = tmp_path / f"data{case.suffix}"
        path.write_bytes(case.content)
        check(case, path)


def told(path: Path) -> Dataset | ProblemError:
    try:
        return read_dataset(str(path))
    except ProblemError as error:
        return error


def check(case: Case, path: Path) -> None:
    found = told(path)
    if isinstance(found, ProblemError):
        assert case.kept is None, (case.name, str(found))
        assert case.refused in str(found), case.name
        assert found.problem.exit_code == 4, case.name
        assert found.problem.fix, case.name
        return
    assert (found.rows, found.dropped_rows) == (case.kept, len(case.dropped)), case.name
    reasons = {problem.where: problem.what for problem in found.problems}
    for line, reason in case.dropped.items():
        assert reason in reasons[f"line {line}"], case.name
        assert "\n" not in reasons[f"line {line}"], case.name
