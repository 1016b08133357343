"""Live bytes of a simulated device: the peak in each region of a step, and the whole story."""

from __future__ import annotations

from collections.abc import Sequence

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
    """Bytes in use on one device, counted as buffers come and go.

    `story` holds the buffers' numbers in the order they were taken, and `~number` where one was
    given back; `sizes` and `kinds` are indexed by number. An allocator can be run on it.
    """

    __slots__ = (
        "_kinds_of_regions", "_marks", "_region", "_tops", "backward_ends", "entries",
        "forward_ends", "kind", "kinds", "live", "mark", "sizes", "story", "top",
    )  # fmt: skip

    def __init__(self, kinds_of_regions: Sequence[int]) -> None:
        self._kinds_of_regions = kinds_of_regions
        self._region = 0
        self._tops = [0] * len(kinds_of_regions)
        self._marks = [0] * len(kinds_of_regions)
        self.kind = kinds_of_regions[0]
        """What buffers taken now are."""
        self.live = 0
        self.top = 0
        """Most bytes live in this region so far."""
        self.mark = 0
        """Length of the story then."""
        self.sizes: list[int] = []
        self.kinds: list[int] = []
        self.story: list[int] = []
        self.entries: list[list[int]] = [[] for _ in kinds_of_regions]
        """Region → lengths of the story each time that it was entered."""
        self.forward_ends = 0
        """Length of the story when backward begins."""
        self.backward_ends = 0
        """Length of the story when only gradients are left."""

    def enter(self, region: int) -> None:
        """From here on peaks belong to `region`; it may have been left before."""
        self._leave()
        self._region = region
        self.kind = self._kinds_of_regions[region]
        self.entries[region].append(len(self.story))
        self.top, self.mark = self._tops[region], self._marks[region]
        if self.live > self.top:
            self.top, self.mark = self.live, len(self.story)

    def _leave(self) -> None:
        self._tops[self._region], self._marks[self._region] = self.top, self.mark

    def peaked(self, region: int) -> int:
        """Length of the story when the region peaked."""
        self._leave()
        return self._marks[region]

    def at_peaks(self) -> list[tuple[int, ...]]:
        """Region → bytes of each kind when the region peaked; they sum to its peak."""
        self._leave()
        return self.at(self._marks)

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

    __slots__ = ("meter", "number", "size")

    def __init__(self, meter: Meter, size: int, kind: int | None = None) -> None:
        self.meter = meter
        self.size = size
        sizes, story = meter.sizes, meter.story
        self.number = number = len(sizes)
        sizes.append(size)
        meter.kinds.append(meter.kind if kind is None else kind)
        story.append(number)
        meter.live = live = meter.live + size
        if live > meter.top:
            meter.top = live
            meter.mark = len(story)

    def __del__(self) -> None:
        meter = self.meter
        meter.live -= self.size
        meter.story.append(~self.number)
