"""Made-up machines as files: what lies in /proc, /sys and the rest, below a folder of the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

GIB = 1024**3
MIB = 1024**2
Usage = Callable[[Path], tuple[int, int, int]]

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             96365                96365                processes
Max open files            1024                 1048576              files
Max locked memory         {memlock}            {memlock}            bytes
Max address space         unlimited            unlimited            bytes
"""


def tree(root: Path, files: Mapping[str, str]) -> Path:
    """Write these files; a name that ends in `/` is an empty folder. Returns the root."""
    for name, text in files.items():
        path = root / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def meminfo(total: int, available: int, swap: int = 0) -> str:
    """/proc/meminfo of these sizes in bytes."""
    return (
        f"MemTotal:       {total // 1024} kB\nMemFree:        {available // 2048} kB\n"
        f"MemAvailable:   {available // 1024} kB\nSwapTotal:      {swap // 1024} kB\n"
    )


def mount(
    point: str, kind: str, source: str, device: str = "0:50", options: str = "rw,relatime"
) -> str:
    """A line of /proc/self/mountinfo."""
    return f"36 25 {device} / {point} {options} shared:1 - {kind} {source} rw\n"


def sizes(root: Path, table: Mapping[str, tuple[int, int]]) -> Usage:
    """A stand-in for disk_usage: mount point → (total, free) bytes, the longest that fits."""

    def usage(path: Path) -> tuple[int, int, int]:
        inside = "/" + str(path.relative_to(root)).removeprefix(".")
        fitting = [point for point in table if Path(inside).is_relative_to(point)]
        if not fitting:
            raise FileNotFoundError(inside)
        total, free = table[max(fitting, key=len)]
        return total, total - free, free

    return usage
