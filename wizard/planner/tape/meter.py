"""Live bytes of a simulated device: the whole story, and the peak in each region of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

ACTIVATIONS, WORKSPACE, GRADIENTS, LOSS, COPIES, DEQUANTISED = range(6)
KINDS = (
    "activations",
    "layer workspace",
    "gradients",
    "loss",
    "autocast copies",
    "4-bit workspace",
)
"""What a buffer is, by its number."""


class Meter:
    """The buffers of one device as they come and go, and what was there when.

    `story` holds the buffers' numbers in the order they were taken, and `~number` where one was
    given back; `sizes` and `kinds` are indexed by number. An allocator can be run on it. Nothing is
    summed up while it is written: a tape takes thousands of buffers.
    """

    __slots__ = (
        "_kinds_of_regions", "backward_ends", "entries", "forward_ends", "kind", "kinds", "sizes",
        "story",
    )  # fmt: skip

    def __init__(self, kinds_of_regions: Sequence[int]) -> None:
        self._kinds_of_regions = kinds_of_regions
        self.kind = kinds_of_regions[0]
        """What buffers taken now are."""
        self.sizes: list[int] = []
        self.kinds: list[int] = []
        self.story: list[int] = []
        self.entries: list[tuple[int, int]] = []
        """(region, length of the story) each time that one was entered."""
        self.forward_ends = 0
        """Length of the story when backward begins."""
        self.backward_ends = 0
        """Length of the story when only gradients are left."""

    def enter(self, region: int) -> None:
        """From here on peaks belong to `region`; it may have been left before."""
        self.kind = self._kinds_of_regions[region]
        self.entries.append((region, len(self.story)))

    def entered(self, region: int) -> list[int]:
        """Length of the story each time that the region was entered."""
        return [length for one, length in self.entries if one == region]

    def peaks(self) -> list[int]:
        """Region → length of the story when most was there, first; 0 where nothing ever was."""
        # A buffer given back has the negative size that its negative number finds.
        signed = self.sizes + [-size for size in reversed(self.sizes)]
        live = list(accumulate(map(signed.__getitem__, self.story), initial=0))
        tops = [0] * len(self._kinds_of_regions)
        lengths = [0] * len(tops)
        for region, start, end in self._stays():
            top = max(live[start : end + 1])
            if top > tops[region]:
                tops[region], lengths[region] = top, live.index(top, start)
        return lengths

    def _stays(self) -> Iterator[tuple[int, int, int]]:
        """(region, length of the story when it was entered, and when it was left)."""
        ends = [*(length for _, length in self.entries[1:]), len(self.story)]
        for (region, start), end in zip(self.entries, ends, strict=True):
            yield region, start, end

    def at_peaks(self) -> list[tuple[int, ...]]:
        """Region → bytes of each kind when the region peaked; they sum to its peak."""
        return self.at(self.peaks())

    def at(self, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Bytes of each kind when the story had each of these lengths."""
        found = [(0,) * len(KINDS)] * len(lengths)
        totals = [0] * len(KINDS)
        sizes, kinds, story = self.sizes, self.kinds, self.story
        read = 0
        for length, place in sorted((length, place) for place, length in enumerate(lengths)):
            for event in story[read:length]:
                if event >= 0:
                    totals[kinds[event]] += sizes[event]
                else:
                    totals[kinds[~event]] -= sizes[~event]
            read = length
            found[place] = tuple(totals)
        return found


class Buffer:
    """A block of device memory; it is given back when nobody refers to it any more.

    Python's own reference counts stand for PyTorch's: a local name holds a tensor exactly where
    a local name of the simulated code does.
    """

    __slots__ = ("number", "story")

    def __init__(self, meter: Meter, size: int, kind: int | None = None) -> None:
        sizes = meter.sizes
        self.number = number = len(sizes)
        self.story = story = meter.story
        sizes.append(size)
        meter.kinds.append(meter.kind if kind is None else kind)
        story.append(number)

    def __del__(self) -> None:
        self.story.append(~self.number)
