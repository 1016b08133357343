"""Processor, memory and disk, after the limits of both kinds of container."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from wizard.probe import host, probe_machine

GIB = 1024**3


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


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
        },
    )


def test_a_version_2_limit_counts_use_without_the_reclaimable_cache(tmp_path: Path) -> None:
    assert host.memory_limit(version_2(tmp_path)) == (8 * GIB, 3 * GIB)


def test_a_version_1_limit_counts_use_without_the_reclaimable_cache(tmp_path: Path) -> None:
    assert host.memory_limit(version_1(tmp_path, 6 * GIB)) == (6 * GIB, 2 * GIB)


def test_the_huge_number_of_version_1_is_no_limit(tmp_path: Path) -> None:
    assert host.memory_limit(version_1(tmp_path, 9223372036854771712)) == (None, None)


def test_the_tightest_group_above_decides(tmp_path: Path) -> None:
    root = version_2(tmp_path)
    (root / "sys/fs/cgroup/user/memory.max").write_text(f"{4 * GIB}\n")
    assert host.memory_limit(root)[0] == 4 * GIB


def test_a_quota_of_one_and_a_half_cores_is_one_core(tmp_path: Path) -> None:
    root = version_2(tmp_path)
    assert host.cpu_quota(root) == 1.5
    assert host.usable_cores(root) == 1


def test_a_limit_below_the_machine_is_what_the_facts_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit_bytes = psutil.virtual_memory().total // 2
    facts = host.read_host(version_2(tmp_path, limit=str(limit_bytes)))
    assert facts.memory_total_bytes == limit_bytes
    assert facts.memory_limit_source == "cgroup"
    assert (facts.memory_available_bytes or 0) <= max(0, limit_bytes - 3 * GIB)


def test_without_any_group_the_machine_itself_counts(tmp_path: Path) -> None:
    facts = host.read_host(tmp_path)
    assert facts.memory_total_bytes == psutil.virtual_memory().total
    assert facts.memory_limit_source is None


def test_the_free_disk_is_that_of_the_nearest_folder_that_exists(own_home: Path) -> None:
    facts = host.read_host()
    assert facts.disk_path == str(own_home)
    assert facts.disk_free_bytes


def test_probing_this_machine_gives_at_least_one_device() -> None:
    facts = probe_machine()
    assert facts.devices
    assert facts.host.cpu_cores
    assert facts.software.versions["transformers"]
