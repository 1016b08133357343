"""Run folders: made whole or not at all, listed, found by name."""

from __future__ import annotations

import difflib
import errno
import json
import os
import shlex
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.events import (
    EXIT_MEANING,
    EXIT_OK,
    EXIT_STOPPED,
    beats_elsewhere,
    decode_all,
    exit_code,
    printable,
    recorded_processes,
    unix_seconds,
)
from engine.theirs import why
from wizard import paths
from wizard.problem import Problem, ProblemError
from wizard.runner import process
from wizard.runner.nodes import FIRST, title

TESTED = "tested"
"""Phase of a run that has passed its smoke test and done nothing else."""
ENDINGS: Mapping[int, str] = {EXIT_OK: "done", EXIT_STOPPED: "stopped"}
TAIL_BYTES = 64 * 1024
MODES = {"run.sh": 0o700}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSummary:
    """One run as a list shows it."""

    name: str
    folder: Path
    phase: str
    exit_code: int | None
    """None while it runs, before it starts, and when nobody recorded its end."""
    alive: bool
    updated: float | None
    """Unix seconds of the last recorded change."""
    message: str = ""
    failure: str | None = None
    """Class of what ended it; None when nothing failed."""
    failed_rank: int | None = None
    rebooted: bool = False
    """Its machine, this one, was restarted since it began."""

    @property
    def lost(self) -> bool:
        """Whether it ran, and nothing says how it ended."""
        return not self.alive and self.exit_code is None and self.updated is not None

    @property
    def state(self) -> str:
        """What it does or how it ended."""
        if self.lost:
            return "lost: this machine was restarted" if self.rebooted else "lost"
        if self.phase == TESTED:
            return "its smoke test passed"
        if self.alive or self.exit_code is None:
            return self.phase
        return f"{self.exit_code}: {self.message or EXIT_MEANING.get(self.exit_code, 'failed')}"

    def line(self) -> str:
        """Name, and what it does or how it ended."""
        return f"{printable(self.name)}  {printable(self.state)}"


def create(files: Mapping[str, str], *, root: Path, name: str) -> Path:
    """A new private folder root/name with these files; it appears only when complete.

    Raises ProblemError when the name is taken or cannot be one, or root cannot be written.
    """
    folder = _wanted(root, name)
    try:
        root.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=".new-", dir=root))
        try:
            for file, text in files.items():
                _write(part / file, text)
            os.rename(part, folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    except OSError as error:
        raise _cannot_write(root, folder, error) from None
    return folder


def check_name(name: str) -> None:
    """Raise ProblemError for a name that no run can have."""
    size = len(name.encode("utf-8", "replace"))
    odd = name != name.encode("utf-8", "replace").decode() or not name.isprintable()
    if not name.strip() or name.startswith((".", "-")) or "/" in name or odd or size > 200:
        raise ProblemError(
            Problem(
                what=f"{name!r} cannot name a run",
                fix="use letters, digits, - and _, with no slash and no leading dot or hyphen",
                exit_code=2,
            )
        )


def keep_new(name: str, text: str, folder: Path | None = None) -> Path:
    """A new private file in a folder, the current one by default; none that exists is replaced.

    Raises ProblemError when it cannot be written.
    """
    wanted = Path(name.replace("/", "-").replace("\0", "-"))
    folder = folder or Path.cwd()
    for number in range(1000):
        more = f"-{number}" if number else ""
        path = folder / f"{wanted.stem}{more}{wanted.suffix}"
        try:
            _write(path, text)
        except FileExistsError:
            continue
        except OSError as error:
            what = f"cannot write {path.name}: {why(error)}"
            raise ProblemError(Problem(what=what, where=str(folder))) from None
        return path
    raise ProblemError(Problem(what=f"there are a thousand files like {name}", where=str(folder)))


def _wanted(root: Path, name: str) -> Path:
    check_name(name)
    folder = root / name
    if os.path.lexists(folder):
        raise ProblemError(
            Problem(
                what=f"a run named {name!r} exists",
                where=str(root),
                fix="choose another name",
                exit_code=2,
            )
        )
    return folder


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODES.get(path.name, 0o600))
    with open(descriptor, "w", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _cannot_write(root: Path, folder: Path, error: OSError) -> ProblemError:
    if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and folder.exists():
        return ProblemError(
            Problem(what="a run of this name was made meanwhile", where=str(folder))
        )
    reason = {
        errno.EROFS: "it is on a read-only file system",
        errno.ENOSPC: "its disk is full",
        errno.EDQUOT: "your disk quota is used up",
        errno.EACCES: "you may not write there",
        errno.EPERM: "you may not write there",
        errno.ENOTDIR: "part of the path is a file",
        errno.EEXIST: "part of the path is a file",
    }.get(error.errno or 0, why(error))
    return ProblemError(
        Problem(
            what=f"cannot make the run folder: {reason}",
            where=str(root),
            fix="name another folder with --runs",
        )
    )


def list_runs(root: Path) -> tuple[RunSummary, ...]:
    """Runs under root: living ones first, then the newest."""
    try:
        folders = [run for entry in root.iterdir() if (run := _run_in(entry)) is not None]
    except OSError:
        return ()
    runs = [summary(folder) for folder in folders]
    return tuple(sorted(runs, key=lambda run: (not run.alive, -(run.updated or 0.0), run.name)))


def _run_in(folder: Path) -> Path | None:
    """The run that a folder is; of one of several machines, the folder of the first."""
    if folder.name.startswith("."):
        return None
    return next((run for run in (folder, folder / FIRST) if (run / "run.sh").is_file()), None)


def summary(folder: Path) -> RunSummary:
    """What the state of a run says, checked against the processes that are alive."""
    state, alive = read_json(folder / "state.json"), is_alive(folder)
    code = exit_code(state.get("exit_code"))
    if code is None and not alive:
        state = {**state, **_end_elsewhere(folder, state)}
        code = exit_code(state.get("exit_code"))
    launch = read_json(folder / "launch.json")
    started, rank = bool(launch), state.get("failed_rank")
    return RunSummary(
        name=title(folder),
        folder=folder,
        phase=TESTED
        if code == EXIT_OK and only_tested(folder)
        else (alive and _rank_phase(folder, state))
        or _text(state, "phase")
        or ("unknown" if started else "not started"),
        exit_code=code,
        alive=alive,
        updated=unix_seconds(state.get("updated")),
        message=_text(state, "message"),
        failure=_text(state, "failure") or None,
        failed_rank=rank if isinstance(rank, int) and not isinstance(rank, bool) else None,
        rebooted=launch.get("host") == socket.gethostname()
        and launch.get("boot_id") != process.boot_id(),
    )


def _rank_phase(folder: Path, state: Mapping[str, Any]) -> str:
    """What rank 0 does in the stage `training`, which begins before it trains; else nothing."""
    if _text(state, "phase") != "training":
        return ""
    for event in reversed(list(decode_all(_tail(folder / "events" / "rank-00000.jsonl")))):
        if event.get("attempt") != state.get("attempt"):
            break
        if event.get("phase"):
            return _text(event, "phase")
        if event.get("kind") in ("step", "train"):
            return "training"
    return "starting"


def check_started(folder: Path) -> None:
    """Raise ProblemError for a run that was written and never started."""
    signs = ("launch.json", "state.json", "result.json", "model", "checkpoints")
    if any((folder / sign).exists() for sign in signs) or any(folder.glob("events/*.jsonl")):
        return
    raise ProblemError(
        Problem(
            what="this run was never started",
            where=str(folder),
            fix=f"start it: bash {shlex.quote(str(folder / 'run.sh'))}",
        )
    )


def only_tested(folder: Path) -> bool:
    """Whether all that a run has done so far is a smoke test."""
    return (folder / "smoke.json").exists() and not (folder / "result.json").exists()


def _text(state: Mapping[str, Any], key: str) -> str:
    value = state.get(key)
    return value if isinstance(value, str) else ""


def _end_elsewhere(folder: Path, state: Mapping[str, Any]) -> dict[str, Any]:
    """How a run ended whose state.json does not say so: the disk was full, or it was damaged.

    The launcher's stream ends with `done` then; a result without any state is a training that
    came to its end.
    """
    last: Mapping[str, Any] = next(
        reversed(list(decode_all(_tail(folder / "events" / "launcher.jsonl")))), {}
    )
    attempt = state.get("attempt", 0)
    code = exit_code(last.get("exit_code")) if last.get("kind") == "done" else None
    if code is not None and last.get("attempt") == (attempt or last.get("attempt")):
        return {"exit_code": code, "phase": ENDINGS.get(code, "failed"), "updated": last["t"]}
    if not state and read_json(folder / "result.json"):
        return {"exit_code": EXIT_OK, "phase": "done"}
    return {}


def _tail(path: Path) -> bytes:
    """The last lines of a file; empty when it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
            return file.read()
    except OSError:
        return b""


def is_alive(folder: Path) -> bool:
    """Whether the launcher still runs, or anything it left behind, here or on another machine."""
    launch, state = read_json(folder / "launch.json"), read_json(folder / "state.json")
    return _runs_here(launch, state) or beats_elsewhere(
        launch, state, host=socket.gethostname(), now=time.time()
    )


def host_elsewhere(folder: Path) -> str | None:
    """The machine a living run is on when that is not this one."""
    launch, state = read_json(folder / "launch.json"), read_json(folder / "state.json")
    here = _runs_here(launch, state) or not is_alive(folder)
    return None if here else _text(launch, "host")


def _runs_here(launch: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    if launch.get("boot_id") != process.boot_id():
        return False
    return any(process.is_same(pid, at) for pid, at in recorded_processes(launch, state))


def find_run(root: Path, name_or_path: str | None) -> Path:
    """The folder of a run given by name or path; None is the first that `list_runs` gives.

    Raises ProblemError, offering the nearest name, when there is none.
    """
    if name_or_path is None:
        return _first_run(root)
    for folder in (root / name_or_path, paths.expanded(name_or_path)):
        if (found := _run_in(folder.absolute())) is not None:
            return found
    names = [run.name for run in list_runs(root)]
    near = difflib.get_close_matches(name_or_path, names, n=1, cutoff=0.4)
    raise ProblemError(
        Problem(
            what=f"no run named {name_or_path!r}",
            where=str(root),
            fix=f"did you mean {near[0]!r}?" if near else "`tunewright runs` lists them",
            exit_code=2,
        )
    )


def _first_run(root: Path) -> Path:
    for run in list_runs(root):
        return run.folder
    fix = "`tunewright run --model M --data D` starts one"
    raise ProblemError(Problem(what="there are no runs yet", where=str(root), fix=fix, exit_code=2))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty when there is none, or not a whole one."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
