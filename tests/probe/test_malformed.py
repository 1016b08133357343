"""Every malformed data file gives line and reason, or is read rightly; none is passed over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.data.files import Case, cases
from wizard.probe.dataset import read_dataset
from wizard.problem import ProblemError

CASES = cases()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all cases: a folder for each would take longer than the reading."""
    return tmp_path_factory.mktemp("malformed")


def test_there_are_hundreds_of_them() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_malformed_file_is_read_or_refused_as_it_should(case: Case, folder: Path) -> None:
    path = folder / f"data{case.suffix}"
    path.write_bytes(case.content)
    if case.kept is None:
        with pytest.raises(ProblemError) as caught:
            read_dataset(str(path))
        assert caught.value.problem.exit_code == 4
        assert case.refused in str(caught.value)
        assert caught.value.problem.fix
        return
    found = read_dataset(str(path))
    assert found.rows == case.kept
    assert found.dropped_rows == len(case.dropped)
    said = {problem.where: problem.what for problem in found.problems}
    for line, reason in case.dropped.items():
        assert reason in said[f"line {line}"]
        assert "\n" not in said[f"line {line}"]
