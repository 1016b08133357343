"""The files that a stage leaves behind → the evidence it is judged by."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from engine.record import read_json
from engine.verdict import Evidence

FULL_BYTES = 1024 * 1024


def gather(
    run: Path,
    *,
    phase: str,
    attempt: int,
    ranks: Sequence[int],
    began: float,
    oom_kills: int,
) -> Evidence:
    """What is known of a stage that began at `began` (unix seconds) and is gone."""
    log = run / "logs" / f"{attempt}-{phase}.log"
    files = {rank: read_json(exit_file(run, attempt, rank)) for rank in ranks}
    said = _lowest_rank_stderr(run, began) if ranks else None
    return Evidence(
        command_code=_code(run / "exit" / str(attempt) / phase),
        ranks=ranks,
        exits={rank: file for rank, file in files.items() if file},
        first_lost=_first_lost(log) if ranks else None,
        oom_kills=oom_kills,
        disk_full=_free_bytes(run) < FULL_BYTES,
        stop_asked=(run / "stop").exists(),
        last_line=_last_line(said or log),
    )


def exit_file(run: Path, attempt: int, rank: int) -> Path:
    """Where a rank's last act is written."""
    return run / "exit" / str(attempt) / f"rank-{rank:05d}.json"


def _code(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _free_bytes(run: Path) -> int:
    try:
        return shutil.disk_usage(run).free
    except OSError:
        return 0


def _first_lost(log: Path) -> tuple[int, int] | None:
    """(rank, exit code) of torchrun's "Root Cause": it alone sees the signal that ended a rank."""
    _, found, cause = _tail(log).rpartition("Root Cause (first observed failure)")
    match = re.search(r"rank\s*: (\d{1,9}) \(.*?exitcode\s*: (-?\d{1,9})", cause, re.DOTALL)
    return (int(match[1]), int(match[2])) if found and match else None


def _lowest_rank_stderr(run: Path, began: float) -> Path | None:
    """What the lowest rank said; torchrun names the folder of an attempt by chance."""
    logs = [
        path
        for path in (run / "logs").glob("*/attempt_*/*/stderr.log")
        if path.stat().st_mtime >= began and path.stat().st_size
    ]
    return min(logs, key=lambda path: int(path.parent.name), default=None)


def _last_line(path: Path) -> str:
    return next((line.strip() for line in reversed(_tail(path).splitlines()) if line.strip()), "")


def _tail(path: Path, size_bytes: int = 65536) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - size_bytes, 0))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
