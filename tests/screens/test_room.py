"""What is shown where there is little room: whole words, whole numbers, whole keys."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.screens.pages import PAGES
from tests.screens.stage import OnePage, rest, shown
from wizard.widgets.keyline import ALWAYS, GAP, Key, fitting
from wizard.widgets.page import Page
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


@pytest.mark.parametrize("page", [name for name in PAGES if name != "run"])
async def test_at_every_size_nothing_runs_into_the_edge(page: str) -> None:
    """Questions and keys are whole; what is cut in a line ends with a mark after a word."""
    app = OnePage(PAGES[page])
    async with app.run_test(size=(60, 16)) as pilot:
        await rest(pilot)
        for size in ((60, 16), (80, 24), (100, 30)):
            await pilot.resize_terminal(*size)
            await rest(pilot)
            screen = app.screen
            assert isinstance(screen, Page)
            text = shown(app).split("\n")
            assert screen.QUESTION in text[1], (page, size)
            assert re.search(r"\^q Quit *$", text[-1]), (page, size)
            cut_numbers = [line for line in text if re.search(r"\d…", line) and "M…" not in line]
            assert not [line for line in cut_numbers if "│" in line and " │" in line[-3:]], text
