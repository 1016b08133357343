"""The host's facts on machines that are made of files."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.probe.host.trees import GIB, LIMITS, MIB, meminfo, mount, sizes, tree
from wizard.facts import Host
from wizard.probe import host

ONE_DISK = {"/": (100 * GIB, 80 * GIB)}


def machine(root: Path, files: dict[str, str] | None = None) -> Path:
    """64 GiB, 12 processors, one disk; other files in addition."""
    plain = {
        "proc/meminfo": meminfo(64 * GIB, 60 * GIB, swap=8 * GIB),
        "proc/cpuinfo": "processor: 0\nmodel name: Ryzen 9 5900X\nflags: fpu avx2\n",
        "proc/self/status": "Name:\tpython\nCpus_allowed_list:\t0-11\n",
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": mount("/", "ext4", "/dev/sda1", "8:1"),
        "proc/self/limits": LIMITS.format(memlock="8388608"),
        "proc/sys/kernel/hostname": "box\n",
        "proc/sys/kernel/ostype": "Linux\n",
        "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
        "sys/devices/system/cpu/online": "0-11\n",
        "sys/devices/system/node/node0/cpulist": "0-11\n",
        "dev/shm/": "",
        "tmp/": "",
    }
    return tree(root, {**plain, **(files or {})})


def read(root: Path, variables: dict[str, str] | None = None) -> Host:
    given = {"HOME": "/home/me", "PATH": "/usr/bin"} if variables is None else variables
    return host.read_host(root, given, sizes(root, ONE_DISK))


def test_a_plain_machine_is_read_field_by_field(tmp_path: Path) -> None:
    facts = read(machine(tmp_path))

    assert facts.hostname == "box"
    assert facts.system == "Linux 6.8.0-45-generic"
    assert facts.cpu_name == "Ryzen 9 5900X"
    assert (facts.cpu_cores, facts.cpu_limit_source) == (12, None)
    assert (facts.memory_total_bytes, facts.memory_available_bytes) == (64 * GIB, 60 * GIB)
    assert facts.memory_limit_source is None
    assert facts.disk_free_bytes == 80 * GIB
    around = facts.surroundings
    assert (around.swap_bytes, around.memlock_bytes, around.open_files) == (8 * GIB, 8 * MIB, 1024)
    assert (around.numa_nodes, around.memory_only_nodes) == (1, 0)
    assert (around.container, around.wsl, around.slurm_job) == (None, False, None)
    assert (around.virtual_machine, around.login_node) == (None, False)
    assert around.ends_detached_runs is None


def test_an_empty_machine_gives_unknowns_and_never_raises(tmp_path: Path) -> None:
    facts = host.read_host(tmp_path, {})

    assert facts.memory_total_bytes is None
    assert facts.surroundings.numa_nodes is None
    assert facts.surroundings.memlock_bytes is None
    assert facts.cpu_cores


def test_the_least_of_the_machine_and_each_group_is_what_may_be_used(tmp_path: Path) -> None:
    root = machine(
        tmp_path,
        {
            "proc/self/cgroup": "0::/slice/job\n",
            "sys/fs/cgroup/slice/memory.max": f"{16 * GIB}\n",
            "sys/fs/cgroup/slice/memory.current": f"{15 * GIB}\n",
            "sys/fs/cgroup/slice/job/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/slice/job/memory.current": f"{2 * GIB}\n",
        },
    )
    facts = read(root)

    # The job's own limit is the lower one; a neighbour in the slice leaves less than that.
    assert facts.memory_total_bytes == 8 * GIB
    assert facts.memory_available_bytes == GIB
    assert facts.memory_limit_source == "cgroup"


def test_a_limit_above_the_machine_is_none(tmp_path: Path) -> None:
    root = machine(tmp_path, {"sys/fs/cgroup/memory.max": f"{900 * GIB}\n"})
    facts = read(root)

    assert (facts.memory_total_bytes, facts.memory_limit_source) == (64 * GIB, None)


def test_memory_of_nodes_without_processors_is_not_the_hosts(tmp_path: Path) -> None:
    """NVIDIA GH200 shows the card's memory as nodes of its own: bytedance/xpu-perf#129."""
    node = "sys/devices/system/node"
    hbm_kib = 16 * GIB // 1024
    root = machine(
        tmp_path,
        {
            f"{node}/node1/cpulist": "\n",
            f"{node}/node1/meminfo": f"Node 1 MemTotal: {hbm_kib} kB\nNode 1 MemFree: 1024 kB\n",
            f"{node}/node2/cpulist": "\n",
        },
    )
    facts = read(root)

    assert facts.memory_total_bytes == 48 * GIB
    assert (facts.surroundings.numa_nodes, facts.surroundings.memory_only_nodes) == (1, 2)
    assert facts.memory_available_bytes == 48 * GIB


def test_fewer_allowed_processors_than_present_are_what_counts(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t2,4-6\n"})

    assert (read(root).cpu_cores, read(root).cpu_limit_source) == (4, "affinity")


def test_less_than_one_core_is_one(tmp_path: Path) -> None:
    root = machine(tmp_path, {"sys/fs/cgroup/cpu.max": "5000 100000\n"})

    assert (read(root).cpu_cores, read(root).cpu_limit_source) == (1, "cgroup")


@pytest.mark.parametrize(
    ("files", "variables", "kind"),
    [
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({"proc/self/cgroup": "0::/kubepods/pod1\n"}, {}, "kubernetes"),
        ({}, {"APPTAINER_CONTAINER": "/x.sif"}, "apptainer"),
        ({"run/systemd/container": "systemd-nspawn\n"}, {}, "systemd-nspawn"),
        ({}, {"container": "lxc"}, "lxc"),
        ({}, {}, None),
    ],
)
def test_the_kind_of_container_is_told_by_its_traces(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], kind: str | None
) -> None:
    assert read(machine(tmp_path, files), variables).surroundings.container == kind


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}, "Amazon EC2"),
        ({"sys/class/dmi/id/sys_vendor": "Dell Inc.\n"}, "virtual machine"),
        ({}, "virtual machine"),
    ],
)
def test_a_hypervisor_makes_a_virtual_machine(
    tmp_path: Path, files: dict[str, str], kind: str
) -> None:
    flags = {"proc/cpuinfo": "flags: fpu hypervisor\n"}
    assert read(machine(tmp_path, {**flags, **files})).surroundings.virtual_machine == kind


def test_bare_metal_of_a_cloud_is_no_virtual_machine(tmp_path: Path) -> None:
    files = {"sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}
    assert read(machine(tmp_path, files)).surroundings.virtual_machine is None


def test_interfaces_that_are_up_and_lead_outside_are_listed(tmp_path: Path) -> None:
    net = "sys/class/net"
    root = machine(
        tmp_path,
        {
            f"{net}/eno1/operstate": "up\n",
            f"{net}/eno1/speed": "25000\n",
            f"{net}/eno2/operstate": "down\n",
            f"{net}/ib0/operstate": "up\n",
            f"{net}/ib0/speed": "-1\n",
            f"{net}/docker0/operstate": "up\n",
            f"{net}/veth12ab/operstate": "up\n",
            f"{net}/lo/operstate": "unknown\n",
        },
    )
    assert read(root).surroundings.network == ("eno1 25 Gbit/s", "ib0")


def test_active_ports_of_adapters_are_listed_with_their_rate(tmp_path: Path) -> None:
    adapters = "sys/class/infiniband"
    root = machine(
        tmp_path,
        {
            f"{adapters}/mlx5_0/ports/1/state": "4: ACTIVE\n",
            f"{adapters}/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            f"{adapters}/mlx5_0/ports/1/link_layer": "InfiniBand\n",
            f"{adapters}/mlx5_1/ports/1/state": "4: ACTIVE\n",
            f"{adapters}/mlx5_1/ports/1/rate": "100 Gb/sec (4X EDR)\n",
            f"{adapters}/mlx5_1/ports/1/link_layer": "Ethernet\n",
            f"{adapters}/mlx5_2/ports/1/state": "1: DOWN\n",
        },
    )
    assert read(root).surroundings.infiniband == (
        "mlx5_0 400 Gb/sec (4X NDR)",
        "mlx5_1 100 Gb/sec (4X EDR) over Ethernet",
    )


@pytest.mark.parametrize(
    ("files", "variables", "login"),
    [
        ({"usr/bin/sbatch": ""}, {}, True),
        ({"usr/bin/sbatch": "", "run/slurmd.pid": "1"}, {}, False),
        ({"usr/bin/sbatch": ""}, {"SLURM_JOB_ID": "7"}, False),
        (
            {
                "usr/bin/qsub": "",
                "run/slurmd.pid": "1",
                "proc/sys/kernel/hostname": "login-03.cluster\n",
            },
            {},
            True,
        ),
        ({"proc/sys/kernel/hostname": "login-03.cluster\n"}, {}, False),
    ],
)
def test_a_node_that_hands_in_jobs_and_runs_none_looks_like_a_login_node(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], login: bool
) -> None:
    facts = read(machine(tmp_path, files), {"PATH": "/usr/bin", **variables})

    assert facts.surroundings.login_node is login
    assert facts.surroundings.slurm_job == variables.get("SLURM_JOB_ID")


def test_no_limit_on_pinned_memory_is_none(tmp_path: Path) -> None:
    root = machine(tmp_path, {"proc/self/limits": LIMITS.format(memlock="unlimited")})

    assert read(root).surroundings.memlock_bytes is None


def test_passwords_and_tokens_are_not_among_the_facts(tmp_path: Path) -> None:
    variables = {
        "https_proxy": "http://me:secret@proxy:3128",
        "HF_TOKEN": "hf_secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "HF_ENDPOINT": "https://mirror.example",
    }
    shown = read(machine(tmp_path), variables).surroundings.environment

    assert "secret" not in repr(shown)
    assert shown == {
        "https_proxy": "http://…@proxy:3128",
        "HF_TOKEN": "set",
        "HF_ENDPOINT": "https://mirror.example",
    }


def test_a_disk_that_never_answers_is_said_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "DISK_LIMIT_SECONDS", 0.05)
    never = threading.Event()

    def hangs(path: Path) -> tuple[int, int, int]:
        never.wait(10)
        return 1, 1, 0

    facts = host.read_host(machine(tmp_path), {}, hangs)
    never.set()

    assert facts.disk_free_bytes is None
    assert facts.surroundings.disks == ()
    assert facts.memory_total_bytes == 64 * GIB


def test_this_machine_is_read() -> None:
    facts = host.read_host()

    assert facts.cpu_cores
    assert facts.memory_total_bytes
    assert facts.disk_free_bytes
    assert [folder.used_for for folder in facts.surroundings.folders if not folder.writable] == []
