"""Small files of the kernel, read without ever raising."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LIMIT_BYTES = 1024**2
"""Nothing read here is longer; a file that never ends is cut."""
MOST_DIGITS = 20
"""Those of 2^64; a longer number is nonsense, and Python refuses to read one of thousands."""
MOST_PROCESSORS = 1 << 16


def below(root: Path, path: str | Path) -> Path:
    """Where an absolute path lies on the machine that begins at `root`."""
    return root / str(path).lstrip("/")


def text(path: Path) -> str:
    """A file's text; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(LIMIT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def line(path: Path) -> str:
    """The first line of a file, without the space around it."""
    return text(path).strip().partition("\n")[0].strip()


def integer(path: Path) -> int | None:
    """The whole number a file holds; None when it holds anything else."""
    return whole(text(path))


def whole(value: str) -> int | None:
    """A text as a whole number, not below zero; None when it is none."""
    value = value.strip()
    plain = value.isascii() and value.isdigit() and len(value) <= MOST_DIGITS
    return int(value) if plain else None


def entries(folder: Path) -> list[Path]:
    """What a folder holds, in order; nothing when it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def exists(path: Path) -> bool:
    """Whether something is there, as far as one may look."""
    try:
        return path.exists()
    except OSError:
        return False


def table(path: Path, separator: str = ":") -> dict[str, str]:
    """Lines `key: value` of a file; the first of a key wins."""
    found: dict[str, str] = {}
    for row in text(path).splitlines():
        key, mark, value = row.partition(separator)
        if mark:
            found.setdefault(key.strip(), value.strip())
    return found


def kibibytes(value: str | None) -> int | None:
    """Bytes of a number such as `127600748 kB`."""
    found = re.match(r"(\d+)\s*kB\b", value or "")
    number = whole(found[1]) if found else None
    return None if number is None else number * 1024


def cpu_list(value: str) -> Iterator[int]:
    """Processors of a list such as `0-3,8,10-11`; what is no number is skipped."""
    for part in value.strip().split(","):
        first, _, last = part.partition("-")
        begin, end = whole(first), whole(last or first)
        if begin is not None and end is not None and end < MOST_PROCESSORS:
            yield from range(begin, end + 1)
