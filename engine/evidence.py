"""The files that a stage leaves behind → the evidence it is judged by."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from engine.causes import last_line, port_owner
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
    kernel: Sequence[str] = (),
    hang: tuple[int | None, str] | None = None,
) -> Evidence:
    """What is known of a stage that began at `began` (unix seconds) and is gone."""
    log = run / "logs" / f"{attempt}-{phase}.log"
    files = {rank: read_json(exit_file(run, attempt, rank)) for rank in ranks}
    exits = {rank: file for rank, file in files.items() if file}
    said = _stderr_of_ranks(run, began, ranks)
    lowest = next((said[rank] for rank in ranks if said.get(rank)), "")
    launcher = _tail(log)
    return Evidence(
        command_code=_code(run / "exit" / str(attempt) / phase),
        ranks=ranks,
        exits=exits,
        first_lost=_first_lost(launcher) if ranks else None,
        oom_kills=oom_kills,
        disk_full=_free_bytes(run) < FULL_BYTES,
        stop_asked=(run / "stop").exists(),
        last_line=last_line(lowest or (_error_line(launcher) if ranks else launcher)),
        said={rank: text for rank, text in said.items() if rank not in exits},
        kernel=kernel,
        hang=hang,
        port_owner=_port_owner(launcher) if ranks and not exits else "",
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


def _first_lost(log: str) -> tuple[int, int] | None:
    """(rank, exit code) of torchrun's "Root Cause": it alone sees the signal that ended a rank."""
    _, found, cause = log.rpartition("Root Cause (first observed failure)")
    match = re.search(r"rank\s*: (\d{1,9}) \(.*?exitcode\s*: (-?\d{1,9})", cause, re.DOTALL)
    return (int(match[1]), int(match[2])) if found and match else None


def _stderr_of_ranks(run: Path, began: float, ranks: Sequence[int]) -> dict[int, str]:
    """Rank → the end of what it wrote; torchrun names the folder of an attempt by chance.

    Folders are named by local rank: ranks of this machine are numbered from the first on.
    """
    found: dict[int, str] = {}
    for path in (run / "logs").glob("*/attempt_*/*/stderr.log") if ranks else ():
        local = path.parent.name
        if local.isdigit() and int(local) < len(ranks) and path.stat().st_mtime >= began:
            found[ranks[int(local)]] = _tail(path)
    return found


def _error_line(log: str) -> str:
    """torchrun's own error, which its traceback and its notes would hide."""
    errors = [line for line in log.splitlines() if re.match(r"[\w.]*Error: ", line)]
    return errors[-1] if errors else log


def _port_owner(log: str) -> str:
    """Who holds the port that torchrun says is taken; empty when it says no such thing."""
    if "EADDRINUSE" not in log and "address already in use" not in log.lower():
        return ""
    port = re.search(r"port: (\d{1,5})", log)
    return port_owner(int(port[1])) if port else ""


def _tail(path: Path, size_bytes: int = 65536) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - size_bytes, 0))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
