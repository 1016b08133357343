"""Numbers and lists of the kernel, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from wizard.probe import reading


@pytest.mark.parametrize(
    ("text", "number"),
    [("12\n", 12), (" 0 ", 0), ("-1", None), ("max", None), ("", None), ("²", None), ("٣", None)],
)
def test_only_a_plain_number_is_one(text: str, number: int | None) -> None:
    assert reading.whole(text) == number


def test_a_number_of_thousands_of_digits_is_none() -> None:
    assert reading.whole("9" * 5000) is None
    assert reading.kibibytes("9" * 5000 + " kB") is None


@pytest.mark.parametrize(
    ("text", "processors"),
    [
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("6,14,22", [6, 14, 22]),
        ("\n", []),
        ("3-1", []),
        ("0-", [0]),
        ("x,2", [2]),
        ("0-99999999999999", []),
    ],
)
def test_a_list_of_processors_has_ranges_and_single_ones(text: str, processors: list[int]) -> None:
    assert list(reading.cpu_list(text)) == processors


def test_a_file_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert reading.text(tmp_path / "no") == ""
    assert reading.integer(tmp_path) is None
    assert reading.entries(tmp_path / "no") == []


def test_a_file_that_never_ends_is_cut() -> None:
    assert len(reading.text(Path("/dev/zero"))) == reading.LIMIT_BYTES
