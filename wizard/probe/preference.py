"""Rows that say which answer is better, or whether one is good, and rows of plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from wizard.probe.rows import RowError, encodable

Shape = Literal["text", "preference", "kto"]
SHAPES: tuple[str, ...] = get_args(Shape)
ASKED = ("prompt", "instruction", "input", "system")
TURNS = ("messages", "conversations")


def shape_of(row: object) -> Shape | None:
    """The shape of a row by its keys; None when it is a conversation, or unknown."""
    if not isinstance(row, Mapping):
        return None
    if ("chosen" in row and "rejected" in row) or "rejected_response" in row:
        return "preference"
    judged = "completion" in row or "output" in row or any(name in row for name in TURNS)
    if judged and ("kto_tag" in row or isinstance(row.get("label"), bool)):
        return "kto"
    if "text" in row and not any(name in row for name in (*TURNS, "instruction", "prompt")):
        return "text"
    return None


def texts(row: object, shape: str) -> Sequence[str]:
    """The texts of the longest sequence that a usable row makes.

    Raises RowError saying what is wrong with it.
    """
    if not isinstance(row, Mapping):
        raise RowError("not a JSON object")
    if shape_of(row) != shape:
        keys = ", ".join(map(str, list(row)[:5])) or "none"
        raise RowError(f"not in the format `{shape}` of the first row: its keys are {keys}")
    found = _texts(row, shape)
    for text in found:
        encodable(text)
    return found


def _texts(row: Mapping[str, Any], shape: str) -> Sequence[str]:
    if shape == "text":
        return [_filled(row, "text")]
    asked = [text for name in ASKED if row.get(name) for text in _said(row[name], name)]
    if shape == "kto":
        name = next((n for n in ("completion", "output") if n in row), None)
        if name is not None:
            return [*asked, *_answered(row, name)]
        return _conversation(row)
    if "rejected_response" in row:
        turns = _conversation(row)
        return _longer(turns, [*turns[:-1], *_answered(row, "rejected_response")])
    before = [*asked, *(_conversation(row) if any(row.get(name) for name in TURNS) else [])]
    return [*before, *_longer(_answered(row, "chosen"), _answered(row, "rejected"))]


def _conversation(row: Mapping[str, Any]) -> list[str]:
    turns = next((row[name] for name in TURNS if row.get(name)), None)
    if not isinstance(turns, list):
        raise RowError("`messages` is not a list with turns")
    return _said(turns, "messages")


def _longer(one: Sequence[str], other: Sequence[str]) -> Sequence[str]:
    return max(one, other, key=lambda side: sum(map(len, side)))


def _answered(row: Mapping[str, Any], name: str) -> list[str]:
    if not row.get(name):
        raise RowError(f"`{name}` is missing or empty")
    return _said(row[name], name)


def _filled(row: Mapping[str, Any], name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str):
        raise RowError(f"`{name}` is not text")
    if not text.strip():
        raise RowError(f"`{name}` is empty")
    return text


def _said(value: Any, name: str) -> list[str]:
    """The texts of text, of a turn, or of a list of turns."""
    if isinstance(value, str):
        return [value]
    turns = value if isinstance(value, list) else [value]
    said = []
    for turn in turns:
        content = turn.get("content", turn.get("value")) if isinstance(turn, Mapping) else None
        if not isinstance(content, str):
            raise RowError(f"`{name}` is neither text nor turns with role and content")
        said.append(content)
    return said
