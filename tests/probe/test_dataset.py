"""Data files: every format, every kind of damage, bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from engine.rows import jsontext
from wizard.facts import Dataset
from wizard.probe.dataset import absolute_data, read_dataset
from wizard.probe.lengths import TURN_TOKENS, most_tokens
from wizard.probe.remarks import Repeats
from wizard.problem import ProblemError

CHAT = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
SHAREGPT = {"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "hello"}]}
ALPACA = {"instruction": "hi", "input": "", "output": "hello"}
BOM = b"\xef\xbb\xbf"


def read(tmp_path: Path, content: bytes | str, name: str = "data.jsonl") -> Dataset:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_dataset(str(path))


def lines(*rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def refusal(tmp_path: Path, content: bytes | str) -> str:
    with pytest.raises(ProblemError) as caught:
        read(tmp_path, content)
    assert caught.value.problem.exit_code == 4
    return str(caught.value)


@pytest.mark.parametrize(
    ("row", "expected"), [(CHAT, "messages"), (SHAREGPT, "messages"), (ALPACA, "alpaca")]
)
def test_the_first_row_decides_the_format(
    tmp_path: Path, row: dict[str, Any], expected: str
) -> None:
    found = read(tmp_path, lines(row, row))
    assert (found.format, found.rows, found.longest_row_chars) == (expected, 2, 7)


def test_a_json_array_over_many_lines_is_read_like_json_lines(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps([CHAT, CHAT, CHAT], indent=2), "data.json")
    assert (found.rows, found.total_chars) == (3, 21)


@pytest.mark.parametrize(
    "content",
    [
        BOM + lines(CHAT, CHAT).encode(),
        lines(CHAT, CHAT).replace("\n", "\r\n").encode(),
        b"\n\n" + lines(CHAT).encode() + b"   \n\n" + lines(CHAT).encode() + b"\n",
        BOM + json.dumps([CHAT, CHAT]).encode(),
        lines(CHAT, CHAT).rstrip("\n").encode(),
    ],
    ids=["bom", "crlf", "blank lines", "bom before an array", "no newline at the end"],
)
def test_harmless_differences_do_not_matter(tmp_path: Path, content: bytes) -> None:
    found = read(tmp_path, content)
    assert (found.rows, found.dropped_rows) == (2, 0)


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        ('{"messages": [', "broken JSON"),
        ("3", "not a JSON object"),
        (json.dumps(ALPACA), "not in the format `messages`"),
        (lines({"messages": []}), "not a list of turns"),
        (lines({"messages": [{"role": "user", "content": "hi"}]}), "no assistant turn"),
        (lines({"messages": [{"role": "robot", "content": "hi"}]}), "unknown role 'robot'"),
        (lines({"messages": [{"role": "assistant", "content": 3}]}), "is not text"),
        ('{"messages": [{"role": "assistant", "content": "\\ud800"}]}', "half a character"),
    ],
)
def test_a_bad_row_is_dropped_and_told_with_its_line(tmp_path: Path, bad: str, what: str) -> None:
    found = read(tmp_path, lines(CHAT) + "\n" + bad.strip() + "\n" + lines(CHAT))
    assert (found.rows, found.dropped_rows) == (2, 1)
    (problem,) = found.problems
    assert problem.where == "line 3"
    assert what in problem.what


def test_a_line_that_is_not_utf_8_is_a_bad_row(tmp_path: Path) -> None:
    found = read(tmp_path, lines(CHAT).encode() + b'{"messages": "\xff"}\n')
    assert (found.rows, found.problems[0].where) == (1, "line 2")


def test_at_most_twenty_problems_and_five_rows_are_kept(tmp_path: Path) -> None:
    found = read(tmp_path, lines(*[CHAT] * 9) + "bad\n" * 50)
    assert (found.dropped_rows, len(found.problems), len(found.first_rows)) == (50, 20, 5)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "the file has no rows"),
        (b"[]", "the file has no rows"),
        (b"nothing\nhere\n", "none of its 2 rows can be used"),
        (b'{"prompt": "a"}\n', "its keys are prompt"),
        (b"\x1f\x8b\x08\x00", "not a whole compressed file"),
        (b"PAR1", "Parquet"),
        ("hello".encode("utf-16"), "UTF-16"),
        (b'[{"instruction": "a", "output": "b"}', "the list ends without"),
        (b'[{"instruction": "a", "output": "b"} {}]', "not separated by commas"),
        (b'[\n{"instruction": "a", "output": "b"},\n{"instruction": }]', "line 3"),
        (b'[\n"\xff"]', "not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(
    tmp_path: Path, content: bytes, what: str
) -> None:
    assert what in refusal(tmp_path, content)


def test_a_missing_file_names_the_nearest_one(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(lines(CHAT))
    with pytest.raises(ProblemError, match=r"no such file.*did you mean .*train\.jsonl"):
        read_dataset(str(tmp_path / "trian.jsonl"))


def test_a_folder_names_the_file_inside(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(lines(CHAT))
    with pytest.raises(ProblemError, match=r"a folder.*train\.jsonl"):
        read_dataset(str(tmp_path))


def test_rows_that_cross_the_edges_of_a_chunk_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsontext, "CHUNK_BYTES", 7)
    rows = [{"instruction": "é" * n, "output": "ü"} for n in range(1, 41)]
    found = read(tmp_path, json.dumps(rows, ensure_ascii=False, indent=1), "data.json")
    assert (found.rows, found.longest_row_chars) == (40, 41)


@pytest.mark.wide
def test_a_large_file_is_read_in_little_memory(tmp_path: Path) -> None:
    row = json.dumps({"instruction": "a" * 1000, "output": "b" * 1000})
    path = tmp_path / "large.json"
    path.write_text("[" + ",\n".join([row] * 10_000) + "]")
    tracemalloc.start()
    found = read_dataset(str(path))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.rows == 10_000
    assert peak_bytes < path.stat().st_size / 2


@pytest.mark.parametrize("history", [5, True, {"a": "b"}, "ab", [3], [["a"]], [["a", 3]]])
def test_a_history_of_another_kind_is_a_bad_row(tmp_path: Path, history: object) -> None:
    found = read(tmp_path, lines(ALPACA, {**ALPACA, "history": history}, ALPACA))
    assert (found.rows, found.dropped_rows) == (2, 1)
    assert "`history`" in found.problems[0].what


def test_rows_deeper_than_python_reads_are_told_with_their_line(tmp_path: Path) -> None:
    found = read(tmp_path, lines(CHAT) + "[" * 200_000 + "\n")
    assert (found.rows, found.problems[0].where) == (1, "line 2")
    assert "nested too deeply" in refusal(tmp_path, "[" * 200_000)


@pytest.mark.parametrize("name", ["x" * 300, "d/" * 3000, "~nosuchuser/rows.jsonl", "a\0b"])
def test_a_name_that_no_file_has_is_refused(name: str) -> None:
    with pytest.raises(ProblemError) as caught:
        read_dataset(name)
    assert caught.value.problem.exit_code == 4


@pytest.mark.parametrize("text", ["数字", "12345", "😀", "é" * 9, "a1" * 30, "{}[]()"])
def test_what_may_take_a_token_for_each_byte_counts_as_that(text: str) -> None:
    content = text.encode()
    letters = sum(chr(byte).isalpha() and byte < 128 for byte in content)
    solid = letters and len(content) >= 40
    assert most_tokens(content) == len(content) - (0 if solid else letters - -(-letters // 2))


def test_prose_counts_half_a_token_for_a_letter_and_never_more_than_its_bytes() -> None:
    text = b"The quick brown fox jumps over the lazy dog"
    assert most_tokens(text) == -(-len(text) // 2)
    assert most_tokens(b"") == 0


def test_the_row_with_most_tokens_need_not_be_the_one_with_most_characters(tmp_path: Path) -> None:
    def row(*texts: str) -> dict[str, Any]:
        return {"messages": [{"role": "assistant", "content": text} for text in texts]}

    talk = ["ok"] * 50
    found = read(tmp_path, lines(row("a" * 20 + " " + "b" * 200), row("数" * 90), row(*talk)))
    assert found.longest_row_chars == 221
    assert found.longest_row_bytes == 270
    assert found.most_turns == 50
    assert found.longest_row_tokens == 50 * TURN_TOKENS + most_tokens("\n".join(talk).encode())


@pytest.mark.wide
def test_no_hub_is_asked_for_a_data_set_unless_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProblemError, match="write hf:org/some-rows or --hub"):
        absolute_data("org/some-rows#500")
    with pytest.raises(ProblemError, match="write hf:org/name, hf:org/name:split"):
        absolute_data("hf:some-rows")
    with pytest.raises(ProblemError, match="HF_HUB_OFFLINE forbids asking"):  # the tests' own
        absolute_data("org/some-rows", hub=True)
    (tmp_path / "org").mkdir()
    assert absolute_data("org/some-rows*2") == f"{tmp_path}/org/some-rows*2"


def test_rows_that_are_repeated_are_counted_and_kept(tmp_path: Path) -> None:
    other = {"messages": [{"role": "assistant", "content": "another"}]}
    found = read(tmp_path, lines(CHAT, other, CHAT, CHAT))
    (told,) = found.warnings
    assert told.what.startswith("2 rows of 4 say word for word")
    assert found.rows == 4
    assert read(tmp_path, lines(CHAT, other)).warnings == ()
    few = Repeats(most=2)
    for content in (b"a", b"a", b"b", b"a", b"c"):
        few.add(content)
    (told,) = few.warnings("rows.jsonl")
    assert told.what.startswith("1 row of the first 3 say"), "memory is bounded"


def test_lines_of_a_wrapped_text_are_told_to_be_rows(tmp_path: Path) -> None:
    paragraph = [f"This is line {n} of a paragraph that somebody wrapped" for n in range(4)]
    book = [[f"{line} in part {part}." for line in paragraph] for part in range(5)]
    path = tmp_path / "book.txt"
    path.write_text("\n\n".join("\n".join(part) for part in book))
    (told,) = read_dataset(str(path)).warnings
    assert told.what.startswith("each of the 20 lines is a row of its own, and they look like 5")
    path.write_text("\n\n".join(" ".join(part) for part in book))
    assert read_dataset(str(path)).warnings == ()
    path.write_text("\n".join(line for part in book for line in part))
    assert read_dataset(str(path)).warnings == (), "a text a line, as texts for training are"


def test_a_set_that_gives_no_row_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(lines(CHAT, CHAT))
    with pytest.raises(ProblemError, match=r"rows\.jsonl\*0\.1: gives no row"):
        read_dataset(f"{path},{path}*0.1")
