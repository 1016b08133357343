"""Native code compiled at its first use: where it is kept, and what a killed build leaves."""

from __future__ import annotations

import os
import re
import stat
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from engine.failure import RunError

LONGEST_BUILD_SECONDS = 1800
NETWORK_DISKS = re.compile(
    r"nfs[0-9]*|lustre|cifs|smb[0-9]*|smbfs|afs|ceph|gpfs|beegfs\w*|pvfs2|wekafs|panfs"
    r"|fuse\.(glusterfs|sshfs|juicefs|ceph|cephfs|s3fs|gcsfuse|rclone|mfs|moosefs)"
)
"""Kinds of file systems, as the kernel names them, whose files lie on another machine."""
MOUNTS = Path("/proc/self/mounts")


def keep_builds_here(mounts: Path = MOUNTS, local: Path | None = None) -> str | None:
    """Move caches of compiled code that lie on a network disk to this machine; what to say of it.

    There, builds of several machines meet, and ranks can wait for a lock when all is done. What the
    environment names stays as it is. `local` is the folder for temporary files when None.
    Call it before torch, Triton or DeepSpeed are loaded.
    """
    disks = _disks(mounts)
    there = {
        name: folder
        for name, folder in {"TRITON_CACHE_DIR": _triton(), "TORCH_EXTENSIONS_DIR": _root()}.items()
        if not os.environ.get(name) and NETWORK_DISKS.fullmatch(_disk_of(folder, disks))
    }
    if not there:
        return None
    found = ", ".join(f"{folder} ({_disk_of(folder, disks)})" for folder in there.values())
    own = (local or Path(tempfile.gettempdir())) / f"tunewright-{os.getuid()}"
    if NETWORK_DISKS.fullmatch(_disk_of(own, disks)) or not _is_private(own):
        return (
            f"compiled code is kept on a network disk, {found}, where a run can hang at its end: "
            f"set {' and '.join(there)} to folders of this machine"
        )
    for name, folder in there.items():
        os.environ[name] = str(own / folder.name)
    return f"compiled code is kept in {own}, not on a network disk, {found}"


def _is_private(folder: Path) -> bool:
    """Whether a folder, made if it is missing, is ours alone: code is loaded from there."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    return ours and not found.st_mode & 0o077


def _disks(mounts: Path) -> Mapping[Path, str]:
    """Where disks are mounted → the kind of file system; a later one covers an earlier one."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return {}
    fields = [line.split(" ") for line in lines]
    octal = re.compile(r"\\([0-7]{3})")  # blanks of a name are written so
    return {
        Path(octal.sub(lambda code: chr(int(code[1], 8)), parts[1])): parts[2]
        for parts in fields
        if len(parts) > 2
    }


def _disk_of(folder: Path, disks: Mapping[Path, str]) -> str:
    """The kind of file system that a folder, which may not be there yet, lies on; "" unknown."""
    whole = folder.resolve()
    return next((disks[place] for place in (whole, *whole.parents) if place in disks), "")


def _triton() -> Path:
    """Where Triton keeps kernels."""
    home = os.environ.get("TRITON_HOME")
    return (Path(home) if home else Path.home()) / ".triton"


def refuse_stale_locks(now: float | None = None) -> None:
    """A build that was killed leaves its lock, and every later one waits for it without a word.

    Raises RunError (bad_spec) naming the file to remove.
    """
    now = time.time() if now is None else now
    for lock in sorted([*_root().glob("*/lock"), *_root().glob("*/*/lock")]):
        try:
            age = now - lock.stat().st_mtime
        except OSError:  # built meanwhile
            continue
        if age > LONGEST_BUILD_SECONDS:
            raise RunError(
                "bad_spec",
                f"{lock}: left {age / 60:,.0f} minutes ago by a build of {lock.parent.name} that "
                "was killed, and a new one would wait for it for ever: remove that file",
            )


def _root() -> Path:
    """Where torch builds extensions."""
    named = os.environ.get("TORCH_EXTENSIONS_DIR")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named) if named else cache / "torch_extensions"
