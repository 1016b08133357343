"""What a host stands in: container, virtual machine, scheduler, network, memory nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from wizard.probe import cgroup
from wizard.probe.reading import below, entries, exists, integer, kibibytes, line, table, text

INSIDE_ONLY = re.compile(
    r"(lo|docker|veth|br-|virbr|cni|flannel|cali|ifb|tunl|ip6tnl|sit|gre|dummy|kube|lxc|lxd)"
)
"""Interfaces that lead nowhere outside this machine."""
CLOUDS = {
    "amazon ec2": "Amazon EC2",
    "google": "Google Compute Engine",
    "microsoft corporation": "Microsoft Azure or Hyper-V",
    "qemu": "QEMU",
    "vmware, inc.": "VMware",
    "innotek gmbh": "VirtualBox",
    "openstack foundation": "OpenStack",
    "alibaba cloud": "Alibaba Cloud",
    "tencent cloud": "Tencent Cloud",
    "oraclecloud.com": "Oracle Cloud",
    "xen": "Xen",
}
COMPUTES = ("0x12", "0x03", "0x0b4")
"""Beginnings of PCI classes: processing accelerators, displays, co-processors."""
OTHER_MAKERS = {
    "0xcabc": ("Cambricon MLU", "no part of this program can use it"),
    "0x1ed5": ("Moore Threads", "no part of this program can use it"),
    "0x1da3": ("Habana Gaudi", "no part of this program can use it"),
    "0x19e5": ("Huawei Ascend", "its driver is not loaded: /dev/davinci_manager is missing"),
    "0x1002": ("AMD Instinct", "its driver is not loaded: /dev/kfd is missing"),
}
"""PCI maker → (what it makes, why its cards are not among the devices)."""
DRIVERS = {"0x19e5": "dev/davinci_manager", "0x1002": "dev/kfd"}
SCHEDULERS = ("sbatch", "qsub", "bsub")
IN_A_JOB = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "SGE_TASK_ID")
LOGIN_NAME = re.compile(r"(login|head|frontend|submit|gateway|bastion)[-_.\d]*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Memory nodes of a host."""

    with_processors: int | None
    without_processors: int | None
    other_bytes: int
    """Memory of the nodes without processors: not the host's own."""
    other_free_bytes: int


def memory_nodes(root: Path) -> Nodes:
    """Nodes by whether processors belong to them; unknown where the kernel tells of none."""
    folders = [
        folder
        for folder in entries(root / "sys/devices/system/node")
        if re.fullmatch(r"node\d+", folder.name)
    ]
    if not folders:
        return Nodes(
            with_processors=None, without_processors=None, other_bytes=0, other_free_bytes=0
        )
    bare = [folder for folder in folders if not line(folder / "cpulist")]
    return Nodes(
        with_processors=len(folders) - len(bare),
        without_processors=len(bare),
        other_bytes=sum(_node_bytes(folder, "MemTotal") for folder in bare),
        other_free_bytes=sum(_node_bytes(folder, "MemFree") for folder in bare),
    )


def _node_bytes(folder: Path, key: str) -> int:
    found = re.search(rf"\b{key}:\s*(\d+ kB)", text(folder / "meminfo"))
    return (kibibytes(found[1]) if found else None) or 0


def container(root: Path, environment: Mapping[str, str]) -> str | None:
    """The kind of container this process is in; None outside of any."""
    groups = " ".join(cgroup.paths(root))
    if "KUBERNETES_SERVICE_HOST" in environment or "kubepods" in groups:
        return "kubernetes"
    if any(name in environment for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")):
        return "apptainer"
    if exists(root / "run/.containerenv"):
        return "podman"
    if exists(root / ".dockerenv") or "docker" in groups:
        return "docker"
    named = line(root / "run/systemd/container") or environment.get("container", "")
    return named or ("lxc" if "/lxc" in groups else None)


def is_wsl(root: Path) -> bool:
    """Whether the kernel is the one Windows brings."""
    return "microsoft" in line(root / "proc/sys/kernel/osrelease").lower()


def virtual_machine(root: Path) -> str | None:
    """The virtual machine's kind or maker; None on bare metal or when it does not tell."""
    maker = line(root / "sys/class/dmi/id/sys_vendor")
    if maker.lower() in CLOUDS and (maker.lower() != "google" or _has_hypervisor(root)):
        # Hosts made by these firms and sold as bare metal show no hypervisor.
        return CLOUDS[maker.lower()] if _has_hypervisor(root) else None
    kind = line(root / "sys/hypervisor/type")
    return kind or ("virtual machine" if _has_hypervisor(root) else None)


def _has_hypervisor(root: Path) -> bool:
    flags = table(root / "proc/cpuinfo").get("flags")
    if flags is None:  # other processors than x86 do not say
        return "Virtual" in line(root / "sys/class/dmi/id/product_name") or exists(
            root / "sys/hypervisor/type"
        )
    return "hypervisor" in flags.split()


def network(root: Path) -> Iterator[str]:
    """Interfaces that are up and lead outside, as `eth0 25 Gbit/s`."""
    for folder in entries(root / "sys/class/net"):
        state = line(folder / "operstate")
        if INSIDE_ONLY.match(folder.name) or state not in ("up", "unknown"):
            continue
        megabits = integer(folder / "speed")
        yield f"{folder.name} {megabits / 1000:g} Gbit/s" if megabits else folder.name


def infiniband(root: Path) -> Iterator[str]:
    """Active ports of adapters for remote memory access, as `mlx5_0 400 Gb/sec (4X NDR)`."""
    for folder in entries(root / "sys/class/infiniband"):
        for port in entries(folder / "ports"):
            if "ACTIVE" in line(port / "state"):
                layer = line(port / "link_layer")
                over = f" over {layer}" if layer and layer != "InfiniBand" else ""
                yield f"{folder.name} {line(port / 'rate')}{over}".strip()


def is_login_node(root: Path, environment: Mapping[str, str], hostname: str) -> bool:
    """Whether jobs are handed in here, and this is neither a job nor a node that runs them."""
    if any(name in environment for name in IN_A_JOB):
        return False
    folders = [part for part in environment.get("PATH", "").split(":") if part.startswith("/")]
    scheduler = any(exists(below(root, folder) / name) for folder in folders for name in SCHEDULERS)
    runs_jobs = any(
        exists(root / path)
        for path in ("run/slurmd.pid", "run/slurmd", "var/run/slurmd.pid", "var/spool/slurmd")
    )
    named = bool(LOGIN_NAME.match(hostname))
    return scheduler and (named or not runs_jobs)


def other_accelerators(root: Path) -> Iterator[str]:
    """Cards that compute and that nothing here can use, with the reason: makers and driverless."""
    seen: dict[str, int] = {}
    for folder in entries(root / "sys/bus/pci/devices"):
        maker, kind = line(folder / "vendor").lower(), line(folder / "class").lower()
        displays = kind.startswith("0x03") and maker in DRIVERS  # a desktop's own graphics
        driven = maker in DRIVERS and exists(root / DRIVERS[maker])
        if maker in OTHER_MAKERS and kind.startswith(COMPUTES) and not (displays or driven):
            seen[maker] = seen.get(maker, 0) + 1
    for maker, count in seen.items():
        name, why = OTHER_MAKERS[maker]
        yield f"{count} × {name}: {why}"
