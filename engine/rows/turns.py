"""Turns of a conversation: roles, contents and tool calls, by the names that data sets use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from engine.rows.values import Conversation, Judged, Message, Pair, RowError

ROLES: Mapping[str, str] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "bot": "assistant",
    "chatgpt": "assistant",
    "function_call": "call",
    "tool_call": "call",
    "tool": "tool",
    "function": "tool",
    "ipython": "tool",
    "observation": "tool",
    "tool_response": "tool",
}
"""Role in a data file → role in a chat template; `call` is an assistant's turn that is one call."""
FLAGS = ("weight", "train", "loss")
"""Fields of a turn that say whether it is learnt."""

Turn = tuple[Message, bool]
"""A message, and whether it is learnt if an assistant says it."""


def read_turns(row: Mapping[str, Any], key: str) -> Conversation:
    """The conversation in a row's list of turns, with its own `system` and `tools`.

    Raises RowError with the reason when the row cannot be used.
    """
    listed = parsed(row[key], f"`{key}`")
    if not isinstance(listed, list) or not listed:
        raise RowError(f"`{key}` is not a list of turns")
    turns = [_turn(turn, number) for number, turn in enumerate(listed, start=1)]
    if row.get("system") and turns[0][0]["role"] != "system":
        turns.insert(0, said("system", row["system"], "`system`"))
    return conversation(turns, row.get("tools") or row.get("functions"))


def conversation(turns: list[Turn], tools: Any = None) -> Conversation:
    """Turns as a conversation with something to learn.

    Raises RowError when there is nothing.
    """
    learnt = frozenset(i for i, (m, flag) in enumerate(turns) if flag and m["role"] == "assistant")
    if not learnt:
        raise RowError("no assistant turn: there is nothing to learn")
    messages = tuple(message for message, _ in turns)
    return Conversation(messages=messages, learnt=learnt, tools=_tools(tools))


def system_before(content: Any, text: str | None) -> Any:
    """What a row holds, with a system text put before each conversation that has none."""
    if isinstance(content, Pair):
        chosen, rejected = (with_system(s, text) for s in (content.chosen, content.rejected))
        return Pair(chosen=chosen, rejected=rejected)
    if isinstance(content, Judged):
        return Judged(answered=with_system(content.answered, text), label=content.label)
    return with_system(content, text) if isinstance(content, Conversation) else content


def with_system(said_before: Conversation, text: str | None) -> Conversation:
    """The conversation with a system text put before it, if it has none."""
    if text is None or said_before.messages[0]["role"] == "system":
        return said_before
    return Conversation(
        messages=({"role": "system", "content": text}, *said_before.messages),
        learnt=frozenset(index + 1 for index in said_before.learnt),
        tools=said_before.tools,
    )


def said(role: str, value: Any, name: str, *, may_be_empty: bool = False) -> Turn:
    """A turn of plain text.

    Raises RowError when it is none, or says nothing.
    """
    content = text(value, name)
    if not may_be_empty and not content.strip():
        raise RowError(f"{name} is empty")
    return {"role": role, "content": content}, True


def text(value: Any, name: str) -> str:
    """A text that can be written as UTF-8.

    Raises RowError for anything else.
    """
    if not isinstance(value, str):
        raise RowError(f"{name} is not text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RowError(f"{name} has half a character: not valid Unicode text") from None
    return value


def parsed(value: Any, name: str) -> Any:
    """A list or object, which tables hold as JSON text.

    Raises RowError when such a text is no JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise RowError(f"{name} is text, and not JSON") from None


def _turn(turn: Any, number: int) -> Turn:
    name = f"turn {number}"
    if not isinstance(turn, dict):
        raise RowError(f"{name} is not an object with role and content")
    found = turn.get("role", turn.get("from"))
    if not isinstance(found, str) or found.lower() not in ROLES:
        raise RowError(f"{name} has the unknown role {found!r}")
    role = ROLES[found.lower()]
    content = turn.get("content", turn.get("value"))
    if role == "call":
        said_calls = parsed(content, f"the call of {name}")
        listed = said_calls if isinstance(said_calls, list) and said_calls else [said_calls]
        calls = [_call(call, name) for call in listed]
        return {"role": "assistant", "content": "", "tool_calls": calls}, _is_learnt(turn, name)
    message = _message(role, content, turn, name)
    return message, _is_learnt(turn, name)


def _message(role: str, content: Any, turn: Mapping[str, Any], name: str) -> Message:
    calls = turn.get("tool_calls")
    if not calls and turn.get("function_call"):  # OpenAI's older name, for one call
        calls = [turn["function_call"]]
    message: dict[str, Any] = {"role": role}
    if isinstance(content, list):
        content = "".join(_text_part(part, name) for part in content)
    message["content"] = text("" if content is None and calls else content, f"content of {name}")
    if calls:
        if role != "assistant" or not isinstance(calls, list):
            raise RowError(f"`tool_calls` of {name} is not a list of an assistant's calls")
        message["tool_calls"] = [_call(call, name) for call in calls]
    for key in ("reasoning_content", "name", "tool_call_id"):
        if turn.get(key) is not None:
            message[key] = text(turn[key], f"`{key}` of {name}")
    if role in ("user", "assistant") and not calls and not message["content"].strip():
        raise RowError(f"{name} ({role}) is empty")
    return message


def _text_part(part: Any, name: str) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    raise RowError(f"{name} has content that is not text: {kind!r}")


def _is_learnt(turn: Mapping[str, Any], name: str) -> bool:
    for flag in FLAGS:
        value = turn.get(flag)
        if value is None:
            continue
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise RowError(f"`{flag}` of {name} is {value!r}: a turn is learnt (1) or not (0)")
    return True


def _call(call: Any, name: str) -> dict[str, Any]:
    """A call in the form that chat templates take: its arguments are values, not JSON text."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise RowError(f"a tool call of {name} has no function name")
    arguments = parsed(function.get("arguments") or {}, f"`arguments` of a tool call of {name}")
    if not isinstance(arguments, dict):
        raise RowError(f"`arguments` of a tool call of {name} is not an object")
    made: dict[str, Any] = {
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
    if isinstance(call.get("id"), str):
        made["id"] = call["id"]
    _writable(made, name)
    return made


def _tools(value: Any) -> tuple[Any, ...]:
    if not value:
        return ()
    tools = parsed(value, "`tools`")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise RowError("`tools` is not a list of functions")
    _writable(tools, "`tools`")
    return tuple(tools)


def _writable(value: Any, name: str) -> None:
    text(json.dumps(value, ensure_ascii=False), name)
