"""Fetches one data set of a hub, told as JSON lines: `python -m engine.hub hf:org/name:split`.

Each line is an object with `kind`: `progress` (`done`, `total` bytes) while it arrives, then `set`
(`name` with its commit, `files`), or `failed` (`failure`, `message`); the exit code is a run's.
"""

from __future__ import annotations

import sys

from engine.failure import RunError, classify
from engine.hub.sets import fetch_set
from engine.preview import say
from engine.rows.sources import hub_set
from engine.rows.values import DataError


def main(name: str) -> int:
    """Fetch it; the exit code."""
    try:
        try:
            wanted = hub_set(name)
        except DataError as error:
            raise RunError("bad_data", f"{error.what}; {error.fix}") from None
        if wanted is None:
            raise RunError("bad_data", f"{name}: not the name of a data set on a hub")
        found = fetch_set(wanted, lambda done, total: say("progress", done=done, total=total))
    except (Exception, KeyboardInterrupt) as error:
        failure = classify(error)
        say("failed", failure=failure.failure, message=failure.message)
        return failure.code
    say("set", name=found.name, files=[str(file) for file in found.files])
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
