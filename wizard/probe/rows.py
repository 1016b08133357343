"""What a training row looks like: its format, its text, what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

Format = Literal["messages", "alpaca"]

ANSWERING = frozenset({"assistant", "gpt"})
ASKING = frozenset({"system", "user", "human", "tool"})


class RowError(ValueError):
    """Why a row cannot be used."""


def format_of(row: object) -> Format | None:
    """The format of a row by its keys; None when it is none of those known."""
    if not isinstance(row, Mapping):
        return None
    if "messages" in row or "conversations" in row:
        return "messages"
    if "instruction" in row and "output" in row:
        return "alpaca"
    return None


def texts(row: object, expected: Format) -> Sequence[str]:
    """The texts of a usable row.

    Raises RowError saying what is wrong with it.
    """
    if not isinstance(row, Mapping):
        raise RowError("not a JSON object")
    if format_of(row) != expected:
        keys = ", ".join(map(str, list(row)[:5])) or "none"
        raise RowError(f"not in the format `{expected}` of the first row: its keys are {keys}")
    found = list(_turns(row) if expected == "messages" else _alpaca(row))
    for text in found:
        encodable(text)
    return found


def _alpaca(row: Mapping[str, Any]) -> Iterator[str]:
    for key in ("system", "instruction", "input", "output"):
        optional = key in ("system", "input") and not row.get(key)
        if not optional:
            yield _text(row[key], f"`{key}`")
    history = row.get("history") or []
    if not isinstance(history, list):
        raise RowError("`history` is not a list of questions and answers")
    for pair in history:
        if not isinstance(pair, list) or len(pair) != 2:
            raise RowError("`history` is not a list of question and answer")
        yield from (_text(text, "`history`") for text in pair)
    if not row["output"]:
        raise RowError("no assistant turn: `output` is empty")


def _turns(row: Mapping[str, Any]) -> Iterator[str]:
    turns = row.get("messages", row.get("conversations"))
    if not isinstance(turns, list) or not turns:
        raise RowError("`messages` is not a list with turns")
    answered = False
    for number, turn in enumerate(turns, 1):
        role, text = _turn(turn, f"turn {number}")
        answered = answered or (role in ANSWERING and turn.get("weight", 1) != 0)
        yield text
    if not answered:
        raise RowError("no assistant turn: there is nothing to learn")


def _turn(turn: object, name: str) -> tuple[str, str]:
    if not isinstance(turn, Mapping):
        raise RowError(f"{name} is not an object with role and content")
    role = turn.get("role", turn.get("from"))
    if not isinstance(role, str) or role not in ANSWERING | ASKING:
        raise RowError(f"{name} has the unknown role {role!r}")
    content = turn.get("content", turn.get("value"))
    if isinstance(content, list):
        content = "".join(_text_part(part, name) for part in content)
    return role, _text(content, f"the content of {name}")


def _text_part(part: object, name: str) -> str:
    if isinstance(part, Mapping) and part.get("type") == "text":
        return _text(part.get("text"), f"the content of {name}")
    raise RowError(f"{name} has content that is not text")


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise RowError(f"{name} is not text")
    return value


def encodable(text: str) -> None:
    """Raises RowError for text that cannot be written as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError("half a character: it cannot be written as Unicode text") from None
