"""PyTorch's caching allocator for one stream: segments, best fit, splitting and merging.

Source: c10/cuda/CUDACachingAllocator.cpp. Sizes round up to 512 B; small and large blocks have
pools of their own; a free block is given back to its pool, never to the device.
"""

from __future__ import annotations

from bisect import bisect_left, insort

MIB = 1024**2
ROUNDING = 512
SMALL = MIB
"""Up to here a block is small."""
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
"""A segment for blocks below `OWN_SEGMENT`."""
OWN_SEGMENT = 10 * MIB
"""From here on a block gets a segment of its own size, rounded up to 2 MiB."""


class Block:
    """A piece of a segment, in use or free."""

    __slots__ = ("address", "after", "before", "free", "size")

    def __init__(self, address: int, size: int) -> None:
        self.address = address
        self.size = size
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False


class _Pool:
    """Free blocks of one kind, smallest first."""

    __slots__ = ("keys",)

    def __init__(self) -> None:
        self.keys: list[tuple[int, int, Block]] = []

    def add(self, block: Block) -> None:
        block.free = True
        insort(self.keys, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        block.free = False
        del self.keys[bisect_left(self.keys, (block.size, block.address))]

    def take(self, size: int) -> Block | None:
        """The smallest free block that is large enough."""
        keys = self.keys
        at = bisect_left(keys, (size,))
        if at == len(keys):
            return None
        block = keys[at][2]
        del keys[at]
        block.free = False
        return block


class Allocator:
    """What a device has handed out in segments, and its peak."""

    def __init__(self, *, expandable: bool) -> None:
        self.expandable = expandable
        self.reserved = 0
        self.allocated = 0
        self.peak_reserved = 0
        self.peak_allocated = 0
        self._pools = (_Pool(), _Pool())
        self._last: list[Block | None] = [None, None]
        self._address = 0

    def take(self, size: int) -> Block:
        """A block of at least `size` bytes."""
        size = max(ROUNDING, -(-size // ROUNDING) * ROUNDING)
        large = size > SMALL
        pool = self._pools[large]
        block = pool.take(size) or self._grown(size, large=large)
        rest = block.size - size
        if rest >= ROUNDING if self.expandable or not large else rest > SMALL:
            self._split(block, size, pool, large=large)
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        return block

    def give_back(self, block: Block, size: int) -> None:
        """Free a block that was asked for with `size` bytes."""
        self.allocated -= block.size
        large = size > SMALL
        pool = self._pools[large]
        after, before = block.after, block.before
        if after is not None and after.free:
            pool.remove(after)
            self._join(block, after, large=large)
        if before is not None and before.free:
            pool.remove(before)
            self._join(before, block, large=large)
            block = before
        pool.add(block)

    def _grown(self, size: int, *, large: bool) -> Block:
        """A block from memory the device had not handed out yet."""
        if self.expandable:
            return self._expanded(size, large=large)
        segment = SMALL_SEGMENT
        if large:
            rounded = -(-size // SMALL_SEGMENT) * SMALL_SEGMENT
            segment = LARGE_SEGMENT if size < OWN_SEGMENT else rounded
        self._reserve(segment)
        start = self._address
        self._address += segment
        return Block(start, segment)

    def _expanded(self, size: int, *, large: bool) -> Block:
        """The pool's one segment, made longer; a free block at its end is used up first."""
        page = LARGE_SEGMENT if large else SMALL_SEGMENT
        last = self._last[large]
        there = last.size if last is not None and last.free else 0
        grown = -(-(size - there) // page) * page
        self._reserve(grown)
        if last is not None and last.free:
            self._pools[large].remove(last)
            last.size += grown
            return last
        start = (1 << 60) * large if last is None else last.address + last.size
        block = Block(start, grown)
        block.before = last
        if last is not None:
            last.after = block
        self._last[large] = block
        return block

    def _reserve(self, size: int) -> None:
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def _split(self, block: Block, size: int, pool: _Pool, *, large: bool) -> None:
        rest = Block(block.address + size, block.size - size)
        rest.before, rest.after = block, block.after
        if block.after is not None:
            block.after.before = rest
        block.after, block.size = rest, size
        if self._last[large] is block:
            self._last[large] = rest
        pool.add(rest)

    def _join(self, first: Block, second: Block, *, large: bool) -> None:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        if self._last[large] is second:
            self._last[large] = first
