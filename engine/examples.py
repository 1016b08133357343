"""Examples: what one row becomes in each stage, and the columns its trainer reads."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from engine import preference
from engine.data import ChatTokenizer, Format, conversation
from engine.plain import TextTokenizer
from engine.spec import Spec

ROWS_PER_BATCH = 1000
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "sft": ("input_ids", "labels"),
    "pretrain": ("input_ids",),
    "dpo": ("prompt_ids", "chosen_ids", "rejected_ids"),
    "kto": ("prompt_ids", "completion_ids", "label"),
    "reward": ("prompt_ids", "chosen_ids", "rejected_ids"),
}
"""Stage → columns of its rows. In `reward` both answers begin with their prompt, as TRL wants them;
the prompt alone only tells which rows belong together."""


class Example(Protocol):
    """One row as tokens."""

    @property
    def cut(self) -> bool:
        """Whether tokens were cut off at the end."""
        ...

    @property
    def length(self) -> int:
        """Tokens of its longest sequence."""
        ...

    @property
    def total(self) -> int:
        """Tokens that pass through the model."""
        ...

    @property
    def trained(self) -> int:
        """Tokens that are learnt from."""
        ...


def maker(
    spec: Spec, tokenizer: Any, chat: ChatTokenizer | None, data_format: Format
) -> Callable[[Any], Example]:
    """What makes an example of a row, or raises RowError with the reason it cannot."""
    system = spec.data.system
    if spec.method.stage == "pretrain":
        return TextTokenizer(tokenizer).document
    assert chat is not None
    if spec.method.stage == "sft":
        return lambda row: chat.tokens(conversation(row, data_format, system))
    make = preference.judged if spec.method.stage == "kto" else preference.pair
    return lambda row: make(row, system, chat)


def schema(stage: str) -> Any:
    """The Arrow schema of a stage's rows."""
    import pyarrow as pa  # type: ignore[import-untyped]

    kinds = {name: pa.list_(pa.int32()) for name in COLUMNS[stage]}
    return pa.schema({**kinds, "label": pa.bool_()} if "label" in kinds else kinds)


def write(examples: Iterator[Example], path: Path, stage: str) -> None:
    """Write examples as an Arrow stream, a batch at a time."""
    import pyarrow as pa

    layout = schema(stage)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, layout) as stream:
        for batch in batches(examples, ROWS_PER_BATCH):
            rows = [_values(stage, example) for example in batch]
            arrays = [
                pa.array([row[place] for row in rows], layout.types[place])
                for place in range(len(layout))
            ]
            stream.write_batch(pa.record_batch(arrays, schema=layout))


def _values(stage: str, example: Any) -> tuple[Any, ...]:
    if stage == "reward":
        prompt = example.prompt_ids
        return prompt, prompt + example.chosen_ids, prompt + example.rejected_ids
    return tuple(getattr(example, name) for name in COLUMNS[stage])


def batches(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Lists of at most `size` items."""
    while batch := list(itertools.islice(items, size)):
        yield batch
