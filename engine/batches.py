"""Batches: which rows share one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from datasets import Dataset


class ByLength(torch.utils.data.Sampler[int]):  # type: ignore[misc]
    """Rows in an order that puts those of like length together, another one in each epoch.

    The library's own grouping, with a seed that all ranks and every resumed run share.
    """

    def __init__(self, lengths: Sequence[int], together: int, seed: int) -> None:
        """`together` rows make one batch over all ranks."""
        self.lengths, self.together, self.seed = lengths, together, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch whose order is next."""
        self.epoch = epoch

    def __len__(self) -> int:
        """Rows."""
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        """Positions of all rows, each once."""
        from transformers.trainer_pt_utils import get_length_grouped_indices

        generator = torch.Generator()
        generator.manual_seed(self.seed + self.epoch)
        yield from get_length_grouped_indices(self.lengths, self.together, generator=generator)


def group_by_length(trainer: Any, rows: Dataset, together: int, seed: int) -> None:
    """Let a trainer take its rows in groups of like length.

    Its own way to do so reads a column that it has removed before, and draws its order from a
    state that a resumed run no longer has.
    """
    from engine.arrange import lengths

    sampler = ByLength(lengths(rows), together, seed)
    trainer._get_train_sampler = lambda *_: sampler
    run_epoch = trainer._run_epoch

    def run(*args: Any, epoch: int, **kwargs: Any) -> None:
        # accelerate does not pass the epoch on to a sampler below ranks whose first batches are
        # skipped, as they are in the middle of a resumed epoch.
        sampler.set_epoch(epoch)
        run_epoch(*args, epoch=epoch, **kwargs)

    trainer._run_epoch = run
