"""Groups of like length and packs hold every row once."""

from __future__ import annotations

from typing import Any

import pytest

from engine.batches import ByLength
from engine.packing import best_fit

pytestmark = pytest.mark.engine


def test_groups_of_like_length_hold_every_row_and_differ_between_epochs() -> None:
    sampler = ByLength([n % 13 + 1 for n in range(101)], 8, seed=3)
    first = list(sampler)
    assert list(sampler) == first  # a resumed run has the same order
    sampler.set_epoch(1)
    second = list(sampler)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(101))


def test_packs_of_a_large_file_are_made_in_parts_and_lose_no_token() -> None:
    import pyarrow as pa

    from engine import packing

    rows = [[n] * (1 + n % 7) for n in range(2500)]
    column = pa.array(rows, pa.list_(pa.int32()))
    table = pa.table({"input_ids": column, "labels": column})
    made = list(packing.packed(iter(_tables(table)), 16))
    packs = [pack for part in made for pack in part.column("input_ids").to_pylist()]
    found = [token for pack in packs for token in pack]
    assert sorted(found) == sorted(token for row in rows for token in row)
    for part in made:
        for ids, labels, sizes in zip(
            *(part.column(name).to_pylist() for name in ("input_ids", "labels", "seq_lengths")),
            strict=True,
        ):
            assert ids == labels
            assert sum(sizes) == len(ids) <= 16
            assert [len(set(ids[a : a + n])) for a, n in _places(sizes)] == [1] * len(sizes)


def _tables(table: Any) -> list[Any]:
    return [table.slice(start, 100) for start in range(0, len(table), 100)]


def _places(sizes: list[int]) -> list[tuple[int, int]]:
    starts = [sum(sizes[:n]) for n in range(len(sizes))]
    return list(zip(starts, sizes, strict=True))


def test_a_row_as_long_as_a_pack_has_one_alone() -> None:
    assert best_fit([5, 5, 5], 5) == [[0], [1], [2]]
    assert best_fit([], 5) == []
