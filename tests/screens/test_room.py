"""What is shown where there is little room: whole words, whole numbers, whole keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wizard.widgets.keyline import ALWAYS, GAP, Key, fitting
from wizard.widgets.table import Column, lines

COLUMNS = (
    Column(title="fit"),
    Column(title="name", flexible=True, keep_end=True),
    Column(title="params", right=True),
    Column(title="licence", flexible=True, optional=True),
    Column(title="here", optional=True),
)
ROW = ("tight", "meta-llama/Llama-3.1-8B-Instruct", "494.0 M", "apache-2.0", "yes")


@given(width=st.integers(30, 80))
def test_a_narrow_table_leaves_out_columns_and_cuts_no_number(width: int) -> None:
    head, row = lines(COLUMNS, [ROW], width)
    assert len(row) <= width
    assert "494.0 M" in row
    assert ("licence" in head) == ("apache-2.0" in row) == (width >= 60)
    assert ("here" in head) == (width >= 66)


@given(
    widths=st.lists(st.integers(1, 15), max_size=12),
    kept=st.sets(st.integers(0, 11)),
    width=st.integers(40, 120),
)
def test_the_line_of_keys_holds_whole_keys_and_always_those_that_lead_out(
    widths: list[int], kept: set[int], width: int
) -> None:
    ids = sorted(ALWAYS)
    keys = [
        Key(ids[i] if i in kept and i < len(ids) else f"x.{i}", "a", "a", "d" * size, "", True)
        for i, size in enumerate(widths)
    ]
    shown_keys = fitting(keys, width)
    taken = sum(key.width + GAP for key in shown_keys) - GAP
    given_up = [key for key in keys if key not in shown_keys]
    assert not any(key.id in ALWAYS for key in given_up)
    assert taken <= width or all(key.id in ALWAYS for key in shown_keys)
    assert [key for key in keys if key in shown_keys] == shown_keys
