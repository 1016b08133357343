"""Care of run folders that do not run: rename, delete, prune, and how large they are."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from engine.theirs import why
from wizard.problem import Problem, ProblemError
from wizard.runner.folder import check_name, is_alive, read_json

COMPLETE = "complete.json"
"""Written by `engine.save` into a checkpoint when it is whole."""


def size_bytes(path: Path) -> int:
    """Bytes that the files of a folder take on the disk; links are not followed."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue
    return total


def rename(folder: Path, name: str) -> Path:
    """Give a run that does not run another name; its new folder.

    Raises ProblemError when it runs, or the name is taken or cannot be one.
    """
    check_name(name)
    _require_ended(folder)
    new = folder.parent / name
    if os.path.lexists(new):
        what = f"a run named {name!r} exists"
        raise ProblemError(Problem(what=what, where=str(folder.parent), exit_code=2))
    try:
        os.rename(folder, new)
    except OSError as error:
        raise _failed("rename", folder, error) from None
    return new


def delete(folder: Path) -> None:
    """Remove a run that does not run; it is out of the list at once, however long that takes.

    Raises ProblemError when it runs, or cannot be removed.
    """
    _require_ended(folder)
    try:
        grave = Path(tempfile.mkdtemp(prefix=".deleted-", dir=folder.parent))
        os.rename(folder, grave / folder.name)
        shutil.rmtree(grave)
    except OSError as error:
        raise _failed("delete", folder, error) from None


def prunable(folder: Path, keep: int) -> list[Path]:
    """Checkpoints that may go: all but the newest `keep` whole ones, and what crashes left.

    Raises ProblemError when the run runs: then the engine does this itself.
    """
    _require_ended(folder)
    found = [
        (int(match[1]), path)
        for path in (folder / "checkpoints").glob("checkpoint-*")
        if (match := re.fullmatch(r"checkpoint-(\d{1,12})", path.name)) and not path.is_symlink()
    ]
    newest_first = [path for _, path in sorted(found, reverse=True)]
    whole = [path for path in newest_first if read_json(path / COMPLETE).get("files")]
    kept = set(whole[:keep])
    return [path for path in newest_first if path not in kept]


def prune(checkpoints: list[Path]) -> None:
    """Remove checkpoints.

    Raises ProblemError naming the first that cannot be removed.
    """
    for path in checkpoints:
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise _failed("delete", path, error) from None


def _require_ended(folder: Path) -> None:
    if is_alive(folder):
        raise ProblemError(
            Problem(what="this run is running", where=str(folder), fix="stop it first", exit_code=1)
        )


def _failed(verb: str, path: Path, error: OSError) -> ProblemError:
    what = f"cannot {verb} it: {why(error)}"
    return ProblemError(Problem(what=what, where=str(error.filename or path)))
