"""Damage at random places of a data file is a reason or harmless, never an error of the program."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

from engine.rows import files
from engine.rows.values import DataError, RowError

ROWS = [
    {"messages": [{"role": "user", "content": f"q {n} é"}, {"role": "assistant", "content": "a"}]}
    for n in range(12)
]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
CSV = b"prompt,completion\n" + b'"q, 1","a\n2"\n' * 8
MAKERS: dict[str, Callable[[Path], object]] = {
    "d.jsonl": lambda path: path.write_bytes(LINES),
    "d.json": lambda path: path.write_text(json.dumps(ROWS, indent=1)),
    "d.csv": lambda path: path.write_bytes(CSV),
    "d.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES)),
    "d.parquet": lambda path: parquet.write_table(pa.Table.from_pylist(ROWS), path),
    "d.arrow": lambda path: feather.write_feather(
        pa.Table.from_pylist(ROWS), str(path), compression="uncompressed"
    ),
}


def check(error: DataError) -> None:
    assert error.what
    assert "\n" not in error.what
    assert error.fix


def read(path: Path) -> int | None:
    """Rows that are read, or None when the file is refused with a sentence."""
    try:
        found = list(files.rows(path))
    except DataError as error:
        check(error)
        return None
    lines = [line for line, _ in found]
    assert lines == sorted(lines)
    assert all(str(row) for _, row in found if isinstance(row, RowError))
    return len(found)


@pytest.mark.parametrize("name", MAKERS)
def test_damage_at_random_places_is_a_reason_or_harmless(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    MAKERS[name](path)
    whole = path.read_bytes()
    assert read(path) is not None
    chance = random.Random(name)
    for _ in range(25):
        damaged = bytearray(whole)
        place = chance.randrange(len(damaged))
        kind = chance.choice(("change", "cut", "add", "remove"))
        if kind == "change":
            damaged[place] = chance.randrange(256)
        elif kind == "cut":
            del damaged[place:]
        elif kind == "add":
            damaged[place:place] = chance.randbytes(chance.choice((1, 4, 40)))
        else:
            del damaged[place : place + chance.choice((1, 5, 100))]
        path.write_bytes(damaged)
        read(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".txt"])
@settings(max_examples=20, deadline=None)
@given(content=st.binary(max_size=200) | st.text(alphabet='[]{},:"\\ \n\ré1a', max_size=80))
def test_any_bytes_are_read_or_refused(
    suffix: str, content: bytes | str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    read(path)
