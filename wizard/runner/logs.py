"""The last lines of a run's logs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from wizard.runner.nodes import all_nodes, is_node, place_of

TAIL_BYTES = 64 * 1024
MOST_FILES = 16
"""Of all ranks' logs, those that were written to last."""


def tail(folder: Path, rank: int | Literal["all"] | None, lines: int) -> tuple[str, ...]:
    """The last lines of a rank's newest log, of all ranks', or of the launcher's; or none.

    Lines of logs bear no time: of all ranks, those of the one that wrote last come last.
    torchrun names its folder by chance, so the newest one is meant.
    """
    if rank == "all":
        return _of_all(folder, lines)
    found = newest(folder, rank)
    return () if found is None else _last_lines(found, lines)


def _of_all(folder: Path, lines: int) -> tuple[str, ...]:
    logs = [path for node in all_nodes(folder) for path in node.glob("logs/*/attempt_*/*/std*.log")]
    found = [path for path in logs if _changed(path)[0]]
    newest = sorted(found, key=_changed)[-MOST_FILES:]
    merged = [
        f"[{_owner(path, several=is_node(folder))}] {line}"
        for path in newest
        for line in _last_lines(path, max(lines // len(newest), 3))
    ]
    return tuple(merged[-lines:])


def _owner(path: Path, *, several: bool) -> str:
    """Whose log it is: the rank's number on its machine, and that one where there are several."""
    return f"{path.parents[4].name} {path.parent.name}" if several else path.parent.name


def _last_lines(path: Path, lines: int) -> tuple[str, ...]:
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - TAIL_BYTES))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ()
    # A progress bar rewrites its line: what counts is what stood there last.
    whole = [line.rsplit("\r", 1)[-1] for line in text.replace("\r\n", "\n").split("\n")]
    return tuple(line for line in whole if line.strip())[-lines:]


def newest(folder: Path, rank: int | None) -> Path | None:
    """The log that says most about the present; None while there is none."""
    if rank is not None:
        folder, rank = place_of(folder, rank)
    logs = folder / "logs"
    patterns = (
        ("launcher.log", "*-training.log")
        if rank is None
        else (f"*/attempt_*/{rank}/stderr.log", f"*/attempt_*/{rank}/stdout.log")
    )
    found = [path for pattern in patterns for path in logs.glob(pattern)]
    return max(found, key=_changed, default=None)


def ranks(folder: Path) -> tuple[int, ...]:
    """The ranks that have a log, in order."""
    names = {path.name for path in (folder / "logs").glob("*/attempt_*/*") if path.is_dir()}
    return tuple(sorted(int(name) for name in names if name.isdecimal()))


def _changed(path: Path) -> tuple[bool, float]:
    """An empty log says nothing: it comes last, however new."""
    try:
        status = path.stat()
    except OSError:
        return False, 0.0
    return status.st_size > 0, status.st_mtime
