"""One run per device, whoever of this machine's users starts it. Standard library only.

A lock belongs to an open file, not to a process: run.sh opens the files and this module locks
what it inherited, so a lock lives exactly as long as run.sh or torchrun do.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import getpass
import hashlib
import os
import sys
from pathlib import Path

from engine.events import EXIT_CANNOT_WRITE, EXIT_NO_DEVICES, EXIT_OK, printable
from engine.record import say
from engine.theirs import why

FOLDER = Path("/tmp")
SAID_BYTES = 4096


def path_of(device: str) -> Path:
    """The file that stands for a device."""
    return FOLDER / f"tunewright-{hashlib.sha256(device.encode()).hexdigest()[:16]}.lock"


def make(device: str) -> Path:
    """The device's file, there and open to every user.

    Raises OSError.
    """
    path = path_of(device)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        try:
            os.fchmod(descriptor, 0o666)  # whoever comes next writes its name, whatever our umask
        finally:
            os.close(descriptor)
    if path.is_symlink() or not path.is_file():
        raise OSError(f"{path} is no ordinary file")
    return path


def take(descriptor: int, device: str, run: Path) -> str:
    """Lock an inherited file for a run; who has it when that fails, in words, else empty.

    It is open for reading: where /tmp is protected, nobody may open another user's file there in
    a way that could also make it, which is how a shell opens for writing.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        said = os.pread(descriptor, SAID_BYTES, 0).decode("utf-8", "replace").strip()
        return printable(said) or "another run"
    with contextlib.suppress(OSError):
        writable = os.open(path_of(device), os.O_WRONLY | os.O_NOFOLLOW)
        try:
            content = f"the run {run} of {_user()}, process {os.getppid()}\n".encode()
            os.ftruncate(writable, os.pwrite(writable, content, 0))
        finally:
            os.close(writable)
    return ""


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def lockable(kind: str, visible: str) -> list[str]:
    """Names under which devices are the same for everybody here.

    CUDA devices without a UUID are numbered anew for each process, and CPU ranks share.
    """
    names = [name for name in visible.split(",") if name]
    if kind == "npu":
        return [f"npu:{name}" for name in names]
    return [name for name in names if "-" in name]


def main(given: list[str] | None = None) -> int:
    """Print the files of devices, or lock those that were opened; the exit code."""
    parser = argparse.ArgumentParser(prog="engine.locks", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    files = commands.add_parser("files", help="a line for each device: its name, then its file")
    files.add_argument("kind")
    files.add_argument("visible", help="as the variable names them, with commas")
    lock = commands.add_parser("take", help="lock files that are open under these numbers")
    lock.add_argument("opened", nargs="+", metavar="NUMBER:DEVICE")
    options = parser.parse_args(given)
    if options.command == "files":
        try:
            for device in lockable(options.kind, options.visible):
                print(f"{device} {make(device)}")  # noqa: T201
        except OSError as error:
            say(f"cannot make a lock: {why(error)}")
            return EXIT_CANNOT_WRITE
        return EXIT_OK
    for word in options.opened:
        number, _, device = word.partition(":")
        owner = take(int(number), device, Path.cwd())
        if owner:
            say(f"{device} is in use by {owner}: wait with --after, or share with --share-devices")
            return EXIT_NO_DEVICES
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
