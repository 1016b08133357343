"""After: a module is loaded at once, and run when run.sh lets it; so torchrun waits for nothing.

    python -m engine.after FILE PID MODULE ARGUMENTS…

runs MODULE's `main` as `python -m MODULE ARGUMENTS…` would, once FILE is there. The process PID
makes that file: where it ended first, nothing runs.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from engine import processes
from engine.events import EXIT_COMM
from engine.lean import loading

POLL_SECONDS = 0.05


def wait(file: Path, pid: int) -> bool:
    """Wait until a file is there; False when the process that would make it is gone without it."""
    started = processes.start_time(pid)
    while not file.exists():
        if not processes.is_alive(pid, started):
            return file.exists()
        time.sleep(POLL_SECONDS)
    return True


def main(given: Sequence[str]) -> int:
    """Load, wait, run; the exit code."""
    file, pid, name, *arguments = given
    with loading():
        module = importlib.import_module(name)
    if not wait(Path(file), int(pid)):
        return EXIT_COMM
    code: int | None = module.main(arguments)
    return code or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
