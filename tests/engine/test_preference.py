"""Rows that prefer one answer: every usual shape of them, and what is wrong with the others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.data import ChatTokenizer
from engine.examples import JudgedMaker, JudgedTokens, PairMaker, PairTokens
from engine.rows import formats
from engine.rows.turns import system_before
from engine.rows.values import Judged, Pair, RowError
from tests.fakes.tiny import make

pytestmark = pytest.mark.engine

USER = {"role": "user", "content": "q"}
GOOD = {"role": "assistant", "content": "good"}
BAD = {"role": "assistant", "content": "bad"}
HEAD = "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def chat() -> ChatTokenizer:
    return ChatTokenizer(make.tokenizer(), make.TEMPLATE, 128)


def pair(row: Any, system: str | None, chat: ChatTokenizer) -> PairTokens:
    content = formats.read(row, formats.format_named("preference"))
    assert isinstance(content, Pair)
    return PairMaker(chat, whole=False).tokens(system_before(content, system))


def judged(row: Any, system: str | None, chat: ChatTokenizer) -> JudgedTokens:
    content = formats.read(row, formats.format_named("kto"))
    assert isinstance(content, Judged)
    return JudgedMaker(chat).tokens(system_before(content, system))


def text(chat: ChatTokenizer, ids: list[int]) -> str:
    return str(chat.tokenizer.decode(ids))


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {"prompt": [USER], "chosen": [GOOD], "rejected": [BAD]},
        {"prompt": [USER], "chosen": GOOD, "rejected": BAD},
        {"chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"prompt": "q", "chosen": [USER, GOOD], "rejected": [USER, BAD]},
        {"messages": [USER], "chosen": "good", "rejected": "bad"},
        {
            "conversations": [{"from": "human", "value": "q"}],
            "chosen": {"from": "gpt", "value": "good"},
            "rejected": {"from": "gpt", "value": "bad"},
        },
        {"instruction": "q", "input": "", "chosen": "good", "rejected": "bad"},
        {"messages": [USER, GOOD], "rejected_response": "bad"},
        {"prompt": json.dumps([USER]), "chosen": json.dumps(GOOD), "rejected": json.dumps([BAD])},
    ],
    ids=lambda row: json.dumps(sorted(row)),
)
def test_a_pair_in_any_usual_shape_has_the_same_tokens(
    chat: ChatTokenizer, row: dict[str, Any]
) -> None:
    found = pair(row, None, chat)

    assert text(chat, found.prompt_ids) == HEAD
    assert text(chat, found.chosen_ids) == "good<|im_end|>"
    assert text(chat, found.rejected_ids) == "bad<|im_end|>"
    assert found.total == 2 * len(found.prompt_ids) + found.trained
    assert found.length == found.kept == len(found.prompt_ids) + len(found.chosen_ids)


def test_a_system_text_is_put_before_both_answers(chat: ChatTokenizer) -> None:
    found = pair({"prompt": "q", "chosen": "good", "rejected": "bad"}, "Be brief.", chat)

    assert text(chat, found.prompt_ids) == f"<|im_start|>system\nBe brief.<|im_end|>\n{HEAD}"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (["q"], "not a JSON object"),
        ({"prompt": "q", "chosen": "good"}, "not in the format `preference`"),
        ({"prompt": "q", "chosen": "", "rejected": "bad"}, "`chosen` is empty"),
        ({"chosen": "good", "rejected": "bad"}, "no prompt"),
        ({"chosen": [USER, GOOD], "rejected": [BAD]}, "no prompt"),
        ({"prompt": "q", "chosen": "same", "rejected": "same"}, "the same answer"),
        ({"prompt": "q", "chosen": 5, "rejected": "bad"}, "neither text nor turns"),
        ({"prompt": 5, "chosen": "good", "rejected": "bad"}, "`prompt` is neither"),
        ({"prompt": "q", "chosen": [USER], "rejected": "bad"}, "not of the assistant"),
        ({"prompt": "q", "chosen": [GOOD, USER, GOOD], "rejected": "bad"}, "3 turns where one"),
        ({"prompt": "q" * 200, "chosen": "good", "rejected": "bad"}, "max_length"),
        ({"prompt": "q", "chosen": "x" * 200 + "a", "rejected": "x" * 200 + "b"}, "within 128"),
        ({"prompt": "q", "chosen": "\ud800", "rejected": "bad"}, "Unicode"),
        ({"messages": [], "rejected_response": "bad"}, "no turns before"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pair_that_cannot_be_used_says_why(chat: ChatTokenizer, row: Any, reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        pair(row, None, chat)


def test_an_answer_that_is_json_of_its_own_is_text(chat: ChatTokenizer) -> None:
    found = pair({"prompt": "q", "chosen": '{"a": 1}', "rejected": "[{"}, None, chat)

    assert text(chat, found.chosen_ids) == '{"a": 1}<|im_end|>'
    assert text(chat, found.rejected_ids) == "[{<|im_end|>"


def test_a_long_answer_is_cut_and_counted(chat: ChatTokenizer) -> None:
    found = pair({"prompt": "q", "chosen": "a" * 200, "rejected": "bad"}, None, chat)

    assert found.kept == 128
    assert found.length > 200
    assert text(chat, found.rejected_ids) == "bad<|im_end|>"


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion": "good", "label": True},
        {"prompt": [USER], "completion": [GOOD], "label": 1},
        {"messages": [USER, GOOD], "label": True},
        {"conversations": [USER, GOOD], "kto_tag": True},
        {"instruction": "q", "output": "good", "kto_tag": True},
    ],
    ids=lambda row: json.dumps(sorted(row)),
)
def test_a_judged_answer_in_any_usual_shape_has_the_same_tokens(
    chat: ChatTokenizer, row: dict[str, Any]
) -> None:
    found = judged(row, None, chat)

    assert text(chat, found.prompt_ids) == HEAD
    assert text(chat, found.completion_ids) == "good<|im_end|>"
    assert found.label == [1]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "q", "completion": "good"}, "not in the format `kto`"),
        ({"prompt": "q", "completion": "good", "label": "yes"}, "'yes', not true or false"),
        ({"prompt": "q", "completion": "good", "label": 0.5}, "'0.5', not true or false"),
        ({"prompt": "q", "completion": "good", "label": None}, "'None', not true or false"),
        ({"completion": "good", "label": True}, "`prompt` is missing"),
        ({"messages": [], "label": True}, "to judge"),
        ({"messages": [USER], "label": True}, "not of the assistant"),
        ({"prompt": "q", "completion": "", "label": True}, "`completion` is empty"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_judged_answer_that_cannot_be_used_says_why(
    chat: ChatTokenizer, row: Any, reason: str
) -> None:
    with pytest.raises(RowError, match=reason):
        judged(row, None, chat)
