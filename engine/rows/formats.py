"""What a row may look like: each format, how it is recognised and how it is read.

A new format is one entry of `FORMATS`. What `read` gives has `texts()`, all that becomes tokens;
what makes tokens of it is named in `engine.prepare`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from engine.rows.preference import (
    JUDGED,
    LABELS,
    OTHER_ANSWER,
    SIDES,
    TURNS,
    is_judged,
    read_judged,
    read_pair,
)
from engine.rows.turns import Turn, conversation, parsed, read_turns, said, text
from engine.rows.values import Conversation, Document, RowError


class Readable(Protocol):
    """What a row holds, whatever it is used for."""

    def texts(self) -> list[str]:
        """What becomes tokens, a text for each turn."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFormat:
    """One shape of rows."""

    name: str
    keys: tuple[tuple[str, ...], ...]
    """A row has this format when it has one name of each tuple; the first is the usual one."""
    optional: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Readable]
    """Raises RowError with the reason when the row cannot be used."""
    surely: Callable[[Mapping[str, Any]], bool] | None = None
    """Whether the keys mean what they do in this format, where other rows have them too."""

    def recognises(self, row: Any) -> bool:
        """Whether a row has the keys of this format."""
        return isinstance(row, Mapping) and all(_which(row, names) for names in self.keys)

    def in_words(self) -> str:
        """The keys it needs, as `prompt` with `completion`."""
        return " with ".join(f"`{names[0]}`" for names in self.keys)


def _which(row: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((name for name in names if name in row), None)


def _messages(row: Mapping[str, Any]) -> Conversation:
    return read_turns(row, _which(row, TURNS) or TURNS[0])


def _alpaca(row: Mapping[str, Any]) -> Conversation:
    instruction = text(row["instruction"], "`instruction`")
    extra = text(row.get("input") or "", "`input`")
    question = "\n".join(part for part in (instruction, extra) if part)
    return _exchange(row, said("user", question, "`instruction`"), row["output"], "`output`")


QUERY = ("query", "question")
RESPONSE = ("response", "answer")


def _query_response(row: Mapping[str, Any]) -> Conversation:
    query, response = _which(row, QUERY) or "query", _which(row, RESPONSE) or "response"
    return _exchange(row, said("user", row[query], f"`{query}`"), row[response], f"`{response}`")


COMPLETION = ("completion", "response")


def _prompt_completion(row: Mapping[str, Any]) -> Conversation:
    name = _which(row, COMPLETION) or "completion"
    prompt, completion = row["prompt"], row[name]
    if isinstance(prompt, list) or isinstance(completion, list):
        return _listed(row, prompt, completion, name)
    return _exchange(row, said("user", prompt, "`prompt`"), completion, f"`{name}`")


def _listed(row: Mapping[str, Any], prompt: Any, completion: Any, name: str) -> Conversation:
    """Prompt and completion as lists of turns: only the completion's are learnt."""
    if not isinstance(prompt, list) or not isinstance(completion, list):
        raise RowError(f"one of `prompt` and `{name}` is a list of turns, the other is not")
    asked = [{**turn, "train": False} if isinstance(turn, dict) else turn for turn in prompt]
    return read_turns({**row, "messages": [*asked, *completion]}, "messages")


def _exchange(row: Mapping[str, Any], question: Turn, answer: Any, name: str) -> Conversation:
    """System text, history, a question and its answer."""
    turns = [said("system", row["system"], "`system`")] if row.get("system") else []
    turns += _history(row.get("history"))
    if isinstance(answer, str) and not answer.strip():
        raise RowError(f"no assistant turn: {name} is empty")
    return conversation([*turns, question, said("assistant", answer, name)], row.get("tools"))


def _history(value: Any) -> list[Turn]:
    pairs = parsed(value, "`history`") if value else []
    if not isinstance(pairs, list):
        raise RowError("`history` is not a list of questions and answers")
    turns = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise RowError("`history` is not a list of question and answer")
        turns += [said("user", pair[0], "`history`"), said("assistant", pair[1], "`history`")]
    return turns


def _text(row: Mapping[str, Any]) -> Document:
    content = text(row["text"], "`text`")
    if not content.strip():
        raise RowError("`text` is empty")
    return Document(text=content)


AROUND = ("system", "tools", "history")
ASKED = ("prompt", "instruction", "input", *TURNS)
FORMATS: tuple[RowFormat, ...] = (
    RowFormat(
        name="preference",
        keys=((SIDES[0], OTHER_ANSWER), (SIDES[1], OTHER_ANSWER)),
        optional=(*ASKED, *AROUND),
        read=read_pair,
    ),
    RowFormat(
        name="kto",
        keys=(JUDGED, LABELS),
        optional=(*ASKED, *AROUND),
        read=read_judged,
        surely=is_judged,
    ),
    RowFormat(
        name="messages", keys=(TURNS,), optional=("system", "tools", "functions"), read=_messages
    ),
    RowFormat(
        name="alpaca",
        keys=(("instruction",), ("output",)),
        optional=("input", *AROUND),
        read=_alpaca,
    ),
    RowFormat(name="query_response", keys=(QUERY, RESPONSE), optional=AROUND, read=_query_response),
    RowFormat(
        name="prompt_completion",
        keys=(("prompt",), COMPLETION),
        optional=AROUND,
        read=_prompt_completion,
    ),
    RowFormat(name="text", keys=(("text",),), optional=(), read=_text),
)
"""In the order in which they are looked for."""


def format_named(name: str) -> RowFormat:
    """The format of that name; the setting `data_format` allows no other."""
    return next(known for known in FORMATS if known.name == name)


def format_of(row: Any) -> RowFormat:
    """The format of a row, told by its keys.

    Raises RowError when it has none that is known.
    """
    if not isinstance(row, Mapping):
        raise RowError("not a JSON object")
    for known in FORMATS:
        if known.recognises(row) and (known.surely is None or known.surely(row)):
            return known
    lists = [name for name, value in row.items() if isinstance(value, list) and value]
    if len(lists) == 1 and isinstance(row[lists[0]][0], dict):
        raise RowError(f"holds a list under `{lists[0]}`: if that has the rows, save it alone")
    raise RowError(f"no known format: its keys are {_keys(row)}")


def read(row: Any, expected: RowFormat) -> Readable:
    """What a row of the expected format holds.

    Raises RowError with the reason when the row cannot be used.
    """
    if not isinstance(row, Mapping):
        raise RowError("not a JSON object")
    if not expected.recognises(row):
        raise RowError(
            f"not in the format `{expected.name}` of this data set: its keys are {_keys(row)}"
        )
    return expected.read(row)


def _keys(row: Mapping[str, Any]) -> str:
    names = ", ".join(str(key) for key in list(row)[:6]) or "none"
    return names if len(names) <= 200 else f"{names[:200]}…"
