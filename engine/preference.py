"""Preference: rows that say which answer is better, or good, become conversations and tokens.

A pair is a prompt with a chosen and a rejected answer, a judged row a prompt with one answer and
its label. Prompts and answers may be text, which becomes turns of the chat template, or turns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.data import IGNORED, ChatTokenizer, Conversation, RowError, conversation

ANSWERING = ("assistant", "gpt")
LABELS = ("label", "kto_tag")
"""Keys that say whether an answer is good: TRL's and LLaMA-Factory's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """Two answers to one prompt, as tokens; a sequence is the prompt and one of them."""

    prompt_ids: list[int]
    chosen_ids: list[int]
    rejected_ids: list[int]
    cut: bool
    """Whether an answer was cut off at the end."""

    @property
    def length(self) -> int:
        """Tokens of the longer sequence."""
        return len(self.prompt_ids) + max(len(self.chosen_ids), len(self.rejected_ids))

    @property
    def total(self) -> int:
        """Tokens that pass through the model: the prompt does with each answer."""
        return 2 * len(self.prompt_ids) + self.trained

    @property
    def trained(self) -> int:
        """Tokens of both answers."""
        return len(self.chosen_ids) + len(self.rejected_ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """One answer to a prompt, as tokens, and whether it is good."""

    prompt_ids: list[int]
    completion_ids: list[int]
    label: bool
    cut: bool
    """Whether the answer was cut off at the end."""

    @property
    def length(self) -> int:
        """Tokens of the sequence."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def total(self) -> int:
        """Tokens that pass through the model, but for the estimate of how far it has moved."""
        return self.length

    @property
    def trained(self) -> int:
        """Tokens of the answer."""
        return len(self.completion_ids)


def pair(row: Any, system: str | None, chat: ChatTokenizer) -> Pair:
    """A row with `chosen` and `rejected` as tokens.

    Raises RowError with the reason when the row cannot be used.
    """
    prompt, chosen, rejected = _pair_turns(_mapping(row))
    sides = [_answered(prompt, answer, system, chat) for answer in (chosen, rejected)]
    if sides[0].prompt_ids != sides[1].prompt_ids:
        raise RowError("the chat template renders the prompt differently before the two answers")
    chosen_ids, rejected_ids = (side.completion_ids for side in sides)
    cut = sides[0].cut or sides[1].cut
    if chosen_ids == rejected_ids:
        within = f" within {chat.max_length} tokens (max_length)" if cut else ""
        raise RowError(f"`chosen` and `rejected` are the same answer{within}")
    return Pair(
        prompt_ids=sides[0].prompt_ids, chosen_ids=chosen_ids, rejected_ids=rejected_ids, cut=cut
    )


def judged(row: Any, system: str | None, chat: ChatTokenizer) -> Judged:
    """A row with an answer and its label as tokens.

    Raises RowError with the reason when the row cannot be used.
    """
    row = _mapping(row)
    label = _label(row)
    prompt, answer = _judged_turns(row)
    side = _answered(prompt, answer, system, chat)
    return Judged(
        prompt_ids=side.prompt_ids, completion_ids=side.completion_ids, label=label, cut=side.cut
    )


def _mapping(row: Any) -> Mapping[str, Any]:
    if not isinstance(row, dict):
        raise RowError("not a JSON object")
    return row


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    prompt_ids: list[int]
    completion_ids: list[int]
    cut: bool


def _answered(prompt: list[Any], answer: Any, system: str | None, chat: ChatTokenizer) -> _Side:
    """The tokens of one answer, from the first that is the model's to say to its end mark.

    What a template writes after the end mark is left out: the model never says it.
    """
    whole = conversation({"messages": [*prompt, answer]}, "messages", system)
    last = len(whole.messages) - 1
    tokens = chat.tokens(Conversation(messages=whole.messages, learnt=frozenset({last})))
    learnt = [place for place, label in enumerate(tokens.labels) if label != IGNORED]
    first, end = learnt[0], learnt[-1] + 1
    return _Side(
        prompt_ids=tokens.input_ids[:first],
        completion_ids=tokens.input_ids[first:end],
        cut=tokens.cut,
    )


def _pair_turns(row: Mapping[str, Any]) -> tuple[list[Any], Any, Any]:
    """(prompt turns, chosen turn, rejected turn)."""
    if "rejected_response" in row:  # ms-swift: the conversation ends with the chosen answer
        turns = _turns(row)
        if not turns:
            raise RowError("`messages` has no answer before `rejected_response`")
        return turns[:-1], _answer(turns[-1:], "messages"), _spoken(row, "rejected_response")
    for name in ("chosen", "rejected"):
        if not row.get(name):
            raise RowError(f"`{name}` is missing" if name not in row else f"`{name}` is empty")
    sides = {name: _side_turns(row[name], name) for name in ("chosen", "rejected")}
    shared = _shared_beginning(*sides.values())
    prompt = _prompt(row)
    if prompt is None and not shared:
        raise RowError(
            "no prompt: there is no `prompt`, and `chosen` and `rejected` do not begin alike"
        )
    answers = [_answer(turns[len(shared) :], name) for name, turns in sides.items()]
    return _joined(prompt or [], shared), answers[0], answers[1]


def _judged_turns(row: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """(prompt turns, the answer's turn)."""
    if "completion" in row:
        prompt = _prompt(row)
        if prompt is None:
            raise RowError("`prompt` is missing")
        return prompt, _spoken(row, "completion")
    if "instruction" in row:
        return _asked(row), _spoken(row, "output")
    turns = _turns(row)
    if not turns:
        raise RowError("no `completion`, `messages` or `output` to judge")
    return turns[:-1], _answer(turns[-1:], "messages")


def _label(row: Mapping[str, Any]) -> bool:
    name = next((name for name in LABELS if name in row), None)
    if name is None:
        raise RowError("`label` is missing")
    value = row[name]
    if value not in (True, False) or isinstance(value, float):
        raise RowError(f"`{name}` is {str(value)[:20]!r}, not true or false")
    return bool(value)


def _spoken(row: Mapping[str, Any], name: str) -> Any:
    if not row.get(name):
        raise RowError(f"`{name}` is missing" if name not in row else f"`{name}` is empty")
    return _answer(_side_turns(row[name], name), name)


def _side_turns(value: Any, name: str) -> list[Any]:
    """An answer as turns: text, one turn, or a list of them."""
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}]
    turns = value if isinstance(value, list) else [value]
    if not turns or not all(isinstance(turn, dict) for turn in turns):
        raise RowError(f"`{name}` is neither text nor turns with role and content")
    return turns


def _answer(turns: Sequence[Any], name: str) -> Any:
    """The one turn that is judged; an answer of several turns has others' words in it."""
    if len(turns) != 1:
        what = "no answer" if not turns else f"{len(turns)} turns where one answer is expected"
        raise RowError(f"`{name}` has {what}")
    role, content = _said(turns[0])
    if role not in ANSWERING:
        raise RowError(f"`{name}` ends with a turn of {str(role)[:20]!r}, not of the assistant")
    if not content:
        raise RowError(f"`{name}` is an empty answer")
    return turns[0]


def _said(turn: Any) -> tuple[Any, Any]:
    if not isinstance(turn, dict):
        raise RowError("a turn is not an object with role and content")
    return turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))


def _shared_beginning(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """The turns that both sides begin with, never all of either."""
    shared = []
    for mine, theirs in zip(one[:-1], other[:-1], strict=False):
        if _said(mine) != _said(theirs):
            break
        shared.append(mine)
    return shared


def _joined(prompt: list[Any], shared: list[Any]) -> list[Any]:
    """The prompt's turns before the shared ones, said once where both sides repeat it."""
    repeats = [_said(turn) for turn in shared[: len(prompt)]] == [_said(turn) for turn in prompt]
    return shared if prompt and repeats else [*prompt, *shared]


def _prompt(row: Mapping[str, Any]) -> list[Any] | None:
    """The turns before an answer; None where the row has none of its own."""
    if row.get("prompt"):
        prompt = row["prompt"]
        if isinstance(prompt, str):
            return [{"role": "user", "content": prompt}]
        if isinstance(prompt, list):
            return prompt
        raise RowError("`prompt` is neither text nor turns with role and content")
    if "instruction" in row:
        return _asked(row)
    return _turns(row) or None


def _turns(row: Mapping[str, Any]) -> list[Any]:
    turns = row.get("messages", row.get("conversations")) or []
    if not isinstance(turns, list):
        raise RowError("`messages` is not a list of turns")
    return turns


def _asked(row: Mapping[str, Any]) -> list[Any]:
    """The turns before the answer of a row with `instruction`."""
    return list(conversation({**row, "output": "x"}, "alpaca").messages[:-1])
