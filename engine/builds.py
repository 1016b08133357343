"""Native code that is compiled at its first use: what a killed build leaves would wait for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

from engine.failure import RunError

LONGEST_BUILD_SECONDS = 1800


def refuse_stale_locks(now: float | None = None) -> None:
    """A build that was killed leaves its lock, and every later one waits for it without a word.

    Raises RunError (bad_spec) naming the file to remove.
    """
    now = time.time() if now is None else now
    for lock in sorted([*_root().glob("*/lock"), *_root().glob("*/*/lock")]):
        try:
            age = now - lock.stat().st_mtime
        except OSError:  # built meanwhile
            continue
        if age > LONGEST_BUILD_SECONDS:
            raise RunError(
                "bad_spec",
                f"{lock}: left {age / 60:,.0f} minutes ago by a build of {lock.parent.name} that "
                "was killed, and a new one would wait for it for ever: remove that file",
            )


def _root() -> Path:
    """Where torch builds extensions."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else cache / "torch_extensions"
