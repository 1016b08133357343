"""File systems a run writes to: how full, how fast, and whether a better one is mounted."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from engine.theirs import why
from wizard.facts import GIB, Disk, Folder
from wizard.probe.reading import below, entries, exists, line, text

Speed: TypeAlias = Literal["nvme", "ssd", "hdd", "memory", "network"]
Usage: TypeAlias = Callable[[Path], tuple[int, int, int]]
"""Folder → (total, used, free) bytes of its file system; raises OSError."""

IN_MEMORY = ("tmpfs", "ramfs")
NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "glusterfs",
        "9p",
        "afs",
        "panfs",
        "wekafs",
        "davfs",
        "orangefs",
        "fuse.sshfs",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.gcsfuse",
        "fuse.rclone",
        "fuse.glusterfs",
        "fuse.ceph",
        "fuse.mfs",
        "fuse.mountpoint-s3",
        "fuse.blobfuse2",
        "fuse.blobfuse",
        "fuse.goofys",
        "fuse.cephfs",
    ]
)
NOT_FOR_DATA = frozenset(
    [
        "proc",
        "sysfs",
        "cgroup",
        "cgroup2",
        "devtmpfs",
        "devpts",
        "mqueue",
        "overlay",
        "squashfs",
        "iso9660",
        "vfat",
        "efivarfs",
        "nsfs",
        "fusectl",
        "securityfs",
        "debugfs",
        "tracefs",
        "bpf",
        "pstore",
        "autofs",
        "hugetlbfs",
        "configfs",
        "rpc_pipefs",
        "binfmt_misc",
        "fuse.lxcfs",
        "fuse.portal",
        "fuse.gvfsd-fuse",
        "fuse.snapfuse",
    ]
)
SYSTEM_FOLDERS = re.compile(r"/(proc|sys|dev|run|boot|etc|snap|usr|lib|var/lib|tmp|init)(/|$)")
VIRTUAL_DISK = re.compile(r"(vd|xvd)[a-z]+")
"""Their `rotational` says nothing about the disk behind them."""
NETWORK_DISK = re.compile(r"(rbd|nbd|drbd)\d+")

SMALL_BYTES = 60 * GIB
"""With less free, the runs' disk is worth leaving for a larger one."""
LARGE_BYTES = 100 * GIB
TIMES_LARGER = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Mount:
    """One mounted file system."""

    point: str
    kind: str
    device: str
    """`major:minor`."""
    source: str
    read_only: bool


def mounts(root: Path) -> tuple[Mount, ...]:
    """Everything mounted, in the order of mounting."""
    found = (_mount(row) for row in text(root / "proc/self/mountinfo").splitlines())
    return tuple(mount for mount in found if mount is not None)


def _mount(row: str) -> Mount | None:
    before, mark, after = row.partition(" - ")
    fields, rest = before.split(" "), after.split(" ")
    if not mark or len(fields) < 6 or len(rest) < 2:
        return None
    options = fields[5].split(",") + (rest[2].split(",") if len(rest) > 2 else [])
    return Mount(
        point=_unescaped(fields[4]),
        kind=rest[0],
        device=fields[2],
        source=_unescaped(rest[1]),
        read_only="ro" in options,
    )


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)


def read_disks(
    root: Path, wanted: Mapping[str, Path], usage: Usage = shutil.disk_usage
) -> tuple[Disk, ...]:
    """The file systems under these folders; `wanted`: what a folder is used for → the folder."""
    table = mounts(root)
    used: dict[str, list[str]] = {}
    for purpose, folder in wanted.items():
        mount = mount_of(table, folder)
        used.setdefault(mount.point if mount else str(folder), []).append(purpose)
    found = (_disk(root, table, point, tuple(for_what), usage) for point, for_what in used.items())
    return tuple(disk for disk in found if disk is not None)


def mount_of(table: Sequence[Mount], folder: Path) -> Mount | None:
    """The file system a folder is on; of two at one place the later one hides the other."""
    inside = [mount for mount in table if folder.is_relative_to(mount.point)]
    return max(reversed(inside), key=lambda mount: len(mount.point), default=None)


def _disk(
    root: Path, table: Sequence[Mount], point: str, used_for: tuple[str, ...], usage: Usage
) -> Disk | None:
    try:
        total_bytes, _, free_bytes = usage(_nearest(below(root, point)))
    except OSError:
        return None
    mount = next((one for one in reversed(table) if one.point == point), None)
    return Disk(
        path=point,
        free_bytes=free_bytes,
        total_bytes=total_bytes,
        kind=mount.kind if mount else "",
        speed=speed(root, mount) if mount else None,
        used_for=used_for,
    )


def speed(root: Path, mount: Mount) -> Speed | None:
    """How fast a file system is, by its kind and the disk under it; None when not known."""
    if mount.kind in IN_MEMORY:
        return "memory"
    server = ":" in mount.source and not mount.source.startswith("/")
    if mount.kind in NETWORK or server:
        return "network"
    folder = root / "sys/dev/block" / mount.device
    if not exists(folder):  # btrfs and others with devices of their own name them in the source
        folder = root / "sys/class/block" / Path(mount.source).name
    return _block_speed(folder) if exists(folder) else None


def _block_speed(folder: Path, depth: int = 4) -> Speed | None:
    """Of a disk, a part of one, or what is put together of several: the slowest of them."""
    under = entries(folder / "slaves")
    if under and depth:
        speeds = {_block_speed(one, depth - 1) for one in under}
        slowest: tuple[Speed | None, ...] = ("network", "hdd", None, "ssd", "nvme")
        return next((one for one in slowest if one in speeds), None)
    real = Path(os.path.realpath(folder))
    names = (real.name, real.parent.name)
    if any(name.startswith("nvme") for name in names):
        return "nvme"
    if any(NETWORK_DISK.match(name) for name in names):
        return "network"
    if any(VIRTUAL_DISK.match(name) for name in names):
        return None
    turns = line(real / "queue/rotational") or line(real.parent / "queue/rotational")
    answers: dict[str, Speed] = {"0": "ssd", "1": "hdd"}
    return answers.get(turns)


def suggested_home(
    root: Path, disks: Sequence[Disk], usage: Usage = shutil.disk_usage
) -> str | None:
    """A mounted disk much larger than that of the runs; None when theirs is good enough."""
    runs = next((disk for disk in disks if "runs" in disk.used_for), None)
    if runs is None or (runs.free_bytes >= SMALL_BYTES and runs.kind not in IN_MEMORY):
        return None
    found: list[tuple[bool, int, str]] = []
    for mount in mounts(root):
        free_bytes = _free_for_data(root, mount, usage)
        if free_bytes >= max(LARGE_BYTES, TIMES_LARGER * runs.free_bytes):
            found.append((speed(root, mount) != "network", free_bytes, mount.point))
    return max(found)[2] if found else None


def _free_for_data(root: Path, mount: Mount, usage: Usage) -> int:
    """Free bytes of a mounted disk that one may write to; 0 for any other."""
    unfit = mount.read_only or mount.kind in NOT_FOR_DATA or mount.kind in IN_MEMORY
    folder = below(root, mount.point)
    if unfit or mount.point == "/" or SYSTEM_FOLDERS.match(mount.point):
        return 0
    try:
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            return 0
        return usage(folder)[2]
    except OSError:
        return 0


def read_folders(wanted: Mapping[str, Path]) -> tuple[Folder, ...]:
    """Whether a file can be made in each of these folders, tried by making one."""
    return tuple(_folder(purpose, folder) for purpose, folder in wanted.items())


def _folder(purpose: str, folder: Path) -> Folder:
    why_not = ""
    try:
        # A temporary file without a name: nothing is left behind, whatever ends us.
        with tempfile.TemporaryFile(dir=_nearest(folder)):
            pass
    except OSError as error:
        why_not = why(error)
    return Folder(path=str(folder), used_for=purpose, writable=not why_not, why_not=why_not)


def _nearest(path: Path) -> Path:
    """The folder itself, or the nearest above it that exists."""
    return next((folder for folder in (path, *path.parents) if exists(folder)), path)
