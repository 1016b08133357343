"""Data: conversations become tokens, of which only the answers are learnt.

Templates do not say which text is an answer, so it is found: a conversation is rendered up to an
answer, as the model would be asked, and up to its end; what the second has more than the first is
the answer. Where the beginning of a conversation reads otherwise alone than within the whole (as
with templates that take the reasoning out of earlier answers), a mark in the answer's place shows
where it stands. Characters then become tokens by the offsets that the tokenizer gives.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.failure import RunError
from engine.rows.values import Conversation, Message, RowError
from engine.template import Template, Tokenizer, unused

IGNORED = -100
"""Label of a token that carries no loss."""
TEMPLATES = Path(__file__).parent / "templates"
READ_BY_TEMPLATES = ("<think>", "</think>")
"""Templates look for these in an answer, whatever the tokenizer makes of them."""
CLOSES = re.compile("</")
"""Added tokens that close something inside a turn, as `</tool_call>`."""
SPACE = re.compile(r"\s*")
Span = tuple[int, int]
"""First character, and the one after the last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """One row as the trainer sees it; both lists have the same length."""

    input_ids: list[int]
    labels: list[int]
    length: int
    """Tokens of the whole row; there are fewer where it was cut at the end."""
    skipped: int = 0
    """Earlier answers that carry no loss, because the template takes their reasoning away."""

    @property
    def cut(self) -> bool:
        """Whether tokens were cut off at the end."""
        return self.length > len(self.input_ids)

    @property
    def kept(self) -> int:
        """Tokens that are left of it."""
        return len(self.input_ids)

    @property
    def total(self) -> int:
        """Tokens that pass through the model."""
        return len(self.input_ids)

    @property
    def trained(self) -> int:
        """Tokens that carry a loss; the first of a row is never predicted."""
        return len(self.labels) - self.labels.count(IGNORED) - (self.labels[0] != IGNORED)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hidden:
    """Special tokens that a row's own text spells out."""

    mark: re.Pattern[str]
    """Finds a place one was taken from; its group is the index in `texts`."""
    texts: Sequence[str]


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


def _check_shown(message: Message, index: int, shown: str) -> None:
    """Some templates leave out or change what they are not made for, without a word."""
    _, _, answer = message["content"].rpartition("</think>")
    thoughts = message.get("reasoning_content") or ""
    if answer.strip() not in shown or thoughts.strip() not in shown:
        raise RowError(f"the chat template rewrites turn {index + 1}")


class ChatTokenizer:
    """Turns conversations into tokens with one tokenizer and one chat template."""

    columns: Sequence[str] = ("input_ids", "labels")
    """What the trainer reads of `Tokens`."""

    def __init__(self, tokenizer: Tokenizer, template: str, max_length: int) -> None:
        """`max_length` is in tokens; longer rows are cut at the end."""
        self.tokenizer = tokenizer
        self.template = Template(tokenizer, template)
        self.max_length = max_length
        tokenizer.backend_tokenizer.no_truncation()  # some models' files ask for it
        tokenizer.backend_tokenizer.no_padding()
        added = tokenizer.added_tokens_decoder
        special = [str(t) for t in added.values() if t.special and str(t) not in READ_BY_TEMPLATES]
        self._special = re.compile("|".join(map(re.escape, special))) if special else None
        self._ends = {
            str(token): number
            for number, token in added.items()
            if str(token) == tokenizer.eos_token or token.special or not CLOSES.match(str(token))
        }
        self._turn_ends = [*special, *filter(None, [tokenizer.eos_token])]

    def tokens(self, row: Conversation) -> Tokens:
        """The tokens of a row, the learnt answers and their end-of-turn tokens labelled.

        Raises RowError when the template refuses or rewrites the row, or nothing is left to learn.
        """
        shown, hidden = self._hide_special(self.template.fitted(row))
        text = self.template.render(shown.messages, shown.tools)
        spans = self._spans(shown, text)
        ids, begins = self._encode(text, hidden)
        labels = [IGNORED] * len(ids)
        for start, end in spans:
            first, after = bisect_left(begins, start), bisect_left(begins, end)
            labels[first:after] = ids[first:after]
        self._end_last_answer(row, ids, labels)
        length = len(ids)
        ids, labels = ids[: self.max_length], labels[: self.max_length]
        if all(label == IGNORED for label in labels[1:]):
            raise RowError(f"no answer within the first {self.max_length} tokens (max_length)")
        skipped = len(row.learnt) - len(spans)
        return Tokens(input_ids=ids, labels=labels, length=length, skipped=skipped)

    def text(self, ids: Sequence[int]) -> str:
        """Tokens as the text they stand for, special ones by their names."""
        said: str = self.tokenizer.decode(ids, skip_special_tokens=False)
        return said

    def _hide_special(self, row: Conversation) -> tuple[Conversation, Hidden | None]:
        """Special tokens written in a row's own text, replaced by marks that tokenizing puts back.

        A row that says `<|im_end|>` then has that as plain text and cannot end a turn.
        """
        joined = "\n".join(row.texts())
        if self._special is None or not self._special.search(joined):
            return row, None
        pattern, mark, texts = self._special, unused(joined), []

        def hide(value: Any) -> Any:
            if isinstance(value, str):
                return pattern.sub(marked, value)
            if isinstance(value, list | tuple):
                return [hide(part) for part in value]
            if isinstance(value, dict):
                return {key: hide(part) for key, part in value.items()}
            return value

        def marked(match: re.Match[str]) -> str:
            texts.append(match.group())
            return f"{mark}{len(texts) - 1}{mark}"

        messages = tuple({**hide(dict(m)), "role": m["role"]} for m in row.messages)
        shown = Conversation(messages=messages, learnt=row.learnt, tools=tuple(hide(row.tools)))
        return shown, Hidden(mark=re.compile(f"{mark}([0-9]+){mark}"), texts=texts)

    def _spans(self, row: Conversation, text: str) -> list[Span]:
        """Characters of the answers that are learnt."""
        found = {index: self._answer_span(row, index, text) for index in sorted(row.learnt)}
        for index, span in found.items():
            if span is not None:
                _check_shown(row.messages[index], index, text[slice(*span)])
        if found[max(found)] is None:
            raise RowError(f"the chat template removes part of its answer, turn {max(found) + 1}")
        return [span for span in found.values() if span is not None]

    def _answer_span(self, row: Conversation, index: int, text: str) -> Span | None:
        """Characters of `text` that one answer takes, its end-of-turn mark included.

        None for an earlier answer of which the template takes the reasoning away: learning the
        rest would teach to answer without it.
        """
        start = self.template.begins(text, row, index, prompt=True)
        last = index == len(row.messages) - 1
        if start is not None:
            end = (
                len(text.rstrip())
                if last
                else self.template.begins(text, row, index + 1, prompt=False)
            )
            if end is not None and end > start:
                return start, self._with_end(text, start, end)
        if row.messages[index].get("tool_calls"):
            return self._called_span(row, index, text, start)
        return self._located_span(row, index, text, start)

    def _with_end(self, text: str, start: int, end: int) -> int:
        """The end moved behind the mark that ends a turn, where the next turn's is that mark."""
        if any(text.endswith(token, start, end) for token in self._ends):
            return end
        return self._behind_token(text, end)

    def _behind_token(self, text: str, end: int) -> int:
        blank = SPACE.match(text, end)
        place = blank.end() if blank else end
        for token in self._ends:
            if text.startswith(token, place):
                return place + len(token)
        return end

    def _called_span(
        self, row: Conversation, index: int, text: str, start: int | None
    ) -> Span | None:
        """An answer that is a tool call: up to the first mark that ends a turn."""
        if start is None:
            before, found, _ = self.template.around(row, index, text)
            if not found or not text.startswith(before):
                raise RowError(f"the chat template rewrites turn {index + 1}")
            start = len(before)
        ends = [at + len(t) for t in self._turn_ends if (at := text.find(t, start)) >= 0]
        return start, min(ends, default=len(text.rstrip()))

    def _located_span(
        self, row: Conversation, index: int, text: str, start: int | None
    ) -> Span | None:
        """The same for templates that render a conversation's beginning unlike its whole."""
        message = row.messages[index]
        before, found, after = self.template.around(row, index, text)
        end = len(text) - len(after)
        if found and text.startswith(before) and text.endswith(after) and len(before) <= end:
            shown, content = text[len(before) : end].strip(), message["content"].strip()
            reasoning = message.get("reasoning_content")
            if shown == content and (not reasoning or reasoning.strip() in text):
                begin = len(before) if start is None else min(start, len(before))
                return begin, self._behind_token(text, end)
            if shown in content:
                return None
        raise RowError(f"the chat template rewrites turn {index + 1}")

    def _encode(self, text: str, hidden: Hidden | None) -> tuple[list[int], list[int]]:
        """Tokens of a rendered text, and the character at which each begins."""
        if hidden is None:
            return self._piece(text)
        ids: list[int] = []
        begins: list[int] = []

        def add(tokens: Sequence[int], places: Iterable[int]) -> None:
            ids.extend(tokens)
            begins.extend(places)

        place = 0
        for match in hidden.mark.finditer(text):
            tokens, places = self._piece(text[place : match.start()])
            add(tokens, (at + place for at in places))
            plain = self._plain(hidden.texts[int(match[1])])
            add(plain, [match.start()] * len(plain))
            place = match.end()
        tokens, places = self._piece(text[place:])
        add(tokens, (at + place for at in places))
        return ids, begins

    def _piece(self, text: str) -> tuple[list[int], list[int]]:
        said = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        return said.ids, [begin for begin, _ in said.offsets]

    def _plain(self, text: str) -> list[int]:
        """Tokens of a text in which a special token's name is only text."""
        backend = self.tokenizer.backend_tokenizer
        backend.encode_special_tokens = True
        try:
            return list(backend.encode(text, add_special_tokens=False).ids)
        finally:
            backend.encode_special_tokens = False

    def _end_last_answer(self, row: Conversation, ids: list[int], labels: list[int]) -> None:
        """Give a last answer whose template has no end-of-turn token the tokenizer's own."""
        last = len(row.messages) - 1
        learnt = [i for i, label in enumerate(labels) if label != IGNORED]
        if last not in row.learnt or not learnt or ids[learnt[-1]] in self._ends.values():
            return
        if self.tokenizer.eos_token_id is not None:
            del ids[learnt[-1] + 1 :], labels[learnt[-1] + 1 :]
            ids.append(self.tokenizer.eos_token_id)
            labels.append(self.tokenizer.eos_token_id)
