"""Failure: what went wrong, as one class, one exit code and one sentence."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from engine.causes import class_of_text
from engine.events import EXIT_OK, EXIT_OTHER, FAILURE_EXIT
from engine.record import write_json
from engine.spec import SpecError
from engine.theirs import why, with_class

DISK_ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT)
TRACEBACK_CHARACTERS = 3000


class RunError(Exception):
    """A failure that is understood where it happens: its class, and a sentence for the user."""

    def __init__(self, failure: str, message: str) -> None:
        super().__init__(message)
        self.failure = failure

    def __reduce__(self) -> tuple[type[RunError], tuple[str, str]]:
        """Both arguments, so that one raised in another process arrives."""
        return type(self), (self.failure, str(self))


USER_FILES: set[str] = set()
"""Files of the user whose code was loaded into this process; see `engine.plugins`."""
NOT_THEIRS = ("gpu_oom", "host_oom", "disk_full", "lost_device")
"""What code of the user runs into rather than causes."""


def user_sentence(error: BaseException) -> str:
    """An error with the last line of the user's own code that it came through."""
    text = with_class(error)
    place = _user_place(error)
    return f"{place[0]}, line {place[1]}, in {place[2]}: {text}" if place else text


def _user_place(error: BaseException) -> tuple[str, int | None, str, bool] | None:
    """(file, line, function, whether it was raised right there), if user code was running."""
    frames = traceback.extract_tb(error.__traceback__)
    found = [number for number, frame in enumerate(frames) if frame.filename in USER_FILES]
    if not found:
        return None
    frame = frames[found[-1]]
    return frame.filename, frame.lineno, frame.name, found[-1] == len(frames) - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a process ends."""

    failure: str
    """A key of `engine.events.FAILURE_EXIT`."""
    code: int
    message: str
    traceback: str
    """Its tail; empty when the message says everything."""


def classify(error: BaseException) -> Failure:
    """The failure an exception stands for; never raises."""
    failure, known = _class_of(error)
    text = str(error) if known else with_class(error)
    place = None if known or failure in NOT_THEIRS else _user_place(error)
    if place is not None and (failure == "unknown" or place[3]):
        failure, text = "user_code", user_sentence(error)
    elif isinstance(error, OSError) and known:
        text = f"cannot write {error.filename or 'a file'}: {why(error)}"
    tail = "" if known else "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
    return Failure(failure=failure, code=FAILURE_EXIT[failure], message=text, traceback=tail)


def _class_of(error: BaseException) -> tuple[str, bool]:
    """(failure class, whether the error's own text is a sentence for the user)."""
    if isinstance(error, RunError):
        return error.failure, True
    if isinstance(error, SpecError):
        return "bad_spec", True
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return "disk_full", True
    if isinstance(error, MemoryError):
        return "host_oom", False
    names = {cls.__name__ for cls in type(error).__mro__}
    if "OutOfMemoryError" in names:
        return "gpu_oom", False
    failure = class_of_text(str(error))
    if failure is not None:
        return failure, False
    if names & {"DistBackendError", "DistNetworkError", "DistStoreError"}:
        return "comm_failed", False
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return "killed", False
    return "unknown", False


def write_exit_file(
    run: Path, *, attempt: int, rank: int, failure: Failure | None, code: int, last: str, step: int
) -> None:
    """Write `exit/<attempt>/rank-NNNNN.json`; a disk that refuses it is passed over."""
    said = (
        asdict(failure)
        if failure
        else {"failure": None, "code": code, "message": "", "traceback": ""}
    )
    path = run / "exit" / str(attempt) / f"rank-{rank:05d}.json"
    try:
        for folder in (path.parent.parent, path.parent):  # a run folder that is gone stays gone
            folder.mkdir(exist_ok=True)
        write_json(
            path,
            {**said, "last": last, "step": step, "t": round(time.time(), 3), "pid": os.getpid()},
        )
    except OSError as error:
        print(f"cannot write {path}: {why(error)}", file=sys.stderr)  # noqa: T201


NOW = "now"
"""What the stop file says when nothing is to be saved first."""


class Termination:
    """What SIGTERM does to a rank: it ends it at once or, while it trains, asks it to save first.

    torchrun, which ends its ranks when it is ended, waits half a minute for that. When it ends
    them because another rank was lost, their next collective fails and ends them anyway.
    """

    def __init__(self) -> None:
        self.asked = False
        self.can_save = False
        """Whether steps are being made, whose end is a place to save."""

    def heed(self, run: Path) -> None:
        """Install it for this process."""

        def stop(_signal: int, _frame: FrameType | None) -> None:
            if self.can_save and not is_urgent(run):
                self.asked = True
                return
            self.over()
            raise RunError(
                "killed", "ended from outside by SIGTERM, as torchrun does when a rank is lost"
            )

        signal.signal(signal.SIGTERM, stop)

    def over(self) -> None:
        """From here on the rank ends anyway: no signal cuts short what it says of its end."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def is_urgent(run: Path) -> bool:
    """Whether somebody asked the run to end at once, without saving first."""
    try:
        return (run / "stop").read_text(encoding="ascii").startswith(NOW)
    except (OSError, ValueError):
        return False


def command(body: Callable[[], None]) -> int:
    """Run a one-process command; its exit code, and one sentence on stderr when it fails."""
    try:
        body()
    except (Exception, KeyboardInterrupt) as error:
        failure = classify(error)
        print(failure.message, file=sys.stderr)  # noqa: T201
        if failure.code == EXIT_OTHER:
            print(failure.traceback, file=sys.stderr)  # noqa: T201
        return failure.code
    return EXIT_OK
