"""The last lines of a run's logs."""

from __future__ import annotations

from pathlib import Path

TAIL_BYTES = 64 * 1024


def tail(folder: Path, rank: int | None, lines: int) -> tuple[str, ...]:
    """The last lines of a rank's newest log, or of the launcher's; empty while there is none.

    torchrun names its folder by chance, so the newest one is meant.
    """
    found = newest(folder, rank)
    if found is None:
        return ()
    with found.open("rb") as stream:
        size = stream.seek(0, 2)
        stream.seek(max(0, size - TAIL_BYTES))
        text = stream.read().decode("utf-8", "replace")
    # A progress bar rewrites its line: what counts is what stood there last.
    whole = [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line for line in whole if line.strip())[-lines:]


def newest(folder: Path, rank: int | None) -> Path | None:
    """The log that says most about the present; None while there is none."""
    logs = folder / "logs"
    patterns = (
        ("launcher.log", "*-training.log")
        if rank is None
        else (f"*/attempt_*/{rank}/stderr.log", f"*/attempt_*/{rank}/stdout.log")
    )
    found = [path for pattern in patterns for path in logs.glob(pattern)]
    return max(found, key=_changed, default=None)


def _changed(path: Path) -> tuple[bool, float]:
    """An empty log says nothing: it comes last, however new."""
    try:
        status = path.stat()
    except OSError:
        return False, 0.0
    return status.st_size > 0, status.st_mtime
