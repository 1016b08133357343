"""Collectives: how long this rank waits in them, measured in some steps of a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

NAMES = (
    "_allgather_base",
    "_end_coalescing",
    "_reduce_scatter_base",
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "allreduce",
    "allreduce_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
)
"""What a process group can be asked for, by any torch that we run with; all others end here."""


class Collectives:
    """Times the collectives of this process while it is `listening`.

    Each then begins when the device has done all that was asked of it, and is waited for: nothing
    overlaps, so that what a rank waits is told from what it does. A rank that is slower than the
    others waits least. Moving the data is part of the waiting, for all ranks alike.
    """

    def __init__(self, synchronize: Callable[[], None], place: Callable[[str], None]) -> None:
        """`synchronize` waits for the device, `place` is told where the rank is."""
        self.listening = False
        self.seconds = 0.0
        """Waited since the last `take`."""
        self._synchronize, self._place = synchronize, place
        self._grouped = False

    def hook(self, group: Any) -> None:
        """Stand before the collectives of a class of process groups, until the process ends."""
        for name in NAMES:
            if hasattr(group, name):
                setattr(group, name, self._timed(name, getattr(group, name)))
        begin = group._start_coalescing

        @wraps(begin)
        def grouped(*args: Any, **kwargs: Any) -> Any:
            self._grouped = True
            return begin(*args, **kwargs)

        group._start_coalescing = grouped

    def take(self) -> float:
        """Seconds waited, from now on counted anew."""
        taken, self.seconds = self.seconds, 0.0
        return taken

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if name == "_end_coalescing":
                self._grouped = False
            if not self.listening or self._grouped:  # one of a group begins with the group's end
                return method(*args, **kwargs)
            self._synchronize()
            self._place("collective")
            start = time.perf_counter()
            work = method(*args, **kwargs)
            if work is not None:
                work.wait()
            self._synchronize()
            self.seconds += time.perf_counter() - start
            self._place("compute")
            return work

        return timed
