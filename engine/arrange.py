"""Arrange: tokenised rows become those that are trained on and those that are evaluated on."""

from __future__ import annotations

import hashlib
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.arguments import SMOKE_STEPS
from engine.failure import RunError
from engine.packing import packed
from engine.spec import Spec

if TYPE_CHECKING:
    from datasets import Dataset

TRAINED_ON = "rows.arrow"
HELD_OUT = "eval.arrow"
ROWS_PER_BATCH = 1000


def arrange(spec: Spec, folder: Path) -> dict[str, float]:
    """Hold rows out, shuffle what needs it, pack what is plain text; how many rows are left.

    `rows.arrow` has all rows before, and those to train on after. Rows that share a prompt (for
    answers, all their tokens) go to the same side, so nothing that is evaluated is learnt.
    Raises RunError (bad_data) when nothing can be held out.
    """
    table = read(folder / TRAINED_ON)
    rest: Sequence[int] = range(len(table))  # no list: there may be many millions
    sides = {TRAINED_ON: rest}
    if spec.data.eval_split > 0:
        held = held_out(spec, table)
        rest = (~held).nonzero()[0]
        sides = {TRAINED_ON: rest, HELD_OUT: held.nonzero()[0]}
    if spec.method.stage == "kto":  # its trainer reads rows in their order
        order = random.Random(spec.training.seed).sample(range(len(rest)), len(rest))
        sides[TRAINED_ON] = [rest[place] for place in order]
    learnt_too = 0
    if (folder / HELD_OUT).exists():  # made of a file of its own
        apart = read(folder / HELD_OUT)
        trained_on = set(row_keys(spec, table))
        learnt_too = sum(key in trained_on for key in row_keys(spec, apart))
        _rewrite(spec, apart, range(len(apart)), folder / HELD_OUT)
    untouched = (
        HELD_OUT not in sides
        and spec.method.stage not in ("kto", "pretrain")
        and not spec.data.packing
    )
    if not untouched:
        for name, rows in sides.items():  # the mapped file stays readable until it is let go
            _rewrite(spec, table, rows, folder / name)
    found: dict[str, float] = {
        "examples": len(read(folder / TRAINED_ON)),
        "eval_examples": len(read(folder / HELD_OUT)) if (folder / HELD_OUT).exists() else 0,
        "eval_learnt_too": learnt_too,
    }
    if spec.data.packing:
        found["packed_rows"] = len(rest)
        sizes = lengths(read(folder / TRAINED_ON))
        found["filled_percent"] = round(100 * sum(sizes) / (spec.data.max_length * len(sizes)), 1)
    if spec.method.stage == "kto":
        found["good_examples"] = sum(read(folder / TRAINED_ON).column("label").to_pylist())
    if spec.method.stage == "pretrain":  # the first token of a block has none before it
        found["trained_tokens"] = sum(_predicted(folder / name) for name in sides)
    return found


def _predicted(path: Path) -> int:
    import pyarrow.compute as pc

    sizes = pc.list_value_length(read(path).column("input_ids"))
    return (pc.sum(sizes).as_py() or 0) - len(sizes)


def held_out(spec: Spec, table: Any) -> Any:
    """Which rows to evaluate on, as a mask: whole groups that belong together, up to the share.

    Numbers in arrays, not in lists: of a hundred million rows they take a few GB.
    Raises RunError (bad_data) when all rows belong together.
    """
    import numpy as np

    content = b"".join(row_keys(spec, table))
    keys, group_of, sizes = np.unique(
        np.frombuffer(content, np.uint64), return_inverse=True, return_counts=True
    )
    if len(sizes) < 2:
        alike = "have the same prompt" if _key_column(spec) == "prompt_ids" else "are the same"
        raise RunError(
            "bad_data",
            f"eval_split={spec.data.eval_split:g}: all {len(group_of)} rows {alike}, so none can "
            "be held out without learning it; give a file with eval_data",
        )
    wanted = max(1, round(spec.data.eval_split * len(group_of)))
    order = np.argsort(_mixed(keys ^ _mixed(np.array([spec.training.seed], np.uint64))))
    taken = np.zeros(len(keys), bool)
    count = 0
    for group in order:
        if count + sizes[group] <= wanted:
            taken[group] = True
            count += sizes[group]
            if count == wanted:
                break
    if not count:  # every group is larger than the share: the smallest is nearest to it
        taken[order[np.argmin(sizes[order])]] = True
    return taken[group_of]


def _mixed(numbers: Any) -> Any:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014): each bit depends on every other."""
    import numpy as np

    first = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    second = (first ^ (first >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return second ^ (second >> np.uint64(31))


def row_keys(spec: Spec, table: Any) -> Iterator[bytes]:
    """What tells rows that belong together, one key of 8 bytes a row."""
    name = _key_column(spec)
    for batch in table.select([name]).to_batches(max_chunksize=ROWS_PER_BATCH):
        for ids in batch.column(0):
            content = ids.values.to_numpy(zero_copy_only=False).tobytes()
            yield hashlib.blake2b(content, digest_size=8).digest()


def _key_column(spec: Spec) -> str:
    return "input_ids" if spec.method.stage in ("sft", "pretrain") else "prompt_ids"


def read(path: Path) -> Any:
    """The table of an Arrow stream, mapped into memory rather than read."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_stream(source).read_all()


def _rewrite(spec: Spec, table: Any, rows: Sequence[int], path: Path) -> None:
    """Write some rows of a table in their order, packed if they are plain text."""
    import pyarrow as pa

    chosen = _batches(table, rows)
    if spec.data.packing and path.name == TRAINED_ON:
        chosen = packed(chosen, spec.data.max_length)
    elif spec.method.stage == "pretrain":
        chosen = _packed(chosen, spec.data.max_length)
    elif spec.method.stage == "kto":
        chosen = (_with_plain_label(batch) for batch in chosen)
    part = path.with_name(f"{path.name}.new")
    first = next(chosen)
    with pa.OSFile(str(part), "wb") as file, pa.ipc.new_stream(file, first.schema) as stream:
        for batch in itertools.chain([first], chosen):
            stream.write_table(batch)
    os.replace(part, path)


def _batches(table: Any, rows: Sequence[int]) -> Iterator[Any]:
    import pyarrow as pa

    for start in range(0, len(rows), ROWS_PER_BATCH):
        yield table.take(pa.array(rows[start : start + ROWS_PER_BATCH], pa.int64()))


def _packed(chosen: Iterator[Any], length: int) -> Iterator[Any]:
    import pyarrow as pa

    layout = pa.schema({"input_ids": pa.list_(pa.int32())})
    documents = (ids.as_py() for batch in chosen for ids in batch.column("input_ids"))
    packed = blocks(documents, length)
    while some := list(itertools.islice(packed, ROWS_PER_BATCH)):
        yield pa.table({"input_ids": some}, schema=layout)


def _with_plain_label(batch: Any) -> Any:
    """A label as true or false: `prepare` writes lists of numbers only."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = batch.schema.get_field_index("label")
    labels = pc.cast(pc.list_flatten(batch.column(place)), pa.bool_())
    return batch.set_column(place, "label", labels)


def blocks(documents: Iterator[Sequence[int]], length: int) -> Iterator[list[int]]:
    """Every token of the documents, in order, as blocks of `length`; the last may be shorter.

    A last block of one token has nothing to learn and is left out: it is an end token.
    """
    block: list[int] = []
    for document in documents:
        place = 0
        while place < len(document):
            taken = document[place : place + length - len(block)]
            block.extend(taken)
            place += len(taken)
            if len(block) == length:
                yield block
                block = []
    if len(block) > 1:
        yield block


def load(run: Path, spec: Spec, *, smoke: bool) -> Dataset:
    """The prepared rows to train on; for a smoke run as many of the longest as it takes."""
    from datasets import Dataset

    everything = Dataset.from_file(str(run / "prepared" / TRAINED_ON))
    if not smoke:
        return everything
    sizes = lengths(everything)
    order = sorted(range(len(sizes)), key=sizes.__getitem__, reverse=True)
    return everything.select(order[: SMOKE_STEPS * spec.training.effective_batch_size])


def load_held_out(run: Path, spec: Spec) -> Dataset | None:
    """The prepared rows to evaluate on, if the run evaluates."""
    from datasets import Dataset

    if not spec.data.evaluates:
        return None
    return Dataset.from_file(str(run / "prepared" / HELD_OUT))


def lengths(rows: Any) -> list[int]:
    """Tokens of each row of a data set or an Arrow table, over its longest columns of them."""
    import pyarrow.compute as pc

    table = rows.data.table if hasattr(rows, "data") else rows
    columns = [
        pc.list_value_length(table.column(name))
        for name in table.column_names
        if name not in ("label", "labels", "seq_lengths")
    ]
    total = columns[0]
    for column in columns[1:]:
        total = pc.add(total, column)
    found: list[int] = total.to_pylist()
    return found
