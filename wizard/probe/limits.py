"""Limits of the shell this process came from, as the kernel writes them."""

from __future__ import annotations

import re
from pathlib import Path

from wizard.probe.reading import text, whole


def locked_memory_bytes(root: Path) -> int | None:
    """Memory that may be pinned; None without a limit, or when it cannot be read."""
    return _soft_limit(root, "Max locked memory")


def open_files(root: Path) -> int | None:
    """Files that may be open at once; None without a limit, or when it cannot be read."""
    return _soft_limit(root, "Max open files")


def _soft_limit(root: Path, name: str) -> int | None:
    for row in text(root / "proc/self/limits").splitlines():
        if row.startswith(name):
            return whole(re.split(r"\s{2,}", row[len(name) :].strip())[0])
    return None
