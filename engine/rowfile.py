"""Prepared rows on disk: an Arrow stream, written batch by batch and never changed afterwards."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self


class RowFile:
    """A file that is being written."""

    def __init__(self, path: Path, schema: Any) -> None:
        import pyarrow as pa

        self._schema = schema
        self._file = pa.OSFile(str(path), "wb")
        self._stream = pa.ipc.new_stream(self._file, schema)

    def write(self, content: bytes) -> None:
        """Add a serialized record batch."""
        import pyarrow as pa

        batch = pa.ipc.read_record_batch(pa.py_buffer(content), self._schema)
        if batch.num_rows:
            self._stream.write_batch(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()
        self._file.close()


def keep_only(path: Path, taken: Sequence[int]) -> None:
    """Write the file anew with the rows at these positions, which are in order."""
    import pyarrow as pa

    whole = path.with_name("usable.arrow")
    os.replace(path, whole)
    with (
        pa.memory_map(str(whole)) as source,
        pa.ipc.open_stream(source) as stream,
        pa.OSFile(str(path), "wb") as file,
        pa.ipc.new_stream(file, stream.schema) as out,
    ):
        for batch, positions in _positions(stream, taken):
            out.write_batch(batch.take(pa.array(positions, pa.int64())))
    whole.unlink()


def _positions(stream: Any, taken: Sequence[int]) -> Iterator[tuple[Any, list[int]]]:
    first = 0
    for batch in stream:
        after = first + batch.num_rows
        inside = taken[bisect_left(taken, first) : bisect_left(taken, after)]
        if inside:
            yield batch, [place - first for place in inside]
        first = after
