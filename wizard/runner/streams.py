"""The event streams of a run, read from the outside: whole lines, from any byte on."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.events import decode, decode_all, split
from wizard.runner.nodes import all_nodes

CHUNK_BYTES = 1024 * 1024
ALL_CHUNKS_BYTES = 64 * 1024 * 1024
"""What the chunks of all streams together may take while they are merged,"""
GLANCE_BYTES = 3 * 1024 * 1024
"""and what is read of all streams together to know the present."""

LAUNCHER = "launcher.jsonl"
OF_OTHERS = ("warn", "failed")
"""What another machine's launcher says that counts here: phases and end are this one's."""

Event = Mapping[str, Any]


class Stream:
    """One writer's file, read on from where the last whole line ended.

    It is open only while it is read: a run of a thousand ranks has a thousand streams.
    """

    def __init__(self, path: Path, kinds: tuple[str, ...] = ()) -> None:
        """Only events of these kinds are of interest; without any, all are."""
        self.path = path
        self._kinds = kinds
        self.offset = 0
        self._inode = 0
        self._rest = b""

    def size_bytes(self) -> int:
        """Of the file now; one that was rotated, cut or made anew is read from its beginning."""
        try:
            status = os.stat(self.path)
        except OSError:
            return self.offset
        if status.st_size < self.offset or status.st_ino != self._inode:
            self.offset, self._rest = 0, b""
            self._inode = status.st_ino
        return status.st_size

    def events(self, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Event]:
        """Events in whole lines that were not read before."""
        if self.size_bytes() == self.offset:
            return
        while chunk := self._read(chunk_bytes):
            self.offset += len(chunk)
            lines, self._rest = split(self._rest + chunk)
            yield from (e for line in lines if (e := decode(line)) is not None and self._wanted(e))

    def _wanted(self, event: Event) -> bool:
        return not self._kinds or event["kind"] in self._kinds

    def _read(self, most: int) -> bytes:
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(self.offset)
                return file.read(most) or b""
        except OSError:
            return b""

    def ends(self, most: int) -> list[Event]:
        """Who and what this is, from the first bytes, and all of the last ones; it reads on there.

        At most `most` bytes are read of each end.
        """
        size = self.size_bytes()
        if size <= 2 * most:
            return list(self.events())
        start = decode_all(self._read(most))
        first = [e for e in start if e["kind"] in ("hello", "phase") and self._wanted(e)]
        self.offset = size - most
        chunk = self._read(most)
        self.offset += len(chunk)
        lines, self._rest = split(chunk)
        last = (event for line in lines[1:] if (event := decode(line)) is not None)
        return [*first, *filter(self._wanted, last)]


class Streams:
    """All streams of a run, on all its machines; those that appear later are found too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._streams: dict[Path, Stream] = {}

    def _all(self) -> list[Stream]:
        for node in all_nodes(self._folder):
            for name in _names(node / "events"):
                path = node / "events" / name
                if path not in self._streams:
                    other = node != self._folder and name == LAUNCHER
                    self._streams[path] = Stream(path, OF_OTHERS if other else ())
        return list(self._streams.values())

    def size_bytes(self) -> int:
        """Bytes there are."""
        return sum(stream.size_bytes() for stream in self._all())

    def read_bytes(self) -> int:
        """Bytes read so far."""
        return sum(stream.offset for stream in self._streams.values())

    def merged(self) -> Iterator[Event]:
        """What was not read before, of all ranks in the order of time.

        So an attempt is over before the next one begins.
        """
        streams = self._all()
        chunk = max(8192, min(CHUNK_BYTES, ALL_CHUNKS_BYTES // max(len(streams), 1)))
        return heapq.merge(*(stream.events(chunk) for stream in streams), key=_time)

    def ends(self) -> list[Event]:
        """Beginning and end of every stream, in the order of time."""
        streams = self._all()
        each = max(2048, min(128 * 1024, GLANCE_BYTES // (2 * max(len(streams), 1))))
        return sorted((event for stream in streams for event in stream.ends(each)), key=_time)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    except OSError:
        return []


def _time(event: Event) -> float:
    return float(event["t"])
