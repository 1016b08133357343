"""Data: rows become messages, and messages become tokens of which only the answers are learnt."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from engine.failure import RunError

IGNORED = -100
"""Label of a token that carries no loss."""
TEMPLATES = Path(__file__).parent / "templates"
ROLES: Mapping[str, str] = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
}
"""Role in a data file → role in a chat template."""
NONCHARACTERS = [chr(code) for code in range(0xFDD0, 0xFDF0)]
"""Code points free for internal use; one that a row lacks can mark places in it."""

Message = Mapping[str, str]
Format = Literal["messages", "alpaca"]


TOO_DEEP = "broken JSON: nested too deeply"


class RowError(ValueError):
    """Why one row cannot be used."""


class Tokenizer(Protocol):
    """What is needed of a fast tokenizer of transformers."""

    eos_token: str | None
    eos_token_id: int | None
    chat_template: Any
    added_tokens_decoder: Mapping[int, Any]

    def apply_chat_template(self, conversation: Any, **settings: Any) -> Any:
        """Messages as text."""
        ...

    def __call__(self, text: str, **settings: Any) -> Any:
        """Text as tokens."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """The messages of one row."""

    messages: tuple[Message, ...]
    learnt: frozenset[int]
    """Indices of the assistant turns that carry a loss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """One row as the trainer sees it; both lists have the same length."""

    input_ids: list[int]
    labels: list[int]
    cut: bool
    """Whether tokens were cut off at the end."""

    @property
    def length(self) -> int:
        """Tokens."""
        return len(self.input_ids)

    @property
    def total(self) -> int:
        """Tokens that pass through the model."""
        return len(self.input_ids)

    @property
    def trained(self) -> int:
        """Tokens that carry a loss: the first has none before it that could tell it."""
        return sum(label != IGNORED for label in self.labels[1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    """Special tokens that a row's own text spells out."""

    mark: re.Pattern[str]
    """Finds a place one was taken from; its group is the index in `texts`."""
    texts: Sequence[str]


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """(line, row) of a JSON array or JSON Lines file; a broken line's row is a RowError.

    Raises RunError (bad_data) when the file as a whole cannot be read.
    """
    try:
        with path.open("rb") as file:
            start = file.read(4096)
            if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
                raise RunError("bad_data", f"{path}: is UTF-16; save it as UTF-8")
            file.seek(3 if start.startswith(b"\xef\xbb\xbf") else 0)
            if start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
                yield from _array(path, file.read())
            else:
                yield from _lines(file)
    except OSError as error:
        raise RunError("bad_data", f"{path}: {error.strerror or error}") from None


def _lines(lines: Iterator[bytes]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line.decode("utf-8"))
        except UnicodeDecodeError:
            yield number, RowError("not UTF-8")
        except ValueError as error:
            yield number, RowError(f"broken JSON: {error}")
        except RecursionError:
            yield number, RowError(TOO_DEEP)


def _array(path: Path, content: bytes) -> Iterator[tuple[int, Any]]:
    decoder = json.JSONDecoder()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RunError("bad_data", f"{path}: line {line}: not UTF-8") from None
    space = re.compile(r"[ \t\r\n]*")
    place, line, counted = space.match(text, text.index("[") + 1).end(), 1, 0  # type: ignore[union-attr]
    while not text.startswith("]", place):
        line, counted = line + text.count("\n", counted, place), place
        try:
            row, place = decoder.raw_decode(text, place)
            place = space.match(text, place).end()  # type: ignore[union-attr]
            if text.startswith(",", place):
                place = space.match(text, place + 1).end()  # type: ignore[union-attr]
            elif not text.startswith("]", place):
                raise json.JSONDecodeError("expected a comma or the end of the array", text, place)
        except json.JSONDecodeError as error:
            raise RunError(
                "bad_data", f"{path}: line {error.lineno}: broken JSON: {error.msg}"
            ) from None
        except (ValueError, RecursionError) as error:  # a number of thousands of digits
            reason = TOO_DEEP if isinstance(error, RecursionError) else f"broken JSON: {error}"
            raise RunError("bad_data", f"{path}: line {line}: {reason}") from None
        yield line, row


def format_of(row: Any) -> Format:
    """The format of a row, told by its keys.

    Raises RowError when it is neither of ours.
    """
    keys = set(row) if isinstance(row, dict) else set()
    if keys & {"messages", "conversations"}:
        return "messages"
    if {"instruction", "output"} <= keys:
        return "alpaca"
    found = ", ".join(sorted(map(str, keys))) or type(row).__name__
    raise RowError(f"neither `messages` nor `instruction` and `output` (found: {found})")


def conversation(row: Any, data_format: Format, system: str | None = None) -> Conversation:
    """The messages of a row, with the system text put before those that have none.

    Raises RowError with the reason when the row cannot be used.
    """
    if not isinstance(row, dict):
        raise RowError("not a JSON object")
    turns = _messages(row) if data_format == "messages" else _alpaca(row)
    messages = [message for message, _ in turns]
    weights = [learnt for _, learnt in turns]
    if system is not None and (not messages or messages[0]["role"] != "system"):
        messages.insert(0, {"role": "system", "content": system})
        weights.insert(0, False)
    learnt = frozenset(i for i, m in enumerate(messages) if m["role"] == "assistant" and weights[i])
    if not learnt:
        raise RowError("no assistant turn")
    return Conversation(messages=tuple(messages), learnt=learnt)


def _messages(row: Mapping[str, Any]) -> list[tuple[Message, bool]]:
    turns = row.get("messages", row.get("conversations"))
    if not isinstance(turns, list) or not turns:
        raise RowError("`messages` is not a list of turns")
    return [_turn(turn) for turn in turns]


def _turn(turn: Any) -> tuple[Message, bool]:
    if not isinstance(turn, dict):
        raise RowError("a turn is not an object with role and content")
    name = turn.get("role", turn.get("from"))
    if not isinstance(name, str) or name not in ROLES:
        raise RowError(f"unknown role {name!r}")
    content = turn.get("content", turn.get("value"))
    if isinstance(content, list):
        content = "".join(_text_part(part) for part in content)
    return {"role": ROLES[name], "content": _text(content, name)}, turn.get("weight", 1) != 0


def _text_part(part: Any) -> str:
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    raise RowError("a turn has content that is not text")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise RowError(f"`{name}` is not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError(f"`{name}` is not valid Unicode text") from None
    return value


def _alpaca(row: Mapping[str, Any]) -> list[tuple[Message, bool]]:
    def turn(role: str, value: Any, name: str) -> tuple[Message, bool]:
        return {"role": role, "content": _text(value, name)}, True

    if "instruction" not in row or "output" not in row:
        raise RowError("`instruction` or `output` is missing")
    turns = [turn("system", row["system"], "system")] if row.get("system") else []
    history = row.get("history") or []
    if not isinstance(history, list):
        raise RowError("`history` is not a list of question and answer")
    for pair in history:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise RowError("`history` is not a list of question and answer")
        turns += [turn("user", pair[0], "history"), turn("assistant", pair[1], "history")]
    instruction = _text(row["instruction"], "instruction")
    extra = _text(row.get("input") or "", "input")
    question = "\n".join(part for part in (instruction, extra) if part)
    if not row["output"]:
        raise RowError("no assistant turn: `output` is empty")
    return [
        *turns,
        turn("user", question, "instruction"),
        turn("assistant", row["output"], "output"),
    ]


def chat_template(name: str | None, tokenizer: Tokenizer) -> str:
    """The template that renders this run's messages: a shipped one, else the model's own.

    A tokenizer that lacks ChatML's end mark gets its own end token in its place, because a
    model learns to stop by one token.
    Raises RunError (bad_spec) when the name is unknown, or there is none.
    """
    if name is None:
        if isinstance(tokenizer.chat_template, str):
            return tokenizer.chat_template
        raise RunError("bad_spec", "the model has no chat template: set template=chatml")
    path = TEMPLATES / f"{name}.jinja"
    shipped = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))
    if name not in shipped:
        raise RunError("bad_spec", f"template={name!r} is not one of {', '.join(shipped)}")
    text = path.read_text(encoding="utf-8")
    added = {str(token) for token in tokenizer.added_tokens_decoder.values()}
    if "<|im_end|>" not in added and tokenizer.eos_token:
        text = text.replace("<|im_end|>", tokenizer.eos_token)
    return text


class ChatTokenizer:
    """Turns conversations into tokens with one tokenizer and one chat template."""

    def __init__(self, tokenizer: Tokenizer, template: str, max_length: int) -> None:
        """`max_length` is in tokens; longer rows are cut at the end."""
        self.tokenizer = tokenizer
        self.template = template
        self.max_length = max_length
        added = tokenizer.added_tokens_decoder
        self.added_ids = frozenset(added)
        special = [str(token) for token in added.values() if token.special]
        self._special = re.compile("|".join(map(re.escape, special))) if special else None

    def tokens(self, row: Conversation) -> Tokens:
        """The tokens of a row, the learnt answers and their end-of-turn tokens labelled.

        Raises RowError when the template refuses or rewrites the row, or nothing is left to learn.
        """
        messages, hidden = self._hide_special(row.messages)
        text = self._render(messages)
        spans = [self._answer_span(messages, i, text) for i in sorted(row.learnt)]
        encoded = list(self._encode(text, hidden))
        ids = [token for token, _, _ in encoded]
        labels = [
            token if any(start <= begin < end for start, end in spans) else IGNORED
            for token, begin, _ in encoded
        ]
        self._end_last_answer(row, ids, labels)
        cut = len(ids) > self.max_length
        ids, labels = ids[: self.max_length], labels[: self.max_length]
        if all(label == IGNORED for label in labels[1:]):
            raise RowError(f"no answer within the first {self.max_length} tokens (max_length)")
        return Tokens(input_ids=ids, labels=labels, cut=cut)

    def _render(self, messages: Sequence[Message], *, prompt: bool = False) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    list(messages),
                    chat_template=self.template,
                    tokenize=False,
                    add_generation_prompt=prompt,
                )
            )
        except Exception as error:
            raise RowError(f"the chat template refuses it: {error}") from None

    def _hide_special(self, messages: Sequence[Message]) -> tuple[Sequence[Message], Hidden | None]:
        """Special tokens written in a row's own text, replaced by marks that tokenizing puts back.

        A row that says `<|im_end|>` then has that as plain text and cannot end a turn.
        """
        joined = "".join(m["content"] for m in messages)
        if self._special is None or not self._special.search(joined):
            return list(messages), None
        mark = self._unused(joined)
        texts: list[str] = []

        def hide(match: re.Match[str]) -> str:
            texts.append(match.group())
            return f"{mark}{len(texts) - 1}{mark}"

        shown = [{**m, "content": self._special.sub(hide, m["content"])} for m in messages]
        return shown, Hidden(mark=re.compile(f"{mark}([0-9]+){mark}"), texts=texts)

    @staticmethod
    def _unused(text: str) -> str:
        for mark in NONCHARACTERS:
            if mark not in text:
                return mark
        raise RowError("uses every noncharacter of Unicode")

    def _answer_span(self, messages: Sequence[Message], index: int, text: str) -> tuple[int, int]:
        """Characters of `text` that one answer takes, its end-of-turn mark included."""
        if index == 0:
            return self._located_span(messages, index, text)
        head = self._render(messages[:index], prompt=True)
        last = index == len(messages) - 1
        upto = text if last else self._render(messages[: index + 1])
        if text.startswith(head) and text.startswith(upto) and len(head) < len(upto):
            return len(head), len(upto.rstrip())
        return self._located_span(messages, index, text)

    def _located_span(self, messages: Sequence[Message], index: int, text: str) -> tuple[int, int]:
        """The same for templates that render a conversation's beginning unlike its whole."""
        content = messages[index]["content"]
        mark = self._unused(text)
        marked = [{**m, "content": mark} if i == index else m for i, m in enumerate(messages)]
        before, found, after = self._render(marked).partition(mark)
        end = len(text) - len(after)
        whole = text.startswith(before) and text.endswith(after)
        if not found or not whole or text[len(before) : end].strip() != content.strip():
            raise RowError(f"the chat template rewrites turn {index + 1}")
        ending = re.match(r"\s*", after)
        skipped = ending.end() if ending else 0
        for token in map(str, self.tokenizer.added_tokens_decoder.values()):
            if after.startswith(token, skipped):
                return len(before), end + skipped + len(token)
        return len(before), end

    def _encode(self, text: str, hidden: Hidden | None) -> Iterator[tuple[int, int, int]]:
        """(token, first character, character after the last) over a rendered text."""
        if hidden is None:
            yield from self._pieces(text, 0)
            return
        place = 0
        for match in hidden.mark.finditer(text):
            yield from self._pieces(text[place : match.start()], place)
            plain = self._ids(hidden.texts[int(match[1])], split_special_tokens=True)["input_ids"]
            yield from ((token, match.start(), match.end()) for token in plain)
            place = match.end()
        yield from self._pieces(text[place:], place)

    def _pieces(self, text: str, offset: int) -> Iterator[tuple[int, int, int]]:
        said = self._ids(text, return_offsets_mapping=True)
        for token, (begin, end) in zip(said["input_ids"], said["offset_mapping"], strict=True):
            yield token, begin + offset, end + offset

    def _ids(self, text: str, **settings: Any) -> Any:
        return self.tokenizer(
            text, add_special_tokens=False, return_attention_mask=False, **settings
        )

    def _end_last_answer(self, row: Conversation, ids: list[int], labels: list[int]) -> None:
        """Give a last answer whose template has no end-of-turn token the tokenizer's own."""
        last = len(row.messages) - 1
        learnt = [i for i, label in enumerate(labels) if label != IGNORED]
        if last not in row.learnt or not learnt or ids[learnt[-1]] in self.added_ids:
            return
        if self.tokenizer.eos_token_id is not None:
            del ids[learnt[-1] + 1 :], labels[learnt[-1] + 1 :]
            ids.append(self.tokenizer.eos_token_id)
            labels.append(self.tokenizer.eos_token_id)
