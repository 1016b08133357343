"""Numbers and foreign text in words."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from wizard import wording


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "unknown"),
        (float("nan"), "unknown"),
        (0.42, "0.42 s"),
        (4.24, "4.2 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (725, "12 min"),
        (3599, "1h00"),
        (7500, "2h05"),
        (100 * 3600, "100h00"),
    ],
)
def test_time_is_worded_as_people_say_it(seconds: float | None, text: str) -> None:
    assert wording.duration(seconds) == text


@pytest.mark.parametrize(
    ("memory_bytes", "text"),
    [
        (None, "unknown"),
        (24 * 1024**3, "24.0 GiB"),
        (5 * 1024**2, "5.0 MiB"),
        (2048, "2.0 KiB"),
        (0, "0.0 MiB"),
    ],
)
def test_memory_is_in_gib(memory_bytes: float | None, text: str) -> None:
    assert wording.gib(memory_bytes) == text


def test_what_is_unknown_is_blank_in_a_table_and_never_zero() -> None:
    assert wording.cell(None) == ""
    assert wording.cell(float("nan")) == ""
    assert wording.cell(0) == "0"


@pytest.mark.parametrize(
    ("used", "whole", "drawn"),
    [(0, 10, "[........]"), (5, 10, "[####....]"), (10, 10, "[########]"), (11, 10, "[########>")],
)
def test_a_bar_shows_the_share_and_what_is_over(used: int, whole: int, drawn: str) -> None:
    assert wording.bar(used, whole, 10) == drawn


def test_a_bar_of_an_unknown_budget_is_not_drawn() -> None:
    assert wording.bar(5, None, 10) == ""
    assert wording.bar(None, 5, 10) == ""


@given(st.text())
def test_foreign_text_stays_on_one_line_and_moves_no_cursor(text: str) -> None:
    shown = wording.one_line(text)

    assert shown.isprintable()
    assert len(shown) == len(text)


@given(st.text(), st.integers(min_value=3, max_value=40))
@example("000\u0300", 3)
@example("数据集", 3)
def test_shortened_text_keeps_within_its_width(text: str, width: int) -> None:
    assert wording.cells(wording.shorten(text, width)) <= width
    assert wording.cells(wording.cut(text, width)) <= width


def test_control_characters_become_symbols() -> None:
    assert wording.one_line("a\x1b[31m\n\x7f\u202e\u00a0b") == "a␛[31m␊␡� b"


def test_a_row_keeps_its_line_breaks() -> None:
    assert wording.many_lines("one\r\n\ttwo\x07") == "one\n    two␇"


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-4, "0.0001"), (3.0, "3"), (None, "none"), (True, "true"), (("a", "b"), "a,b")],
)
def test_a_setting_is_shown_as_it_is_typed(value: object, text: str) -> None:
    assert wording.setting(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "unknown"), (840, "840"), (2_600_000, "2.6 M"), (8_190_735_360, "8.19 B")],
)
def test_a_model_is_as_large_as_its_parameters(number: int | None, text: str) -> None:
    assert wording.parameters(number) == text


def test_prose_is_cut_after_a_word_and_names_without_spaces_anywhere() -> None:
    assert wording.cut("AMD EPYC 7763 64-Core Processor", 27) == "AMD EPYC 7763 64-Core …"
    assert wording.shorten("Full bf16, ZeRO-3 on 2 devices", 22) == "Full bf16, … 2 devices"
    assert wording.cut("Qwen/Qwen3-8B", 8) == "Qwen/Qw…"


def test_prediction_error_is_measured_relative_to_predicted() -> None:
    assert wording.off(129.0, 100.0) == "+29 %"
    assert wording.off(78.0, 100.0) == "-22 %"
    assert wording.off(None, 100.0) == wording.off(1.0, 0) == wording.off(1.0, None) == ""


def test_a_setting_with_line_breaks_is_one_readable_line() -> None:
    assert wording.setting("be kind\n\tand short") == "be kind\\n\\tand short"
