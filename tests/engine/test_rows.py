"""Rows become messages, or one reason why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.rows.files import rows as read_rows
from engine.rows.formats import format_of, read
from engine.rows.turns import with_system
from engine.rows.values import Conversation, DataError, RowError
from engine.settings import parse_setting
from engine.spec import SpecError

ANSWERED = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]}


def conversation(row: Any) -> Conversation:
    found = read(row, format_of(row))
    assert isinstance(found, Conversation)
    return found


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b'{"n": 1}\n{"n": 2}\n',
        b'\xef\xbb\xbf{"n": 1}\r\n\r\n{"n": 2}',
        b'[{"n": 1},\n {"n": 2}]',
        b'\xef\xbb\xbf\n [ {"n": 1} , {"n": 2} ]\n',
    ],
)
def test_json_lines_and_arrays_give_the_same_rows(tmp_path: Path, content: bytes) -> None:
    rows = [row for _, row in read_rows(write(tmp_path / "d", content))]

    assert rows == [{"n": 1}, {"n": 2}]


def test_rows_know_their_line_in_lines_and_in_arrays(tmp_path: Path) -> None:
    lines = list(read_rows(write(tmp_path / "a", b'{"n": 1}\n\n{"n": 2}\n')))
    array = list(read_rows(write(tmp_path / "b", b'[\n{"n": 1},\n\n{"n":\n 2}\n]')))

    assert [line for line, _ in lines] == [1, 3]
    assert [line for line, _ in array] == [2, 4]


def test_a_broken_line_is_one_bad_row(tmp_path: Path) -> None:
    rows = dict(read_rows(write(tmp_path / "d", b'{"n": 1}\n{"n": \n{"n": "\xff"}\n{"n": 4}')))

    assert rows[1] == {"n": 1}
    assert "broken JSON" in str(rows[2])
    assert str(rows[3]) == "not UTF-8"
    assert rows[4] == {"n": 4}


def test_a_line_separator_inside_a_string_ends_no_row(tmp_path: Path) -> None:
    content = '{"n": "a\u2028b\x85c"}\n'.encode()

    assert [row["n"] for _, row in read_rows(write(tmp_path / "d", content))] == ["a\u2028b\x85c"]


@pytest.mark.parametrize("content", [b'[{"n": 1},\n{"n": }]', b'[{"n": 1}\n', b'[{"n": 1}\n{}]'])
def test_a_broken_array_names_the_line(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(DataError, match="broken JSON") as caught:
        list(read_rows(write(tmp_path / "d", content)))

    assert caught.value.line in (2, 3)


def test_a_file_in_utf_16_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="UTF-16"):
        list(read_rows(write(tmp_path / "d", json.dumps([ANSWERED]).encode("utf-16"))))


DEEP = b'{"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


def test_a_row_nested_too_deeply_is_one_bad_row_and_names_its_line(tmp_path: Path) -> None:
    rows = dict(read_rows(write(tmp_path / "d", b'{"n": 1}\n' + DEEP + b'\n{"n": 3}')))

    assert "nested too deeply" in str(rows[2])
    assert rows[3] == {"n": 3}
    with pytest.raises(DataError, match="broken JSON: nested too deeply") as caught:
        list(read_rows(write(tmp_path / "a", b'[{"n": 1},\n' + DEEP + b"]")))
    assert caught.value.line == 2


def test_a_number_of_thousands_of_digits_is_broken_json(tmp_path: Path) -> None:
    huge = b'{"n": ' + b"9" * 5000 + b"}"

    assert "broken JSON" in str(dict(read_rows(write(tmp_path / "d", huge)))[1])
    with pytest.raises(DataError, match="broken JSON") as caught:
        list(read_rows(write(tmp_path / "a", b"[\n" + huge + b"]")))
    assert caught.value.line == 2


@pytest.mark.parametrize("history", [5, True, "ab", {"q": "a"}, ["qa"], [["q"]], [["q", 1]]])
def test_a_history_of_another_form_is_a_reason(history: Any) -> None:
    row = {"instruction": "q", "output": "a", "history": history}

    with pytest.raises(RowError, match="`history` is"):
        conversation(row)


def test_the_format_is_told_by_the_keys() -> None:
    assert format_of(ANSWERED).name == "messages"
    assert format_of({"conversations": []}).name == "messages"
    assert format_of({"instruction": "", "output": ""}).name == "alpaca"
    with pytest.raises(RowError, match="its keys are colour"):
        format_of({"colour": ""})


def test_sharegpt_names_mean_the_same_turns() -> None:
    row = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}

    assert conversation(row) == conversation(ANSWERED)


def test_alpaca_joins_instruction_and_input_after_system_and_history() -> None:
    row = {
        "instruction": "Translate",
        "input": "Hund",
        "output": "dog",
        "system": "Be brief",
        "history": [["Katze", "cat"]],
    }

    said = conversation(row)

    assert [(m["role"], m["content"]) for m in said.messages] == [
        ("system", "Be brief"),
        ("user", "Katze"),
        ("assistant", "cat"),
        ("user", "Translate\nHund"),
        ("assistant", "dog"),
    ]
    assert said.learnt == {2, 4}


def test_the_system_text_goes_only_to_rows_without_one() -> None:
    own = {"messages": [{"role": "system", "content": "own"}, *ANSWERED["messages"]]}

    given = with_system(conversation(ANSWERED), "ours")
    assert given.messages[0]["content"] == "ours"
    assert given.learnt == {2}
    assert with_system(conversation(own), "ours").messages[0]["content"] == "own"


def test_a_turn_of_weight_zero_is_not_learnt() -> None:
    turns: list[dict[str, Any]] = [*ANSWERED["messages"], *ANSWERED["messages"]]
    turns[1] = {**turns[1], "weight": 0}

    assert conversation({"messages": turns}).learnt == {3}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "not a JSON object"),
        ({"messages": []}, "not a list of turns"),
        ({"messages": [{"role": "user", "content": "q"}]}, "no assistant turn"),
        ({"messages": [{"role": "boss", "content": "q"}]}, "unknown role 'boss'"),
        ({"messages": [{"role": "assistant", "content": None}]}, "is not text"),
        ({"messages": [{"role": "assistant", "content": "\ud800"}]}, "not valid Unicode"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "not text"),
    ],
)
def test_a_row_that_cannot_be_used_has_a_reason(row: Any, reason: str) -> None:
    with pytest.raises(RowError, match=reason):
        conversation(row)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("prompt", "write ours=theirs"),
        ("prompt=", "write ours=theirs"),
        ("prompt=a=b", "write ours=theirs"),
        ("prompt=a,", "write ours=theirs"),
        ("prompt=a,prompt=b", "names a column twice"),
        ("prompt=a,completion=a", "names a column twice"),
    ],
)
def test_a_map_of_columns_that_says_nothing_clear_is_refused(columns: str, reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        parse_setting("columns", columns)
    assert parse_setting("columns", "none") == ("columns", None)


CALL = {"type": "function", "function": {"name": "look", "arguments": {"at": 1}}}


@pytest.mark.parametrize(
    "turn",
    [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "tool_calls": [{"name": "look", "arguments": '{"at": 1}'}]},
        {"role": "assistant", "function_call": {"name": "look", "arguments": '{"at": 1}'}},
        {"from": "function_call", "value": '{"name": "look", "arguments": {"at": 1}}'},
        {"from": "tool_call", "value": '[{"name": "look", "arguments": {"at": 1}}]'},
    ],
)
def test_a_tool_call_by_any_of_its_names_is_the_same_turn(turn: dict[str, Any]) -> None:
    said = conversation({"messages": [{"role": "user", "content": "q"}, turn]})

    assert said.messages[1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert said.learnt == {1}


def test_tools_are_read_as_a_list_as_text_and_by_their_older_name() -> None:
    tools = [{"name": "look"}]
    rows = [
        {**ANSWERED, key: value}
        for key, value in (("tools", tools), ("tools", json.dumps(tools)), ("functions", tools))
    ]

    assert [conversation(row).tools for row in rows] == [tuple(tools)] * 3
