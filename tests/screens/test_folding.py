"""Text of wide characters in lines of a box."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from textual.content import Content

from wizard import wording
from wizard.widgets.folding import folded


@given(st.text(alphabet="ab ,。（中文字）\n", max_size=120), st.integers(12, 40))
@settings(max_examples=100, deadline=None)
def test_folded_text_keeps_to_its_width_and_loses_nothing(text: str, width: int) -> None:
    lines = folded(Content(text), width).plain.split("\n")
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)
    if wording.cells(text) > len(text):  # else the toolkit ends its lines
        too_long = [line for line in lines if wording.cells(line) > width]
        assert all(len(wording.PIECES.findall(line)) == 1 for line in too_long)


def test_folded_text_fills_its_lines_and_keeps_its_styles() -> None:
    text = Content.assemble(
        "每个可由 rank ", ("使用的加速卡占一行", "bold"), "；地方不够时合为一行。"
    )
    told = folded(text, 20)
    assert told.plain == "每个可由 rank 使用的\n加速卡占一行；地方不\n够时合为一行。"
    assert sum(span.end - span.start for span in told.spans if span.style == "bold") >= 9
    english = Content("words that end at blanks, as the toolkit ends them")
    assert folded(english, 20) is english
