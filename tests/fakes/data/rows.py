"""Rows that cannot be used, each with words of the reason; and odd rows that can."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ASKED = {"role": "user", "content": "q"}
SAID = {"role": "assistant", "content": "a"}
GOOD = {"messages": [ASKED, SAID]}
ALPACA = {"instruction": "q", "output": "a"}


def turns(*messages: Any) -> dict[str, Any]:
    """A row of the format `messages`."""
    return {"messages": list(messages)}


def call(**function: Any) -> dict[str, Any]:
    """A row whose answer is one tool call."""
    return turns(ASKED, {"role": "assistant", "content": None, "tool_calls": [function]})


BAD: Mapping[str, tuple[Any, str]] = {
    # not a row
    "number": (3, "not a JSON object"),
    "text": ("hello", "not a JSON object"),
    "null": (None, "not a JSON object"),
    "true": (True, "not a JSON object"),
    "list": ([ASKED, SAID], "not a JSON object"),
    "empty object": ({}, "keys are none"),
    "other keys": ({"colour": "red"}, "keys are colour"),
    "keys with blanks": ({" messages": []}, "keys are"),
    "keys in capitals": ({"Messages": []}, "keys are Messages"),
    "many keys": ({f"k{n}": n for n in range(50)}, "keys are k0"),
    "very long key": ({"k" * 10_000: 1}, "…"),
    "other format": (ALPACA, "not in the format `messages`"),
    # no list of turns
    "no turns": (turns(), "not a list of turns"),
    "turns are null": ({"messages": None}, "not a list of turns"),
    "turns are a number": ({"messages": 7}, "not a list of turns"),
    "turns are an object": ({"messages": {"role": "user"}}, "not a list of turns"),
    "turns are text": ({"messages": "hello"}, "text, and not JSON"),
    "turns are Python": ({"messages": "[{'role': 'user'}]"}, "text, and not JSON"),
    "turns are JSON of no list": ({"messages": "{}"}, "not a list of turns"),
    # a turn that is none
    "turn is text": (turns("hello"), "turn 1 is not an object"),
    "turn is null": (turns(ASKED, None), "turn 2 is not an object"),
    "turn is a list": (turns([ASKED, SAID]), "turn 1 is not an object"),
    "turn is a number": (turns(ASKED, SAID, 5), "turn 3 is not an object"),
    "no role": (turns({"content": "a"}), "unknown role None"),
    "role of another kind": (turns({"role": 1, "content": "a"}), "unknown role 1"),
    "role is a list": (turns({"role": ["user"], "content": "a"}), "unknown role"),
    "unknown role": (turns(ASKED, {"role": "robot", "content": "a"}), "turn 2 has the unknown"),
    "empty role": (turns({"role": "", "content": "a"}), "unknown role ''"),
    "role with a blank": (turns({"role": "user ", "content": "a"}), "unknown role 'user '"),
    # contents
    "no content": (turns(ASKED, {"role": "assistant"}), "is not text"),
    "content is null": (turns(ASKED, {**SAID, "content": None}), "is not text"),
    "content is a number": (turns(ASKED, {**SAID, "content": 3}), "is not text"),
    "content is a bool": (turns(ASKED, {**SAID, "content": False}), "is not text"),
    "content is an object": (turns(ASKED, {**SAID, "content": {"a": 1}}), "is not text"),
    "answer is empty": (turns(ASKED, {**SAID, "content": ""}), "turn 2 (assistant) is empty"),
    "answer is blank": (turns(ASKED, {**SAID, "content": " \n\t"}), "(assistant) is empty"),
    "question is empty": (turns({**ASKED, "content": ""}, SAID), "turn 1 (user) is empty"),
    "no parts": (turns(ASKED, {**SAID, "content": []}), "(assistant) is empty"),
    "image": (turns({**ASKED, "content": [{"type": "image"}]}, SAID), "not text: 'image'"),
    "audio": (turns({**ASKED, "content": [{"type": "audio"}]}, SAID), "not text: 'audio'"),
    "part is a number": (turns({**ASKED, "content": [5]}, SAID), "not text: 'int'"),
    "part without text": (turns({**ASKED, "content": [{"type": "text"}]}, SAID), "not text"),
    "half a character": (turns(ASKED, {**SAID, "content": "x\ud800"}), "half a character"),
    "half a character asked": (turns({**ASKED, "content": "\udfff"}, SAID), "half a character"),
    # nothing to learn
    "only a question": (turns(ASKED), "no assistant turn"),
    "only a system text": (turns({"role": "system", "content": "s"}), "no assistant turn"),
    "only a tool's": (turns(ASKED, {"role": "tool", "content": "t"}), "no assistant turn"),
    "weight of nothing": (turns(ASKED, {**SAID, "weight": 0}), "no assistant turn"),
    "not to be trained": (turns(ASKED, {**SAID, "train": False}), "no assistant turn"),
    "loss switched off": (turns(ASKED, {**SAID, "loss": False}), "no assistant turn"),
    "half a weight": (turns(ASKED, {**SAID, "weight": 0.5}), "`weight` of turn 2 is 0.5"),
    "weight in words": (turns(ASKED, {**SAID, "weight": "all"}), "`weight` of turn 2 is 'all'"),
    "negative weight": (turns(ASKED, {**SAID, "weight": -1}), "`weight` of turn 2 is -1"),
    # tool calls
    "calls are no list": (turns(ASKED, {**SAID, "tool_calls": "f"}), "`tool_calls` of turn 2"),
    "a user's call": (turns({**ASKED, "tool_calls": [{"name": "f"}]}, SAID), "`tool_calls`"),
    "call without a name": (call(arguments={}), "has no function name"),
    "call of a number": (call(name=3), "has no function name"),
    "function is text": (call(function="f"), "has no function name"),
    "arguments in words": (call(name="f", arguments="now"), "text, and not JSON"),
    "arguments cut short": (call(name="f", arguments='{"a": '), "text, and not JSON"),
    "arguments are a list": (call(name="f", arguments=[1]), "is not an object"),
    "arguments are a number": (call(name="f", arguments="7"), "is not an object"),
    "tools in words": ({**GOOD, "tools": "search"}, "`tools` is text, and not JSON"),
    "tools are numbers": ({**GOOD, "tools": [1]}, "`tools` is not a list of functions"),
    "tools are an object": ({**GOOD, "tools": {"f": {}}}, "`tools` is not a list of functions"),
    "half a character in tools": ({**GOOD, "tools": [{"n": "\ud800"}]}, "half a character"),
    "reasoning is a list": (turns(ASKED, {**SAID, "reasoning_content": []}), "is not text"),
    "system is a number": ({**GOOD, "system": 5}, "`system` is not text"),
    "function call in words": (
        {
            "conversations": [
                {"from": "human", "value": "q"},
                {"from": "function_call", "value": "f"},
            ]
        },
        "text, and not JSON",
    ),
    "null in ShareGPT": ({"conversations": [{"from": "gpt", "value": None}]}, "is not text"),
    "unknown in ShareGPT": ({"conversations": [{"from": "me", "value": "x"}]}, "unknown role 'me'"),
    "empty in ShareGPT": (
        {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": ""}]},
        "is empty",
    ),
}
"""Name → a row beside rows of the format `messages`, and words of why it is not used."""

BAD_ALPACA: Mapping[str, tuple[Any, str]] = {
    "no output": ({"instruction": "q"}, "keys are instruction"),
    "output is null": ({"instruction": "q", "output": None}, "`output` is not text"),
    "output is empty": ({"instruction": "q", "output": ""}, "`output` is empty"),
    "output is blank": ({"instruction": "q", "output": "  "}, "`output` is empty"),
    "output is a number": ({"instruction": "q", "output": 4}, "`output` is not text"),
    "output is a list": ({"instruction": "q", "output": ["a"]}, "`output` is not text"),
    "instruction is null": ({"instruction": None, "output": "a"}, "`instruction` is not text"),
    "nothing is asked": ({"instruction": "", "input": "", "output": "a"}, "is empty"),
    "input is a number": ({**ALPACA, "input": 5}, "`input` is not text"),
    "system is a list": ({**ALPACA, "system": ["s"]}, "`system` is not text"),
    "history is a number": ({**ALPACA, "history": 5}, "`history` is not a list"),
    "history of one": ({**ALPACA, "history": [["q"]]}, "`history` is not a list"),
    "history of three": ({**ALPACA, "history": [["q", "a", "b"]]}, "`history` is not a list"),
    "history of numbers": ({**ALPACA, "history": [["q", 1]]}, "`history` is not text"),
    "history of texts": ({**ALPACA, "history": ["qa"]}, "`history` is not a list"),
    "history with nothing": ({**ALPACA, "history": [["q", ""]]}, "`history` is empty"),
    "history in words": ({**ALPACA, "history": "none"}, "text, and not JSON"),
    "half a character": ({**ALPACA, "output": "\ud83d"}, "half a character"),
    "messages": (GOOD, "not in the format `alpaca`"),
}
"""The same beside rows of the format `alpaca`."""

BAD_PAIRS: Mapping[str, tuple[Any, str]] = {
    "no answer": ({"prompt": "q"}, "keys are prompt"),
    "answer is null": ({"prompt": "q", "completion": None}, "`completion` is not text"),
    "answer is empty": ({"prompt": "q", "completion": ""}, "`completion` is empty"),
    "question is a number": ({"prompt": 1, "completion": "a"}, "`prompt` is not text"),
    "only one is a list": ({"prompt": [ASKED], "completion": "a"}, "the other is not"),
    "no answer in the list": ({"prompt": [ASKED], "completion": [ASKED]}, "no assistant turn"),
    "empty lists": ({"prompt": [], "completion": []}, "not a list of turns"),
    "wrong turn in a list": ({"prompt": [5], "completion": [SAID]}, "turn 1 is not an object"),
}
"""The same beside rows of the format `prompt_completion`."""

ODD: Mapping[str, Any] = {
    "more keys": {**GOOD, "id": 7, "source": None},
    "keys in a turn": turns({**ASKED, "id": 1, "time": None}, SAID),
    "empty system": turns({"role": "system", "content": ""}, ASKED, SAID),
    "a developer": turns({"role": "developer", "content": "s"}, ASKED, SAID),
    "parts": turns({**ASKED, "content": [{"type": "text", "text": "q"}, "r"]}, SAID),
    "roles in capitals": turns({**ASKED, "role": "USER"}, {**SAID, "role": "Assistant"}),
    "ends with a question": turns(ASKED, SAID, ASKED),
    "answers twice": turns(ASKED, SAID, SAID),
    "begins with an answer": turns(SAID, ASKED, SAID),
    "weight of one": turns(ASKED, {**SAID, "weight": 1}),
    "weight as a bool": turns(ASKED, {**SAID, "weight": True}),
    "one answer off": turns(ASKED, {**SAID, "weight": 0}, ASKED, SAID),
    "NUL": turns(ASKED, {**SAID, "content": "a\x00b"}),
    "escapes": turns(ASKED, {**SAID, "content": "\x1b[31mred\x07"}),
    "line separators": turns(ASKED, {**SAID, "content": "a\u2028b\u0085c\x0bd\x0ce"}),
    "direction marks": turns(ASKED, {**SAID, "content": "\u202eabc\u202c"}),
    "markup": turns(ASKED, {**SAID, "content": "[/foo] [bold] $(x) `y`"}),
    "emoji": turns(ASKED, {**SAID, "content": "👩‍👩‍👧‍👦🎉"}),
    "noncharacters": turns(ASKED, {**SAID, "content": "\ufdd0\uffff"}),
    "template marks": turns(ASKED, {**SAID, "content": "<|im_end|><|im_start|>user"}),
    "Jinja": turns(ASKED, {**SAID, "content": "{{ 1/0 }} {% raw %} {# #}"}),
    "turns as JSON text": {
        "messages": '[{"role":"user","content":"q"},{"from":"gpt","value":"a"}]'
    },
    "system beside turns": {**GOOD, "system": "be brief"},
    "empty tools": {**GOOD, "tools": []},
    "tools as empty text": {**GOOD, "tools": ""},
    "ShareGPT": {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    "very long answer": turns(ASKED, {**SAID, "content": "word " * 20_000}),
    "many turns": turns(*[ASKED, SAID] * 200),
    "deep extra": {**GOOD, "extra": {"a": [{"b": [[[]]]}]}},
}
"""Name → a row that is used, whatever is odd about it."""
