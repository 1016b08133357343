"""Groups of like length and packs hold every row once."""

from __future__ import annotations

from typing import Any

import pytest

from engine.packing import best_fit

pytestmark = pytest.mark.engine


def test_groups_of_like_length_hold_every_row_and_differ_between_epochs() -> None:
    from engine.batches import ByLength  # loads torch

    sampler = ByLength([n % 13 + 1 for n in range(101)], 8, seed=3)
    first = list(sampler)
    assert list(sampler) == first  # a resumed run has the same order
    sampler.set_epoch(1)
    second = list(sampler)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(101))


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_run_resumed_within_an_epoch_goes_on_with_the_rows_that_are_left(ranks: int) -> None:
    from accelerate import PartialState
    from accelerate.data_loader import prepare_data_loader, skip_first_batches
    from datasets import Dataset
    from torch.utils.data import DataLoader

    from engine.batches import group_by_length

    PartialState()
    rows = Dataset.from_list([{"input_ids": [n] * (1 + n % 7)} for n in range(40)])

    class Trainer:
        """As the library's own goes through an epoch, skipping what was trained on before."""

        skipped = 0

        def _run_epoch(self, *, epoch: int) -> None:
            loader = DataLoader(
                range(40),
                batch_size=2,
                sampler=self._get_train_sampler(),  # type: ignore[attr-defined]
            )
            shared = prepare_data_loader(
                loader, num_processes=ranks, process_index=0, put_on_device=False
            )
            if self.skipped:
                shared = skip_first_batches(shared, self.skipped)
            shared.set_epoch(epoch)
            self.seen = [batch.tolist() for batch in shared]

    whole, resumed = Trainer(), Trainer()
    for trainer in (whole, resumed):
        group_by_length(trainer, rows, 2 * ranks, seed=3)
    whole._run_epoch(epoch=0)
    first = whole.seen
    whole._run_epoch(epoch=1)
    resumed.skipped = 3
    resumed._run_epoch(epoch=1)

    assert resumed.seen == whole.seen[3:] != first[3:]


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
