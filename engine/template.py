"""A chat template: what it takes, what it makes of a conversation, and what it leaves out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from engine.rows.values import Conversation, Message, RowError
from engine.theirs import why

THOUGHT = re.compile(r"\s*<think>(?P<reasoning>.*?)</think>(?P<answer>.*)", re.DOTALL)
FIELDS: Mapping[str, str] = {
    "tools": "tools",
    "tool_calls": "tool calls",
    "reasoning_content": "reasoning_content",
}
"""What a row may have beside contents, and only templates that name it render → in words."""
NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Code points free for internal use; one that a row lacks can mark places in it."""


class Tokenizer(Protocol):
    """What is needed of a fast tokenizer of transformers."""

    eos_token: str | None
    eos_token_id: int | None
    chat_template: Any
    added_tokens_decoder: Mapping[int, Any]
    backend_tokenizer: Any

    def decode(self, token_ids: Any, **settings: Any) -> Any:
        """Tokens as text."""
        ...

    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any:
        """Messages as text."""
        ...


class Template:
    """Renders conversations with one tokenizer's names of special tokens."""

    def __init__(self, tokenizer: Tokenizer, text: str) -> None:
        self._tokenizer = tokenizer
        self.text = text
        self._wants_parts = False
        self._wants_parts = not self._shows_text()

    def _shows_text(self) -> bool:
        """Whether contents may be texts; templates of vision models want them in parts."""
        mark = NONCHARACTERS[0]
        try:
            return mark in self.render([{"role": "user", "content": mark}], ())
        except RowError:
            return "content['type']" not in self.text and "content.text" not in self.text

    def fitted(self, row: Conversation) -> Conversation:
        """A row with its reasoning apart from the answers, where the template takes it so.

        Raises RowError for what the template would leave out without a word.
        """
        for field, name in FIELDS.items():
            there = row.tools if field == "tools" else any(m.get(field) for m in row.messages)
            if there and field not in self.text:
                raise RowError(f"has {name}, which the chat template does not render")
        if "reasoning_content" not in self.text:
            return row
        return replace(row, messages=tuple(map(_reasoning_apart, row.messages)))

    def taken(self, messages: Sequence[Message]) -> list[Message]:
        """Messages with their contents as the template takes them: texts, or lists of parts."""
        return [_in_parts(message) for message in messages] if self._wants_parts else [*messages]

    def render(
        self, messages: Sequence[Message], tools: Sequence[Any], *, prompt: bool = False
    ) -> str:
        """Messages as text, with the head of the next answer behind it for a prompt.

        Raises RowError with the reason when the template refuses them.
        """
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    self.taken(messages),
                    tools=list(tools) or None,
                    chat_template=self.text,
                    tokenize=False,
                    add_generation_prompt=prompt,
                )
            )
        except Exception as error:
            raise RowError(f"the chat template refuses it: {why(error)}") from None

    def begins(self, text: str, row: Conversation, turns: int, *, prompt: bool) -> int | None:
        """Characters of `text` that a row's first turns take.

        None when they read otherwise alone than at the beginning of that text.
        """
        if turns == 0:
            return None
        try:
            alone = self.render(row.messages[:turns], row.tools, prompt=prompt)
        except RowError:
            return None
        if not text.startswith(alone):
            return None
        return len(alone) if prompt else len(alone.rstrip())

    def around(self, row: Conversation, index: int, text: str) -> tuple[str, str, str]:
        """What it puts before one message's content, a mark for that, and what after it."""
        mark = unused(text)
        plain = {k: v for k, v in row.messages[index].items() if k != "reasoning_content"}
        messages = list(row.messages)
        messages[index] = {**plain, "content": mark}
        return self.render(messages, row.tools).partition(mark)


def unused(text: str) -> str:
    """A character that a text lacks.

    Raises RowError for a text that has every one of them.
    """
    for mark in NONCHARACTERS:
        if mark not in text:
            return mark
    raise RowError("uses every noncharacter of Unicode")


def _reasoning_apart(message: Message) -> Message:
    """A message whose `<think>` block is its `reasoning_content`."""
    content = message["content"]
    found = THOUGHT.fullmatch(content) if message["role"] == "assistant" else None
    if found is None or message.get("reasoning_content"):
        return message
    return {**message, "reasoning_content": found["reasoning"], "content": found["answer"].lstrip()}


def _in_parts(message: Message) -> Message:
    return {**message, "content": [{"type": "text", "text": message["content"]}]}
