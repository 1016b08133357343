"""What control groups leave, in both versions and at every level."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.probe.host.trees import GIB, MIB, tree
from wizard.probe import cgroup


def version_2(root: Path, limit: str = f"{8 * GIB}") -> Path:
    group = "sys/fs/cgroup/user/job"
    return tree(
        root,
        {
            "proc/self/cgroup": "0::/user/job\n",
            f"{group}/memory.max": f"{limit}\n",
            f"{group}/memory.current": f"{5 * GIB}\n",
            f"{group}/memory.stat": f"anon 100\ninactive_file {2 * GIB}\n",
            f"{group}/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/user/memory.max": "max\n",
        },
    )


def version_1(root: Path, limit_bytes: int) -> Path:
    group = "sys/fs/cgroup/memory/docker/abc"
    return tree(
        root,
        {
            "proc/self/cgroup": "4:memory:/docker/abc\n3:cpu,cpuacct:/\n0::/\n",
            f"{group}/memory.limit_in_bytes": f"{limit_bytes}\n",
            f"{group}/memory.usage_in_bytes": f"{3 * GIB}\n",
            f"{group}/memory.stat": f"total_inactive_file {GIB}\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "250000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )


def limits(root: Path) -> list[tuple[int, int | None]]:
    return [(group.limit_bytes, group.used_bytes) for group in cgroup.memory_groups(root)]


def test_a_version_2_limit_counts_use_without_the_reclaimable_cache(tmp_path: Path) -> None:
    assert limits(version_2(tmp_path)) == [(8 * GIB, 3 * GIB)]


def test_a_version_1_limit_counts_use_without_the_reclaimable_cache(tmp_path: Path) -> None:
    assert limits(version_1(tmp_path, 6 * GIB)) == [(6 * GIB, 2 * GIB)]


def test_the_huge_number_of_version_1_is_no_limit(tmp_path: Path) -> None:
    assert limits(version_1(tmp_path, 9223372036854771712)) == []


def test_every_group_above_counts(tmp_path: Path) -> None:
    root = version_2(tmp_path)
    (root / "sys/fs/cgroup/user/memory.max").write_text(f"{4 * GIB}\n")
    assert [limit for limit, _ in limits(root)] == [8 * GIB, 4 * GIB]


def test_a_group_outside_our_namespace_is_found_by_what_is_above_us(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/../../other\n",
            "sys/fs/cgroup/memory.max": f"{GIB}\n",
            "sys/fs/cgroup/memory.current": f"{512 * MIB}\n",
        },
    )
    assert limits(root) == [(GIB, 512 * MIB)]


def test_the_unified_tree_beside_version_1_is_read_where_it_is_mounted(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "1:name=systemd:/\n0::/job\n",
            "sys/fs/cgroup/unified/job/memory.max": f"{2 * GIB}\n",
        },
    )
    assert limits(root) == [(2 * GIB, None)]


@pytest.mark.parametrize(
    ("row", "quota"),
    [("150000 100000", 1.5), ("max 100000", None), ("", None), ("x y", None), ("100000 0", None)],
)
def test_a_version_2_quota_is_time_per_period(
    tmp_path: Path, row: str, quota: float | None
) -> None:
    files = {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": row}
    assert cgroup.cpu_quota(tree(tmp_path, files)) == quota


def test_a_version_1_quota_is_read_where_its_controllers_are_joined(tmp_path: Path) -> None:
    assert cgroup.cpu_quota(version_1(tmp_path, GIB)) == 2.5


def test_minus_one_is_no_quota(tmp_path: Path) -> None:
    root = version_1(tmp_path, GIB)
    (root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us").write_text("-1\n")
    assert cgroup.cpu_quota(root) is None


@pytest.mark.parametrize(
    ("files", "swap"),
    [
        ({"sys/fs/cgroup/memory.swap.max": "0\n"}, 0),
        ({"sys/fs/cgroup/memory.swap.max": "max\n"}, None),
    ],
)
def test_swap_of_the_machine_is_not_that_of_the_container(
    tmp_path: Path, files: dict[str, str], swap: int | None
) -> None:
    assert cgroup.swap_limit(tree(tmp_path, {"proc/self/cgroup": "0::/\n", **files})) == swap


def test_version_1_limits_memory_and_swap_together(tmp_path: Path) -> None:
    root = version_1(tmp_path, 6 * GIB)
    folder = root / "sys/fs/cgroup/memory/docker/abc"
    (folder / "memory.memsw.limit_in_bytes").write_text(f"{7 * GIB}\n")
    assert cgroup.swap_limit(root) == GIB


@pytest.mark.parametrize("text", ["", "\n", "no colons\n", "0:\n", "\x00\xff", ":::::\n"])
def test_a_broken_list_of_groups_is_no_limit(tmp_path: Path, text: str) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": text})
    assert (limits(root), cgroup.cpu_quota(root), cgroup.swap_limit(root)) == ([], None, None)
