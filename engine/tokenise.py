"""Chunks of a data file → batches of tokens, in order, over several processes.

Memory does not grow with the file: a few chunks are in flight, lengths are counted and not kept,
and the first bad rows are named while the others are counted.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import chain
from multiprocessing import get_context
from threading import Thread
from typing import Any, Protocol

from engine.data import Tokens
from engine.failure import RunError
from engine.methods import Stage, wrong_stage
from engine.plugins import Preprocessor
from engine.rows import formats
from engine.rows.formats import Readable, RowFormat
from engine.rows.sources import Reading
from engine.rows.turns import system_before
from engine.rows.values import Chunk, Conversation, RowError

NAMED_ROWS = 100
"""Bad rows that are named; further ones are counted."""
BYTES_PER_PROCESS = 4 * 1024**2
"""Of data, below which another process is not worth its start."""
PARENT_SECONDS = 1.0
"""How often a process looks whether its parent lives."""
MOST_PROCESSES = 8
"""Each holds some 150 MB; with these a file of any size is prepared in less than 2 GB."""
AHEAD = 3
"""Chunks in flight for each process: one worked on, one waiting, one being written."""


class Example(Protocol):
    """One row as the trainer sees it."""

    @property
    def length(self) -> int:
        """Tokens of the whole row."""
        ...

    @property
    def kept(self) -> int:
        """Tokens of what is left of it."""
        ...

    @property
    def total(self) -> int:
        """Tokens that pass through the model."""
        ...

    @property
    def trained(self) -> int:
        """Tokens that carry a loss."""
        ...


class Maker(Protocol):
    """Makes examples of rows."""

    columns: Sequence[str]
    """Attributes of an example that are written, each a list of integers."""

    def tokens(self, row: Any) -> Example:
        """The example, or a RowError with the reason why there is none."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """What is done with each row of a set."""

    maker: Maker
    reading: Reading
    system: str | None
    expected: RowFormat | None = None
    """The only format that is read; None takes that of a set's first row."""
    stage: Stage = "sft"
    reads: type = Conversation
    """What a row must hold for the stage."""
    preprocessor: Preprocessor | None = None
    """The user's own function, which makes a row of each row of the file first."""

    def rows(self, chunk: Chunk) -> Iterator[tuple[int, Any]]:
        """The rows of a chunk with their lines; None is one that the user's function leaves out."""
        for line, row in chunk.rows():
            if self.preprocessor is None or isinstance(row, RowError):
                yield line, row
            else:
                yield line, self.preprocessor(row, line)


@dataclass(kw_only=True, slots=True)
class Counts:
    """What became of rows."""

    rows: int = 0
    kept: int = 0
    dropped: list[tuple[int, str]] = field(default_factory=list)
    """(line, reason) of the first bad rows."""
    dropped_rows: int = 0
    cut_rows: int = 0
    lengths: Counter[int] = field(default_factory=Counter)
    """Tokens of a whole row → rows."""
    total_tokens: int = 0
    trained_tokens: int = 0
    unfilled_rows: int = 0
    """Rows with a placeholder that nothing was given for."""
    skipped_answers: int = 0
    """Answers without a loss, because the template takes their reasoning away."""
    renamed_rows: int = 0
    """Rows with the columns that the setting `columns` names."""
    left_out_rows: int = 0
    """Rows that the user's preprocessor left out; they are not among `rows`."""

    def drop(self, line: int, reason: str) -> None:
        """Count a row that is not used."""
        self.rows += 1
        self.dropped_rows += 1
        if len(self.dropped) < NAMED_ROWS:
            self.dropped.append((line, reason))

    def keep(self, example: Example) -> None:
        """Count a row that is used."""
        self.rows += 1
        self.kept += 1
        self.cut_rows += example.kept < example.length
        self.lengths[example.length] += 1
        self.total_tokens += example.total
        self.trained_tokens += example.trained
        if isinstance(example, Tokens):
            self.skipped_answers += example.skipped

    def add(self, other: Counts) -> None:
        """Count the rows of another part."""
        for name in ("rows", "kept", "dropped_rows", "cut_rows", "total_tokens", "trained_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.left_out_rows += other.left_out_rows
        self.unfilled_rows += other.unfilled_rows
        self.renamed_rows += other.renamed_rows
        self.skipped_answers += other.skipped_answers
        self.lengths.update(other.lengths)
        self.dropped += other.dropped[: NAMED_ROWS - len(self.dropped)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Some rows of a set, done."""

    counts: Counts
    content: bytes
    """An Arrow record batch of the examples."""
    format: str | None
    """Name of the format its rows were read in; None while no row has had one."""


def batches(
    chunks: Iterable[Chunk], work: Work, expected: RowFormat | None, processes: int
) -> Iterator[Batch]:
    """The chunks of one set as batches, in their order.

    Without an expected format the first row that has one decides for all.
    Raises what reading the file raises, after the batches before it; RunError (host_oom) when a
    process is killed.
    """
    named = _with_format(chunks, work, expected)
    if processes == 1:
        for chunk, row_format in named:
            yield make_batch(chunk, row_format, work)
        return
    context = get_context("fork" if sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_start, initargs=(work, os.getpid())
    ) as pool:
        pool.submit(int)  # all are forked now: readers of tables start threads, which cannot be
        waiting: deque[Future[Batch]] = deque()
        try:
            for chunk, row_format in named:
                waiting.append(pool.submit(_in_child, chunk, row_format))
                if len(waiting) >= AHEAD * processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise RunError("host_oom", "a process that prepares data was killed") from None
        finally:
            for future in waiting:
                future.cancel()


_work: Work | None = None


def _start(work: Work, parent: int) -> None:
    global _work
    _work = work
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """A parent that was killed leaves nobody to send work, or to end this process."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def _in_child(chunk: Chunk, row_format: RowFormat | None) -> Batch:
    assert _work is not None
    return make_batch(chunk, row_format, _work)


def _with_format(
    chunks: Iterable[Chunk], work: Work, expected: RowFormat | None
) -> Iterator[tuple[Chunk, RowFormat | None]]:
    for chunk in chunks:
        expected = expected or first_format(chunk, work.reading, work.preprocessor)
        yield chunk, expected


def first_format(
    chunk: Chunk, reading: Reading, preprocessor: Preprocessor | None = None
) -> RowFormat | None:
    """The format of the first row that has one."""
    for line, row in chunk.rows():
        try:
            made = row if preprocessor is None else preprocessor(row, line)
            return formats.format_of(reading.row(made))
        except RowError:
            continue
    return None


def make_batch(chunk: Chunk, row_format: RowFormat | None, work: Work) -> Batch:
    """The rows of a chunk as examples."""
    counts, kept = Counts(), []
    for line, row in work.rows(chunk):
        if row is None and work.preprocessor is not None:
            counts.left_out_rows += 1
            continue
        try:
            content = read(row, row_format, work)
            example = work.maker.tokens(content)
        except RowError as reason:
            counts.drop(line, str(reason))
            continue
        counts.keep(example)
        counts.unfilled_rows += has_placeholder(content)
        counts.renamed_rows += work.reading.applies(row)
        kept.append(example)
    return Batch(
        counts=counts,
        content=_arrow(kept, work.maker.columns),
        format=row_format.name if row_format else None,
    )


def read(row: Any, row_format: RowFormat | None, work: Work) -> Readable:
    """What a row holds, with the system text if it lacks one.

    Raises RowError with the reason when the row cannot be used.
    """
    if isinstance(row, RowError):
        raise row
    row = work.reading.row(row)
    known = row_format or formats.format_of(row)
    content: Readable = system_before(formats.read(row, known), work.system)
    if not isinstance(content, work.reads):
        raise RowError(wrong_stage(known.name, work.stage))
    return content


def has_placeholder(content: Readable) -> bool:
    """Whether a row still has `{{NAME}}` or `{{AUTHOR}}` in it."""
    return any("{{NAME}}" in text or "{{AUTHOR}}" in text for text in content.texts())


def schema(columns: Sequence[str]) -> Any:
    """The Arrow schema of examples with these columns."""
    import pyarrow as pa

    return pa.schema({name: pa.list_(pa.int32()) for name in columns})


def _arrow(examples: Sequence[Example], columns: Sequence[str]) -> bytes:
    """An Arrow record batch: whole columns are flattened, which is much faster than row by row."""
    import numpy as np
    import pyarrow as pa

    arrays = []
    for name in columns:
        values = [getattr(example, name) for example in examples]
        offsets = np.zeros(len(values) + 1, dtype=np.int32)
        np.cumsum([len(value) for value in values], out=offsets[1:])
        flat = np.fromiter(chain.from_iterable(values), dtype=np.int32, count=int(offsets[-1]))
        arrays.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat)))
    batch = pa.record_batch(arrays, schema=schema(columns))
    return bytes(batch.serialize().to_pybytes())


def processes_for(size_bytes: int) -> int:
    """Processes worth starting for that much data: as many as there are cores, none for little."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cores or 1, MOST_PROCESSES, size_bytes // BYTES_PER_PROCESS))
