"""Whole files: good rows with a bad one among them, and files that are wrong as such."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.methods import Stage
from tests.fakes.data.rows import ALPACA, BAD, BAD_ALPACA, BAD_PAIRS, GOOD, ODD

PAIR = {"prompt": "q", "completion": "a"}
BOM = b"\xef\xbb\xbf"
LINE = json.dumps(GOOD).encode() + b"\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A file, and what is to be said of it."""

    name: str
    content: bytes
    kept: int | None = None
    """Rows that are used; None where the file as a whole is refused."""
    dropped: Mapping[int, str] = field(default_factory=dict)
    """Line → words of the reason."""
    refused: str = ""
    """Words of why the whole file is refused."""
    suffix: str = ".jsonl"
    stage: Stage = "sft"
    """What reads such rows."""


def cases() -> list[Case]:
    """All of them, each with another name."""
    found = [*_rows(), *_odd(), *_lines(), *_arrays(), *_csv(), *_text(), *_packed(), *_foreign()]
    assert len({case.name for case in found}) == len(found)
    return found


def by_kind() -> dict[str, list[Case]]:
    """The same, by how their names begin: one test for each file would take longer than reading."""
    kinds: dict[str, list[Case]] = {}
    for case in cases():
        kinds.setdefault(case.name.partition(":")[0], []).append(case)
    return kinds


def _json(row: Any) -> bytes:
    return json.dumps(row).encode()


def _rows() -> Iterator[Case]:
    """A bad row as line 2 of JSON Lines, and as the second of an array over several lines."""
    for kind, good, bad in (
        ("messages", GOOD, BAD),
        ("alpaca", ALPACA, BAD_ALPACA),
        ("pairs", PAIR, BAD_PAIRS),
    ):
        for name, (row, reason) in bad.items():
            lines = b"\n".join((_json(good), _json(row), _json(good)))
            array = b"[\n" + b",\n".join((_json(good), _json(row), _json(good))) + b"\n]"
            for container, content, line, suffix in (
                ("line", lines, 2, ".jsonl"),
                ("array", array, 3, ".json"),
            ):
                yield Case(
                    name=f"{kind}, {container}: {name}",
                    content=content,
                    kept=2,
                    dropped={line: reason},
                    suffix=suffix,
                )


def _odd() -> Iterator[Case]:
    for name, row in ODD.items():
        yield Case(name=f"odd: {name}", content=LINE + _json(row) + b"\n" + LINE, kept=3)


BROKEN: Mapping[str, tuple[bytes, str]] = {
    "cut short": (b'{"messages": [', "broken JSON"),
    "cut inside a text": (b'{"messages": [{"role": "us', "broken JSON"),
    "no JSON": (b"hello there", "broken JSON"),
    "single quotes": (b"{'messages': []}", "broken JSON"),
    "Python": (b"{'messages': None, 'x': True}", "broken JSON"),
    "trailing comma": (b'{"messages": [],}', "broken JSON"),
    "trailing comma in a list": (b'{"messages": [1,]}', "broken JSON"),
    "no colon": (b'{"messages" []}', "broken JSON"),
    "two values": (LINE.strip() + b" " + LINE.strip(), "broken JSON"),
    "comma at the end": (LINE.strip() + b",", "broken JSON"),
    "comment": (b"// a comment", "broken JSON"),
    "hash comment": (b"# a comment", "broken JSON"),
    "control character": (b'{"messages": "a\x01b"}', "broken JSON"),
    "tab in a text": (b'{"messages": "a\tb"}', "broken JSON"),
    "bad escape": (b'{"messages": "\\x41"}', "broken JSON"),
    "half an escape": (b'{"messages": "\\u12"}', "broken JSON"),
    "not UTF-8": (b'{"messages": "\xff"}', "not UTF-8"),
    "Latin-1": ('{"messages": "é"}'.encode("latin-1"), "not UTF-8"),
    "GBK": ('{"messages": "数字"}'.encode("gbk"), "not UTF-8"),
    "overlong UTF-8": (b'{"messages": "\xc0\xaf"}', "not UTF-8"),
    "a surrogate's bytes": (b'{"messages": "\xed\xa0\x80"}', "not UTF-8"),
    "cut inside a character": (b'{"messages": "\xe6\x95', "not UTF-8"),
    "NUL": (b"\x00\x00\x00", "broken JSON"),
    "NUL before": (b"\x00" + LINE.strip(), "broken JSON"),
    "BOM in the middle": (BOM + LINE.strip(), "broken JSON"),
    "nested too deeply": (b"[" * 100_000, "nested too deeply"),
    "deep objects": (b'{"a":' * 50_000, "nested too deeply"),
    "digits without end": (b'{"n": ' + b"9" * 5000 + b"}", "broken JSON"),
    "YAML": (b"messages:", "broken JSON"),
    "XML": (b"<messages/>", "broken JSON"),
    "CSV": (b"prompt,completion", "broken JSON"),
    "merge conflict": (b"<<<<<<< HEAD", "broken JSON"),
    "NaN for turns": (b'{"messages": NaN}', "not a list of turns"),
    "infinity for turns": (b'{"messages": Infinity}', "not a list of turns"),
    "the same key twice": (b'{"messages": [{"role":"user"}], "messages": []}', "not a list"),
}


def _lines() -> Iterator[Case]:
    for name, (line, reason) in BROKEN.items():
        yield Case(
            name=f"line: {name}",
            content=LINE + line + b"\n" + LINE,
            kept=2,
            dropped={2: reason},
        )
        if name not in ("BOM in the middle", "trailing comma"):
            yield Case(
                name=f"last line without its end: {name}",
                content=LINE + LINE + line,
                kept=2,
                dropped={3: reason},
            )
    good: dict[str, tuple[bytes, int]] = {
        "BOM": (BOM + LINE, 1),
        "CRLF": (LINE.replace(b"\n", b"\r\n") * 2, 2),
        "blank lines": (b"\n\n" + LINE + b"  \t \n" + LINE + b"\n\n", 2),
        "no end of line": (LINE.strip(), 1),
        "blanks around": (b"   " + LINE.strip() + b"   \n", 1),
        "BOM and CRLF": (BOM + LINE.replace(b"\n", b"\r\n"), 1),
        "one object over lines": (json.dumps(GOOD, indent=2).encode(), 1),
        "objects over lines": (
            json.dumps(GOOD, indent=2).encode() + b"\n" + json.dumps(GOOD, indent=1).encode(),
            2,
        ),
        "form feed between": (LINE + b"\x0c\n" + LINE, 2),
    }
    for name, (content, kept) in good.items():
        yield Case(name=f"lines: {name}", content=content, kept=kept)
    refused: dict[str, tuple[bytes, str]] = {
        "empty": (b"", "the file is empty"),
        "blank": (b"\n \n\t\n", "has no rows"),
        "only a BOM": (BOM, "has no rows"),
        "old Mac ends": (LINE.replace(b"\n", b"\r") * 2, "line 1: broken JSON"),
        "rows under a key": (_json({"data": [GOOD, GOOD]}), "holds a list under `data`"),
        "nothing usable": (b"a\nb\nc\n", "line 1: broken JSON"),
        "object over lines cut": (
            json.dumps(GOOD, indent=2).encode() + b'\n{\n"messages": oops\n}',
            "broken JSON",
        ),
    }
    for name, (content, reason) in refused.items():
        yield Case(name=f"lines refused: {name}", content=content, refused=reason)
    yield Case(
        name="lines of lists",
        content=b"[1]\n[2]\n" + LINE,
        kept=1,
        dropped={1: "not a JSON object", 2: "not a JSON object"},
    )


def _arrays() -> Iterator[Case]:
    row = LINE.strip()
    good: dict[str, tuple[bytes, int]] = {
        "on one line": (b"[" + row + b"," + row + b"]", 2),
        "over lines": (json.dumps([GOOD, GOOD], indent=4).encode(), 2),
        "BOM": (BOM + b"[" + row + b"]", 1),
        "blank lines before": (b"\n\n [" + row + b"]\n\n", 1),
        "CRLF": (json.dumps([GOOD], indent=2).replace("\n", "\r\n").encode(), 1),
    }
    for name, (content, kept) in good.items():
        yield Case(name=f"array: {name}", content=content, kept=kept, suffix=".json")
    refused: dict[str, tuple[bytes, str]] = {
        "empty": (b"[]", "has no rows"),
        "empty over lines": (b"[\n\n]\n", "has no rows"),
        "not closed": (b"[\n" + row + b"\n", "line 3: broken JSON: the list ends without `]`"),
        "only opened": (b"[", "broken JSON"),
        "no comma": (b"[\n" + row + b"\n" + row + b"]", "line 3: broken JSON: rows are not"),
        "two commas": (b"[\n" + row + b",\n,\n" + row + b"]", "line 3: broken JSON"),
        "comma at the end": (b"[\n" + row + b",\n]", "line 3: broken JSON"),
        "broken row": (b"[\n" + row + b",\n{oops}\n]", "line 3: broken JSON"),
        "cut short": (b"[\n" + row + b",\n" + row[:20], "line 3: broken JSON"),
        "not UTF-8": (b"[\n" + row + b',\n"\xff"]', "line 3: not UTF-8"),
        "nested too deeply": (b"[\n" + b"[" * 100_000, "nested too deeply"),
        "more behind": (b"[\n" + row + b"\n]\n" + row, "line 4: broken JSON: more text"),
        "two arrays": (b"[\n" + row + b"\n]\n[\n" + row + b"\n]", "line 4: broken JSON: more text"),
        "wrong bracket": (b"[\n" + row + b"\n}", "line 3: broken JSON: rows are not"),
        "comment": (b"[\n// rows\n" + row + b"]", "line 2: broken JSON"),
        "NUL": (b"[\n\x00" + row + b"]", "line 2: broken JSON"),
    }
    for name, (content, reason) in refused.items():
        yield Case(name=f"array refused: {name}", content=content, refused=reason, suffix=".json")


def _csv() -> Iterator[Case]:
    head = b"prompt,completion\n"
    good: dict[str, tuple[bytes, int, dict[int, str]]] = {
        "plain": (head + b"q,a\nr,b\n", 2, {}),
        "BOM": (BOM + head + b"q,a\n", 1, {}),
        "CRLF": (b"prompt,completion\r\nq,a\r\n", 1, {}),
        "semicolons": (b"prompt;completion\nq, really;a\n", 1, {}),
        "tabs": (b"prompt\tcompletion\nq\ta\n", 1, {}),
        "quoted lines": (head + b'"q\n1","a\n2"\nr,b\n', 2, {}),
        "quotes in quotes": (head + b'"say ""hi""",a\n', 1, {}),
        "blank lines": (head + b"\nq,a\n\n", 1, {}),
        "too few": (head + b"q\nr,b\n", 1, {2: "has 1 fields where the header has 2"}),
        "too many": (head + b"q,a,b\nr,b\n", 1, {2: "has 3 fields"}),
        "empty answer": (head + b"q,\nr,b\n", 1, {2: "`completion` is empty"}),
        "not UTF-8": (head + b"\xff,a\nr,b\n", 1, {2: "not UTF-8"}),
        "after lines in quotes": (head + b'"q\n\n1",a\nr\ns,b\n', 2, {5: "has 1 fields"}),
        "text behind a quote": (head + b'"q"x,a\nr,b\n', 1, {2: "broken CSV"}),
        "turns as JSON": (
            b"messages\n" + b'"' + LINE.strip()[13:-1].replace(b'"', b'""') + b'"\n',
            1,
            {},
        ),
        "turns as Python": (
            b"messages\n" + b'"' + LINE.strip()[13:-1].replace(b'"', b'""') + b"\"\n[{'role'}]\n",
            1,
            {3: "text, and not JSON"},
        ),
        "NUL": (head + b"a\x00,b\nr,b\n", 2, {}),
    }
    for name, (content, kept, dropped) in good.items():
        yield Case(name=f"csv: {name}", content=content, kept=kept, dropped=dropped, suffix=".csv")
    refused: dict[str, tuple[bytes, str]] = {
        "only a header": (head, "has no rows"),
        "blank first line": (b"\n" + head, "the first line is empty"),
        "other columns": (b"a,b\n1,2\n", "keys are a, b"),
        "column twice": (b"prompt,prompt\n1,2\n", "names `prompt` twice"),
        "column without a name": (b"prompt,,completion\n1,2,3\n", "has no name"),
        "quote never closed": (head + b'q,a\n"open,b\nr,c\n', "line 3: broken CSV: a quote"),
        "no header": (b"what is this?,it is that\nq,a\n", "line 2: no known format"),
    }
    for name, (content, reason) in refused.items():
        yield Case(name=f"csv refused: {name}", content=content, refused=reason, suffix=".csv")


def _text() -> Iterator[Case]:
    yield Case(
        name="text: each line is a document",
        content=b"one\n\ntwo\n",
        kept=2,
        suffix=".txt",
        stage="pretrain",
    )


def _packed() -> Iterator[Case]:
    packers: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
    }
    for kind, pack in packers.items():
        suffix = f".jsonl.{kind}"
        yield Case(name=f"{kind}: whole", content=pack(LINE * 3), kept=3, suffix=suffix)
        yield Case(
            name=f"{kind}: a bad row",
            content=pack(LINE + b"oops\n" + LINE),
            kept=2,
            dropped={2: "broken JSON"},
            suffix=suffix,
        )
        yield Case(
            name=f"{kind}: cut short",
            content=pack(LINE * 3)[:-9],
            refused="not a whole compressed file",
            suffix=suffix,
        )
        yield Case(name=f"{kind}: nothing", content=pack(b""), refused="no rows", suffix=suffix)
    yield Case(
        name="gz: a table",
        content=gzip.compress(b"prompt,completion\nq,a\n"),
        kept=1,
        suffix=".csv.gz",
    )


def _foreign() -> Iterator[Case]:
    for name, content, reason in (
        ("UTF-16", json.dumps(GOOD).encode("utf-16"), "UTF-16"),
        ("UTF-16 of the other order", b"\xfe\xff" + json.dumps(GOOD).encode("utf-16-be"), "UTF-16"),
        ("ZIP", b"PK\x03\x04" + b"\x00" * 40, "a ZIP archive, or a spreadsheet"),
        ("zstd", b"\x28\xb5\x2f\xfd" + b"\x00" * 40, "zstd"),
        ("PDF", b"%PDF-1.7\n", "a PDF document"),
        ("SQLite", b"SQLite format 3\x00" + b"\x00" * 40, "SQLite"),
        ("LFS pointer", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        ("Parquet cut short", b"PAR1" + b"\x00" * 40, "not a whole Parquet file"),
        ("Arrow cut short", b"ARROW1\x00\x00" + b"\x00" * 40, "not a whole Arrow file"),
        ("HTML", b"<!DOCTYPE html><html></html>", "broken JSON"),
    ):
        yield Case(name=f"foreign: {name}", content=content, refused=reason)
    yield Case(
        name="foreign: named Parquet", content=LINE, refused="not a whole", suffix=".parquet"
    )
