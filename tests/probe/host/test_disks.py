"""Disks: what is under a folder, how fast it is, and which other one is better."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.host.trees import GIB, mount, sizes, tree
from wizard.facts import Disk
from wizard.probe import disks

RUNS = {"runs": Path("/home/me/runs"), "tmp": Path("/tmp")}


def block(root: Path, number: str, disk: str, part: str = "", rotational: str = "0") -> None:
    """A disk, or a part of one, as /sys/dev/block points to it."""
    folder = root / "sys/devices/pci" / disk / part
    tree(root, {f"sys/devices/pci/{disk}/queue/rotational": rotational, "sys/dev/block/": ""})
    folder.mkdir(parents=True, exist_ok=True)
    (root / "sys/dev/block" / number).symlink_to(folder)


def speed_of(root: Path, kind: str, source: str, device: str = "8:1") -> str | None:
    (only,) = disks.mounts(tree(root, {"proc/self/mountinfo": mount("/", kind, source, device)}))
    return disks.speed(root, only)


@pytest.mark.parametrize(
    ("disk", "part", "rotational", "speed"),
    [
        ("nvme0n1", "nvme0n1p2", "0", "nvme"),
        ("sda", "sda1", "0", "ssd"),
        ("sda", "sda1", "1", "hdd"),
        ("sda", "", "1", "hdd"),
        ("vda", "vda1", "1", None),
        ("rbd0", "", "0", "network"),
    ],
)
def test_the_disk_under_a_file_system_tells_its_speed(
    tmp_path: Path, disk: str, part: str, rotational: str, speed: str | None
) -> None:
    block(tmp_path, "8:1", disk, part, rotational)
    assert speed_of(tmp_path, "ext4", f"/dev/{part or disk}") == speed


def test_disks_put_together_are_as_slow_as_the_slowest(tmp_path: Path) -> None:
    block(tmp_path, "253:0", "dm-0")
    block(tmp_path, "8:1", "sda", rotational="1")
    block(tmp_path, "259:1", "nvme0n1")
    slaves = tmp_path / "sys/devices/pci/dm-0/slaves"
    slaves.mkdir()
    for name in ("sda", "nvme0n1"):
        (slaves / name).symlink_to(tmp_path / "sys/devices/pci" / name)
    assert speed_of(tmp_path, "xfs", "/dev/mapper/data", "253:0") == "hdd"


def test_a_file_system_with_a_device_of_its_own_is_found_by_its_source(tmp_path: Path) -> None:
    tree(tmp_path, {"sys/class/block/nvme1n1/queue/rotational": "0"})
    assert speed_of(tmp_path, "btrfs", "/dev/nvme1n1", "0:35") == "nvme"


@pytest.mark.parametrize(
    ("kind", "source", "speed"),
    [
        ("tmpfs", "tmpfs", "memory"),
        ("nfs4", "server:/export", "network"),
        ("lustre", "10.0.0.1@o2ib:/scratch", "network"),
        ("fuse.juicefs", "JuiceFS:data", "network"),
        ("fuse", "storage:bucket", "network"),
        ("9p", "C:\\134", "network"),
        ("ext4", "/dev/disk/by-path/pci-0000:00:1f.2", None),
        ("overlay", "overlay", None),
        ("zfs", "tank/home", None),
    ],
)
def test_a_kind_of_file_system_tells_its_speed(
    tmp_path: Path, kind: str, source: str, speed: str | None
) -> None:
    assert speed_of(tmp_path, kind, source, "0:9") == speed


def test_folders_on_one_disk_are_one_disk(tmp_path: Path) -> None:
    table = mount("/", "ext4", "/dev/sda1") + mount("/tmp", "tmpfs", "tmpfs")
    root = tree(tmp_path, {"proc/self/mountinfo": table, "tmp/": "", "home/me/": ""})
    usage = sizes(root, {"/": (100, 40), "/tmp": (9, 8)})

    found = disks.read_disks(root, {**RUNS, "cache": Path("/home/me/cache")}, usage)

    assert found == (
        Disk(
            path="/",
            free_bytes=40,
            total_bytes=100,
            kind="ext4",
            speed=None,
            used_for=("runs", "cache"),
        ),
        Disk(
            path="/tmp",
            free_bytes=8,
            total_bytes=9,
            kind="tmpfs",
            speed="memory",
            used_for=("tmp",),
        ),
    )


def test_spaces_in_a_mount_point_are_written_as_numbers(tmp_path: Path) -> None:
    table = mount("/my\\040disk", "ext4", "/dev/sda1")
    (only,) = disks.mounts(tree(tmp_path, {"proc/self/mountinfo": table}))
    assert only.point == "/my disk"


def test_of_two_file_systems_at_one_place_the_later_hides_the_other(tmp_path: Path) -> None:
    table = mount("/data", "ext4", "/dev/sda1") + mount("/data", "nfs4", "server:/data")
    found = disks.mounts(tree(tmp_path, {"proc/self/mountinfo": table}))
    on_top = disks.mount_of(found, Path("/data/runs"))
    assert on_top is not None
    assert on_top.kind == "nfs4"


@pytest.mark.parametrize("text", ["", "garbage\n", "1 2 3 - \n", "\x00"])
def test_a_broken_table_of_mounts_has_no_entries(tmp_path: Path, text: str) -> None:
    assert disks.mounts(tree(tmp_path, {"proc/self/mountinfo": text})) == ()


def suggest(
    root: Path, table: str, free: dict[str, tuple[int, int]], make: tuple[str, ...] = ()
) -> str | None:
    files = {"proc/self/mountinfo": table, "home/me/": "", **{f"{name}/": "" for name in make}}
    tree(root, files)
    usage = sizes(root, free)
    return disks.suggested_home(root, disks.read_disks(root, RUNS, usage), usage)


ROOT = mount("/", "ext4", "/dev/sda1")
SMALL = {"/": (40 * GIB, 12 * GIB)}


def test_a_large_disk_beside_a_small_root_is_suggested(tmp_path: Path) -> None:
    table = ROOT + mount("/data", "xfs", "/dev/nvme1n1")
    free = {**SMALL, "/data": (2000 * GIB, 1900 * GIB)}
    assert suggest(tmp_path, table, free, ("data",)) == "/data"


def test_a_containers_own_layer_beside_a_volume_is_left_for_it(tmp_path: Path) -> None:
    table = mount("/", "overlay", "overlay") + mount("/workspace", "fuse", "mfs:1")
    free = {"/": (20 * GIB, 19 * GIB), "/workspace": (500 * GIB, 400 * GIB)}
    assert suggest(tmp_path, table, free, ("workspace",)) == "/workspace"


def test_a_local_disk_is_better_than_a_larger_one_over_the_network(tmp_path: Path) -> None:
    table = ROOT + mount("/nfs", "nfs4", "s:/x") + mount("/data", "xfs", "/dev/sdb1")
    free = {**SMALL, "/nfs": (9000 * GIB, 8000 * GIB), "/data": (500 * GIB, 400 * GIB)}
    assert suggest(tmp_path, table, free, ("nfs", "data")) == "/data"


@pytest.mark.parametrize(
    "other",
    [
        mount("/boot/big", "xfs", "/dev/sdb1"),
        mount("/data", "squashfs", "/dev/loop1"),
        mount("/data", "tmpfs", "tmpfs"),
        mount("/data", "xfs", "/dev/sdb1", options="ro,relatime"),
        mount("/not/there", "xfs", "/dev/sdb1"),
        "",
    ],
)
def test_what_one_cannot_keep_data_on_is_not_suggested(tmp_path: Path, other: str) -> None:
    everything_large = {**SMALL, "/data": (900 * GIB, 900 * GIB), "/boot": (900 * GIB, 900 * GIB)}
    assert suggest(tmp_path, ROOT + other, everything_large, ("data", "boot/big")) is None


def test_with_room_enough_nothing_is_suggested(tmp_path: Path) -> None:
    table = ROOT + mount("/data", "xfs", "/dev/sdb1")
    free = {"/": (900 * GIB, 300 * GIB), "/data": (9000 * GIB, 9000 * GIB)}
    assert suggest(tmp_path, table, free, ("data",)) is None


def test_a_folder_is_tried_by_making_a_file_that_leaves_nothing_behind(tmp_path: Path) -> None:
    (found,) = disks.read_folders({"runs": tmp_path / "not" / "yet"})

    assert found.writable
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_should_be_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (found,) = disks.read_folders({"runs": tmp_path / "file"})

    assert not found.writable
    assert found.why_not == "Not a directory"
