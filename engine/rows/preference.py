"""Rows that say which answer is better, or whether one is good.

Prompts and answers may be text, which becomes turns, or turns. The shapes are those of TRL,
LLaMA-Factory and ms-swift.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.rows.turns import parsed, read_turns
from engine.rows.values import Conversation, Judged, Pair, RowError

TURNS = ("messages", "conversations", "conversation")
"""OpenAI's name for a list of turns, and ShareGPT's."""
SIDES = ("chosen", "rejected")
OTHER_ANSWER = "rejected_response"
"""ms-swift: the conversation ends with the chosen answer, and this is the other one."""
LABELS = ("label", "kto_tag")
JUDGED = ("completion", "output", "response", *TURNS)
"""What may hold the answer that a label judges."""
ASSISTANTS = ("assistant", "gpt", "model", "bot", "chatgpt")


def is_judged(row: Mapping[str, Any]) -> bool:
    """Whether a row with a label is one of ours: data sets have other columns of that name."""
    return "kto_tag" in row or isinstance(row.get("label"), bool)


def read_pair(row: Mapping[str, Any]) -> Pair:
    """Raises RowError with the reason when the row cannot be used."""
    if OTHER_ANSWER in row:
        turns = _turns(row)
        if not turns:
            raise RowError(f"no turns before `{OTHER_ANSWER}`")
        prompt, chosen = turns[:-1], _answer(turns[-1:], "the last turn")
        rejected = _spoken(row, OTHER_ANSWER)
    else:
        prompt, chosen, rejected = _sides(row)
    pair = Pair(chosen=_said(row, prompt, chosen), rejected=_said(row, prompt, rejected))
    if pair.chosen.messages[-1] == pair.rejected.messages[-1]:
        raise RowError("`chosen` and `rejected` are the same answer")
    return pair


def read_judged(row: Mapping[str, Any]) -> Judged:
    """Raises RowError with the reason when the row cannot be used."""
    label = _label(row)
    name = next((name for name in ("completion", "output", "response") if name in row), None)
    if name is None:
        turns = _turns(row)
        if not turns:
            raise RowError("no answer to judge: no turns")
        return Judged(
            answered=_said(row, turns[:-1], _answer(turns[-1:], "the last turn")), label=label
        )
    prompt = _prompt(row)
    if prompt is None:
        raise RowError("`prompt` is missing")
    return Judged(answered=_said(row, prompt, _spoken(row, name)), label=label)


def _said(row: Mapping[str, Any], prompt: Sequence[Any], answer: Any) -> Conversation:
    """The conversation of a prompt and an answer, of which only the answer is learnt."""
    whole = read_turns({**row, "messages": [*prompt, answer]}, "messages")
    return Conversation(
        messages=whole.messages, learnt=frozenset({len(whole.messages) - 1}), tools=whole.tools
    )


def _sides(row: Mapping[str, Any]) -> tuple[list[Any], Any, Any]:
    """(prompt turns, chosen turn, rejected turn)."""
    sides = {name: _side(row, name) for name in SIDES}
    shared = _shared_beginning(*sides.values())
    prompt = _prompt(row)
    if prompt is None and not shared:
        raise RowError(
            "no prompt: there is no `prompt`, and `chosen` and `rejected` do not begin alike"
        )
    answers = [_answer(turns[len(shared) :], f"`{name}`") for name, turns in sides.items()]
    return _joined(prompt or [], shared), answers[0], answers[1]


def _label(row: Mapping[str, Any]) -> bool:
    name = next((name for name in LABELS if name in row), "label")
    value = row.get(name)
    if value not in (True, False) or isinstance(value, float):
        raise RowError(f"`{name}` is {str(value)[:20]!r}, not true or false")
    return bool(value)


def _spoken(row: Mapping[str, Any], name: str) -> Any:
    return _answer(_side(row, name), f"`{name}`")


def _side(row: Mapping[str, Any], name: str) -> list[Any]:
    """An answer as turns: text, one turn, or a list of them."""
    value = row.get(name)
    if not value:
        raise RowError(f"`{name}` is missing" if name not in row else f"`{name}` is empty")
    if isinstance(value, str):
        return _listed(value) or [{"role": "assistant", "content": value}]
    turns = value if isinstance(value, list) else [value]
    if not all(isinstance(turn, dict) for turn in turns):
        raise RowError(f"`{name}` is neither text nor turns with role and content")
    return turns


def _listed(value: str) -> list[Any]:
    """The turns that a table holds as JSON text; none where it is text, or JSON of another kind."""
    if not value.lstrip().startswith(("[{", "{")):
        return []
    try:
        found = parsed(value, "")
    except RowError:
        return []
    turns = found if isinstance(found, list) else [found]
    are_turns = all(isinstance(turn, dict) and ("role" in turn or "from" in turn) for turn in turns)
    return turns if are_turns else []


def _answer(turns: Sequence[Any], name: str) -> Any:
    """The one turn that is judged; an answer of several turns has others' words in it."""
    if len(turns) != 1:
        raise RowError(f"{name} has {len(turns)} turns where one answer is expected")
    role, content = _spoken_by(turns[0])
    if str(role).lower() not in ASSISTANTS:
        raise RowError(f"{name} is a turn of {str(role)[:20]!r}, not of the assistant")
    if isinstance(content, str) and not content.strip():
        raise RowError(f"{name} is empty")
    return turns[0]


def _spoken_by(turn: Any) -> tuple[Any, Any]:
    if not isinstance(turn, dict):
        raise RowError("a turn is not an object with role and content")
    return turn.get("role", turn.get("from")), turn.get("content", turn.get("value"))


def _shared_beginning(one: Sequence[Any], other: Sequence[Any]) -> list[Any]:
    """The turns that both sides begin with, never all of either."""
    shared = []
    for mine, theirs in zip(one[:-1], other[:-1], strict=False):
        if _spoken_by(mine) != _spoken_by(theirs):
            break
        shared.append(mine)
    return shared


def _joined(prompt: list[Any], shared: list[Any]) -> list[Any]:
    """The prompt's turns before the shared ones, said once where both sides repeat it."""
    begins = [_spoken_by(turn) for turn in shared[: len(prompt)]]
    repeats = begins == [_spoken_by(turn) for turn in prompt]
    return shared if prompt and repeats else [*prompt, *shared]


def _prompt(row: Mapping[str, Any]) -> list[Any] | None:
    """The turns before an answer; None where the row has none of its own."""
    prompt = row.get("prompt")
    if prompt:
        if isinstance(prompt, str):
            listed = _listed(prompt)
            return listed or [*_history(row), {"role": "user", "content": prompt}]
        if isinstance(prompt, list):
            return list(prompt)
        raise RowError("`prompt` is neither text nor turns with role and content")
    if "instruction" in row:
        parts = (row["instruction"], row.get("input") or "")
        if not all(isinstance(part, str) for part in parts):
            raise RowError("`instruction` or `input` is not text")
        asked = "\n".join(part for part in parts if part)
        return [*_history(row), {"role": "user", "content": asked}]
    return _turns(row) or None


def _history(row: Mapping[str, Any]) -> list[Any]:
    pairs = parsed(row.get("history") or [], "`history`")
    if not isinstance(pairs, list):
        raise RowError("`history` is not a list of questions and answers")
    turns = []
    for pair in pairs:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise RowError("`history` is not a list of question and answer")
        turns += [
            {"role": role, "content": said}
            for role, said in zip(("user", "assistant"), pair, strict=True)
        ]
    return turns


def _turns(row: Mapping[str, Any]) -> list[Any]:
    name = next((name for name in TURNS if row.get(name)), None)
    turns = parsed(row[name], f"`{name}`") if name else []
    if not isinstance(turns, list):
        raise RowError(f"`{name}` is not a list of turns")
    return turns
