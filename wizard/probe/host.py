"""The machine around the devices: processors, memory, disks and what a run lives in."""

from __future__ import annotations

import getpass
import math
import os
import platform
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from wizard.facts import Folder, Host, Surroundings
from wizard.probe import cgroup, disks, environment, limits, surroundings
from wizard.probe.detached import Starter, what_ends_runs
from wizard.probe.parts import Part, together
from wizard.probe.reading import below, cpu_list, kibibytes, line, table

EVERYWHERE = Path("/")
DISK_LIMIT_SECONDS = 3.0
"""A network file system whose server is away never answers."""


def read_host(
    root: Path = EVERYWHERE,
    variables: Mapping[str, str] | None = None,
    usage: disks.Usage = shutil.disk_usage,
) -> Host:
    """Facts of this host; what cannot be read is None. Never raises, never waits long.

    root: where /proc, /sys and the rest begin. variables: the environment, else this process's.
    """
    variables = os.environ if variables is None else variables
    memory, cores = read_memory(root), read_cores(root)
    folders = environment.folders(variables)
    around = _surroundings(root, variables, folders, usage)
    runs = next((disk for disk in around.disks if "runs" in disk.used_for), None)
    return Host(
        hostname=_hostname(root),
        system=_system(root),
        cpu_name=cpu_name(root),
        cpu_cores=cores.usable,
        cpu_limit_source=cores.limited_by,
        memory_total_bytes=memory.total_bytes,
        memory_available_bytes=memory.available_bytes,
        memory_limit_source=memory.limited_by,
        disk_path=_nearest_existing(root, folders.get("runs")),
        disk_free_bytes=runs.free_bytes if runs else None,
        surroundings=replace(around, swap_bytes=memory.swap_bytes),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Memory this process may use."""

    total_bytes: int | None
    available_bytes: int | None
    swap_bytes: int | None
    limited_by: str | None


def read_memory(root: Path) -> Memory:
    """The least of what the machine has and what each group around this process leaves."""
    said = table(root / "proc/meminfo")
    nodes = surroundings.memory_nodes(root)
    total = _less(kibibytes(said.get("MemTotal")), nodes.other_bytes)
    available = _less(kibibytes(said.get("MemAvailable")), nodes.other_free_bytes)
    if total is None and root == EVERYWHERE:  # no Linux
        memory = psutil.virtual_memory()
        total, available = memory.total, memory.available
    groups = cgroup.memory_groups(root)
    least = min((group.limit_bytes for group in groups), default=None)
    limited = least is not None and (total is None or least < total)
    return Memory(
        total_bytes=_least(total, least),
        available_bytes=_least(available, total, *(group.free_bytes for group in groups)),
        swap_bytes=_least(kibibytes(said.get("SwapTotal")), cgroup.swap_limit(root)),
        limited_by="cgroup" if limited else None,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Cores:
    """Processors this process may use."""

    usable: int
    limited_by: str | None


def read_cores(root: Path) -> Cores:
    """The least of the machine, this process's affinity and its groups' quotas; at least one."""
    present = len(set(cpu_list(line(root / "sys/devices/system/cpu/online")))) or os.cpu_count()
    allowed = _affinity(root)
    quota = cgroup.cpu_quota(root)
    counts = {None: present, "affinity": allowed, "cgroup": quota and math.ceil(quota)}
    known = {source: max(1, count) for source, count in counts.items() if count}
    # Of equal ones the machine itself is named first: then nothing holds us down.
    source = min(known, key=lambda one: known[one], default=None)
    return Cores(usable=known.get(source, 1), limited_by=source)


def _affinity(root: Path) -> int | None:
    said = table(root / "proc/self/status").get("Cpus_allowed_list", "")
    return len(set(cpu_list(said))) or None


def cpu_name(root: Path = EVERYWHERE) -> str | None:
    """The processor's name as the kernel writes it."""
    said = table(root / "proc/cpuinfo")
    named = next((said[key] for key in ("model name", "Model", "Hardware") if said.get(key)), None)
    return named or platform.processor() or platform.machine() or None


def _surroundings(
    root: Path, variables: Mapping[str, str], folders: Mapping[str, Path], usage: disks.Usage
) -> Surroundings:
    nodes = surroundings.memory_nodes(root)
    kind = surroundings.container(root, variables)
    wsl = surroundings.is_wsl(root)
    ending = what_ends_runs(
        root, Starter(user=_user(), environment=variables, container=kind, wsl=wsl)
    )
    found = Surroundings(
        memlock_bytes=limits.locked_memory_bytes(root),
        open_files=limits.open_files(root),
        numa_nodes=nodes.with_processors,
        memory_only_nodes=nodes.without_processors,
        network=tuple(surroundings.network(root)),
        infiniband=tuple(surroundings.infiniband(root)),
        container=kind,
        wsl=wsl,
        virtual_machine=surroundings.virtual_machine(root),
        slurm_job=variables.get("SLURM_JOB_ID"),
        login_node=surroundings.is_login_node(root, variables, _hostname(root)),
        ends_detached_runs=ending.what if ending else None,
        ends_detached_fix=ending.fix if ending else "",
        environment=environment.shown(variables),
        broken_variables=environment.broken(variables, root),
        other_accelerators=tuple(surroundings.other_accelerators(root)),
    )
    return replace(found, **_disk_facts(root, folders, usage))


def _disk_facts(root: Path, folders: Mapping[str, Path], usage: disks.Usage) -> dict[str, Any]:
    """What asks file systems, each with a time limit; a late one is missing from the facts."""

    def read_disks() -> dict[str, Any]:
        found = disks.read_disks(root, folders, usage)
        return {"disks": found, "suggested_home": disks.suggested_home(root, found, usage)}

    parts = (
        Part("disks", read_disks, DISK_LIMIT_SECONDS),
        Part("folders", lambda: {"folders": _folders(root, folders)}, DISK_LIMIT_SECONDS),
        Part("shm", lambda: {"shared_memory_bytes": _shared(root, usage)}, DISK_LIMIT_SECONDS),
    )
    facts: dict[str, Any] = {}
    for _, value, _ in together(parts):
        facts.update(value or {})
    return {"folders": _unanswered(folders), **facts}


def _folders(root: Path, folders: Mapping[str, Path]) -> tuple[Folder, ...]:
    # The hub's library locks each file it reads, also those of another user's cache.
    tried = {**folders, "hub locks": folders["hub cache"] / ".locks"}
    found = disks.read_folders({purpose: below(root, one) for purpose, one in tried.items()})
    return tuple(replace(one, path=str(tried[one.used_for])) for one in found)


def _unanswered(folders: Mapping[str, Path]) -> tuple[Folder, ...]:
    why = f"does not answer within {DISK_LIMIT_SECONDS:.0f} seconds"
    return tuple(
        Folder(path=str(folder), used_for=purpose, writable=False, why_not=why)
        for purpose, folder in folders.items()
    )


def _shared(root: Path, usage: disks.Usage) -> int | None:
    try:
        return usage(root / "dev/shm")[0]
    except OSError:
        return None


def _hostname(root: Path) -> str:
    return line(root / "proc/sys/kernel/hostname") or socket.gethostname()


def _system(root: Path) -> str:
    kernel = root / "proc/sys/kernel"
    kind = line(kernel / "ostype") or platform.system()
    return f"{kind} {line(kernel / 'osrelease') or platform.release()}"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as containers have
        return str(os.getuid())


def _nearest_existing(root: Path, folder: Path | None) -> str | None:
    if folder is None:
        return None
    existing = (one for one in (folder, *folder.parents) if below(root, one).is_dir())
    return str(next(existing, folder))


def _less(amount: int | None, part: int) -> int | None:
    return None if amount is None else max(0, amount - part)


def _least(*amounts: int | None) -> int | None:
    return min((amount for amount in amounts if amount is not None), default=None)
