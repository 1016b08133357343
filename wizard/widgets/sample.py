"""A row as the model sees it: what is learnt is marked, so that it shows without colour."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from textual.content import Content

from wizard import wording
from wizard.language import said

View = Literal["rendered", "raw", "tokens"]
VIEWS: tuple[View, ...] = get_args(View)
MARK = "#"
LEARNT = "$text-success"
LEGEND = f"{MARK} text {MARK} is learnt, the rest is context"
SHORT_LEGEND = f"{MARK} text {MARK} is learnt"
LONGEST_BAR = 20
BESIDE_BAR = 22
"""Cells of a line of the histogram that are not its bar."""
MOST_CHARS = 20_000
"""Of one sample on the screen."""


def shown(sample: Mapping[str, Any], view: View) -> Content:
    """A sample of `engine.preview` in one of the views."""
    if view == "raw":
        return Content(_cut(json.dumps(sample["row"], indent=2, ensure_ascii=False)))
    if view == "tokens":
        return _tokens(sample["ids"])
    return _rendered(sample["pieces"])


def _rendered(pieces: Sequence[Mapping[str, Any]]) -> Content:
    parts: list[Content] = []
    for piece in pieces:
        text = _cut(piece["text"])
        if not piece["learnt"]:
            parts.append(Content(text))
            continue
        lines = [f"{MARK}{line}{MARK}" if line else "" for line in text.split("\n")]
        parts.append(Content("\n").join([Content.styled(line, LEARNT) for line in lines]))
    return Content("").join(parts)


def _tokens(ids: Sequence[Sequence[Any]]) -> Content:
    """One token a line: whether it is learnt, its id, its text."""
    lines = []
    for token, text, learnt in ids:
        line = f"{MARK if learnt else ' '} {token:>8}  {wording.one_line(str(text))}"
        lines.append(Content.styled(line, LEARNT) if learnt else Content(line))
    return Content("\n").join(lines)


def _cut(text: object) -> str:
    shown_text = wording.many_lines(text)
    return shown_text if len(shown_text) <= MOST_CHARS else shown_text[:MOST_CHARS] + "…"


def in_numbers(sample: Mapping[str, Any]) -> str:
    """Where a sample is from, its tokens, and how many of them are learnt."""
    learnt = wording.percent(sample["trained"], sample["tokens"])
    cut = f", cut from {sample['length']:,}" if sample["cut"] else ""
    return said(
        f"{sample['unit']} {sample['line']}: {sample['tokens']:,} tokens{cut}, "
        f"{sample['trained']:,} learnt ({learnt})"
    )


def histogram(bars: Sequence[Mapping[str, Any]], width: int) -> str:
    """Rows by their whole length in tokens, a bar for each range, in lines of `width` cells."""
    room = max(min(LONGEST_BAR, width - BESIDE_BAR), 4)
    rows = sum(bar["rows"] for bar in bars)
    most = max((bar["rows"] for bar in bars), default=0)
    lines = [
        f"{bar['over']:>6,}-{bar['upto']:>7,} {MARK * -(-bar['rows'] * room // most):<{room}} "
        f"{wording.percent(bar['rows'], rows):>5}"
        for bar in bars
        if most
    ]
    return "\n".join(lines)


def spread(report: Mapping[str, Any]) -> str:
    """The usual and the longest rows, and how much is learnt."""
    lengths = report["whole_lengths"]
    if not lengths:
        return ""
    named = "  ".join(f"{name} {lengths[name]:,}" for name in ("p50", "p95", "max"))
    learnt = wording.percent(report["trained_tokens"], report["total_tokens"])
    told = f"learnt {report['trained_tokens']:,} of {report['total_tokens']:,} ({learnt})"
    return f"{named}\n{said(told)}"


def cuts_table(
    cuts: Mapping[int, int], rows: int, memory: Mapping[int, str], chosen: int | None
) -> str:
    """What each max_length would cut, and the memory it takes; the chosen one is marked."""
    width = max((len(f"{length:,}") for length in cuts), default=0)
    lines = []
    for length, cut in sorted(cuts.items()):
        share = f"({wording.percent(cut, rows)})" if cut else ""
        told = wording.padded(said(f"cuts {cut:,} {share}" if cut else "cuts none"), 16)
        mark = " <" if length == chosen else ""
        lines.append(f"{length:>{width},}  {told} {memory.get(length, ''):>9}{mark}".rstrip())
    return "\n".join(lines)
