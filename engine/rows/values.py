"""What reading data gives: rows with their line, conversations, and why something is unusable."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Message = Mapping[str, Any]
"""A turn as chat templates take it: role, content, and what a tool call adds."""
Numbered = tuple[int, Any]
"""A line of a file, counted from 1, and the row that begins there or the RowError it is."""


class RowError(ValueError):
    """Why one row cannot be used."""


class DataError(ValueError):
    """Why a whole file cannot be used."""

    def __init__(self, what: str, fix: str, *, line: int | None = None) -> None:
        super().__init__(what)
        self.what, self.fix, self.line = what, fix, line


class Chunk(Protocol):
    """Some rows of a file that one process reads; it can be sent to another."""

    def rows(self) -> Iterator[Numbered]:
        """The rows, each with its line."""
        ...


@dataclass(frozen=True, slots=True)
class Parsed:
    """Rows that had to be read in one go."""

    content: list[Numbered]

    def rows(self) -> Iterator[Numbered]:
        """The rows, each with its line."""
        yield from self.content


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """The messages of one row."""

    messages: tuple[Message, ...]
    learnt: frozenset[int]
    """Indices of the assistant turns that carry a loss."""
    tools: tuple[Any, ...] = ()
    """What the assistant may call, as JSON schemas."""

    def texts(self) -> list[str]:
        """What becomes tokens, a text for each turn."""
        said = [_said(message) for message in self.messages]
        return [json.dumps(self.tools, ensure_ascii=False), *said] if self.tools else said


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two answers to one prompt: conversations that differ in their last turn, which is learnt."""

    chosen: Conversation
    rejected: Conversation

    def texts(self) -> list[str]:
        """Those of the longer conversation."""
        return max(self.chosen.texts(), self.rejected.texts(), key=lambda said: sum(map(len, said)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A conversation whose last turn is learnt, and whether that answer is good."""

    answered: Conversation
    label: bool

    def texts(self) -> list[str]:
        """Those of the conversation."""
        return self.answered.texts()


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Plain text."""

    text: str

    def texts(self) -> list[str]:
        """The text."""
        return [self.text]


def _said(message: Message) -> str:
    calls = message.get("tool_calls")
    parts = [message.get("reasoning_content"), message["content"]]
    if calls:
        parts.append(json.dumps(calls, ensure_ascii=False))
    return "\n".join(part for part in parts if part)
