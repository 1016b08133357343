"""Packing: rows put together into packs of one length, each row kept apart from the others.

What keeps them apart is that positions begin anew with each row, from which the library makes a
mask: see `engine.rules.PACKED_ALIKE`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import Any

PACKED_AT_ONCE = 10_000
"""Rows among which those are found that fill a pack; more would fill it no better."""


def best_fit(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Positions of the rows of each pack: longest first, each into the fullest pack it fits in.

    Every row is in one pack, and no pack is longer than `limit` (a row that is has one alone).
    "Best-fit decreasing" of bin packing, at most 11/9 of the fewest packs: Johnson et al. 1974,
    https://doi.org/10.1137/0203025.
    """
    packs: list[list[int]] = []
    room: list[tuple[int, int]] = []
    """(tokens that still fit, pack), in order."""
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        place = bisect_left(room, (lengths[row], -1))
        if place == len(room):
            packs.append([row])
            left, pack = limit - lengths[row], len(packs) - 1
        else:
            left, pack = room.pop(place)
            packs[pack].append(row)
            left -= lengths[row]
        if left > 0:
            insort(room, (left, pack))
    return packs


def packed(batches: Iterator[Any], limit: int) -> Iterator[Any]:
    """Tables of rows as tables of packs: `input_ids` and `labels` joined, `seq_lengths` of each.

    Memory is that of `PACKED_AT_ONCE` rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for table in _of_size(batches, PACKED_AT_ONCE):
        lengths = pc.list_value_length(table.column("input_ids")).to_pylist()
        packs = best_fit(lengths, limit)
        order = pa.array([row for pack in packs for row in pack])
        sizes = [sum(lengths[row] for row in pack) for pack in packs]
        columns = {
            name: _cut(table.column(name).take(order), sizes)
            for name in table.column_names
            if name in ("input_ids", "labels")
        }
        each = [[lengths[row] for row in pack] for pack in packs]
        yield pa.table({**columns, "seq_lengths": pa.array(each, pa.list_(pa.int32()))})


def _of_size(batches: Iterator[Any], rows: int) -> Iterator[Any]:
    """The same rows in tables of `rows` or somewhat more; the last may be smaller."""
    import pyarrow as pa

    waiting: list[Any] = []
    for batch in batches:
        waiting.append(batch)
        if sum(len(table) for table in waiting) >= rows:
            yield pa.concat_tables(waiting)
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


def _cut(column: Any, sizes: Sequence[int]) -> Any:
    """A column of lists joined and cut anew into lists of these sizes."""
    import numpy as np
    import pyarrow as pa

    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), column.combine_chunks().flatten())
