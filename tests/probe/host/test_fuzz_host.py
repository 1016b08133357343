"""Whatever the kernel's files hold, the host is read without an error."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from wizard.facts import Facts, Software
from wizard.probe import cgroup, checks, disks, host, limits
from wizard.probe.detached import Starter, what_ends_runs
from wizard.probe.software import torch_build

FILES = (
    "proc/meminfo",
    "proc/cpuinfo",
    "proc/self/cgroup",
    "proc/self/limits",
    "proc/self/mountinfo",
    "proc/self/stat",
    "proc/self/status",
    "proc/1/comm",
    "proc/sys/kernel/osrelease",
    "sys/fs/cgroup/cpu.max",
    "sys/fs/cgroup/memory.max",
    "sys/fs/cgroup/memory.current",
    "sys/fs/cgroup/memory.stat",
    "sys/devices/system/cpu/online",
    "sys/devices/system/node/node0/cpulist",
    "sys/devices/system/node/node0/meminfo",
    "sys/class/net/eth0/operstate",
    "sys/class/net/eth0/speed",
    "etc/systemd/logind.conf",
)
WORDS = st.sampled_from(
    (
        *("0::/", "4:memory:/a", "max", "-1", "18446744073709551616", "100000 0", "²", "../.."),
        *("MemTotal: x kB", "MemTotal: 8 kB", "Cpus_allowed_list: 0-", "Max open files  unlimited"),
        # Longer than Python turns into a number, and more processors than fit in memory.
        *("9" * 5000, f"MemTotal: {'9' * 5000} kB", "0-99999999999999"),
        "Cpus_allowed_list: 0-99999999999999",
        "36 25 0:1 / /a\\999b rw - ext4 /dev/a rw",
    )
)
TEXTS = st.one_of(
    st.binary(max_size=60),
    st.lists(WORDS, max_size=5).map(lambda words: "\n".join(words).encode()),
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), TEXTS, max_size=8))
def test_nonsense_in_any_file_never_raises(contents: dict[str, bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(text)

        here = host.read_host(root, {})
        cgroup.memory_groups(root)
        limits.open_files(root)
        disks.mounts(root)
        what_ends_runs(root, Starter(user="me", environment={}, container="docker"))
        torch_build(next(iter(contents.values()), b"").decode("utf-8", "replace"))
        said = checks.check(Facts(devices=(), host=here, software=Software(python="3.12.4")))

    assert (here.cpu_cores or 0) >= 1
    assert all(problem.what and problem.where for problem in said)
