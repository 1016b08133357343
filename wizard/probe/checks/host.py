"""Checks of the host: memory, processors, limits, and what a run lives in."""

from __future__ import annotations

from wizard.facts import GIB, Facts
from wizard.probe.checks.rule import Check, Found, note, warning
from wizard.wording import gib

LITTLE_MEMORY_BYTES = 4 * GIB
SWAPLESS_BYTES = 16 * GIB
SMALL_SHARED_BYTES = GIB
PINNED_BYTES = GIB
FEW_FILES = 1024
SOME_FILES = 4096
TELEMETRY = "utility"


def memory(facts: Facts) -> Found:
    """Loading a model goes through the host's memory."""
    free = facts.host.memory_available_bytes
    if free is None:
        return None
    if free >= LITTLE_MEMORY_BYTES:
        return []
    limit = " within this container's limit" if facts.host.memory_limit_source else ""
    what = f"only {gib(free)} are free{limit}: models are loaded through it"
    return [warning(what, "memory", "end what holds it, or raise the limit (docker run --memory)")]


def limited(facts: Facts) -> Found:
    """Less memory or fewer cores than the machine shows."""
    host = facts.host
    if host.memory_limit_source is None and host.cpu_limit_source is None:
        return []
    found = []
    if host.memory_limit_source:
        what = f"a {host.memory_limit_source} limit leaves {gib(host.memory_total_bytes)}"
        fix = "more: docker run --memory, the pod's limits, or sbatch --mem"
        found.append(note(what, "memory", fix))
    if host.cpu_limit_source:
        what = f"{host.cpu_limit_source} leaves {host.cpu_cores} cores"
        fix = "more: docker run --cpus, the pod's limits, or sbatch --cpus-per-task"
        found.append(note(what, "processors", fix))
    return found


def swap(facts: Facts) -> Found:
    """With little memory and no swap the kernel ends programs instead of slowing them."""
    swap_bytes, total = facts.host.surroundings.swap_bytes, facts.host.memory_total_bytes
    if swap_bytes is None or total is None or facts.host.surroundings.container:
        return None
    if swap_bytes or total >= SWAPLESS_BYTES:
        return []
    fix = (
        "sudo fallocate -l 16G /swapfile && sudo chmod 600 /swapfile && "
        "sudo mkswap /swapfile && sudo swapon /swapfile"
    )
    return [note(f"{gib(total)} and no swap: what is too much is ended at once", "memory", fix)]


def cores(facts: Facts) -> Found:
    """Every rank needs a core of its own, at least."""
    count, ranks = facts.host.cpu_cores, len(facts.accelerators)
    if count is None or not ranks:
        return None
    if count > ranks:
        return []
    what = f"only {count} for {ranks} devices: each rank wants one, and its data workers more"
    return [warning(what, "processors", "ask for more: sbatch --cpus-per-task, docker run --cpus")]


def shared_memory(facts: Facts) -> Found:
    """Data workers and NCCL pass data through /dev/shm; a container gives 64 MiB."""
    size = facts.host.surroundings.shared_memory_bytes
    if size is None:
        return None
    if size >= SMALL_SHARED_BYTES:
        return []
    what = f"only {gib(size)}: data workers and ranks pass data through it and die of a bus error"
    fixes = {
        "kubernetes": "mount an emptyDir with medium: Memory at /dev/shm",
        None: "sudo mount -o remount,size=50% /dev/shm",
    }
    container = facts.host.surroundings.container
    return [
        warning(what, "/dev/shm", fixes.get(container, "docker run --shm-size=16g, or --ipc=host"))
    ]


def pinned_memory(facts: Facts) -> Found:
    """InfiniBand and WSL count pinned memory; elsewhere the driver pins without asking."""
    around = facts.host.surroundings
    if not (around.infiniband or around.wsl):
        return None
    limit = around.memlock_bytes
    if limit is None or limit >= PINNED_BYTES:
        return []
    if around.wsl:  # microsoft/WSL#8447
        what = f"Windows lets only {gib(limit)} be pinned: it looks like a full card"
        return [note(what, "ulimit -l", "leave dataloader_pin_memory off")]
    what = f"only {gib(limit)} may be pinned: InfiniBand registers its buffers there"
    fix = "docker run --ulimit memlock=-1"
    if not around.container:
        fix = "a line '* - memlock unlimited' in /etc/security/limits.conf, then log in again"
    return [warning(what, "ulimit -l", fix)]


def open_files(facts: Facts) -> Found:
    """Data workers and sharded checkpoints open many files at once."""
    limit = facts.host.surroundings.open_files
    if limit is None:
        return None
    if limit >= SOME_FILES:
        return []
    what = f"only {limit} files may be open at once: many data workers need more"
    say = warning if limit < FEW_FILES else note
    return [say(what, "ulimit -n", "ulimit -n 65536")]


def detached(facts: Facts) -> Found:
    """A run should outlive the shell that starts it."""
    around = facts.host.surroundings
    if around.ends_detached_runs is None:
        return []
    return [warning(around.ends_detached_runs, "runs here", around.ends_detached_fix)]


def login_node(facts: Facts) -> Found:
    """A node for logging in is not one for training."""
    if not facts.host.surroundings.login_node:
        return []
    what = (
        "this looks like a login node: its scheduler hands jobs to others, and ends long programs"
    )
    fix = "plan here, train in a job: sbatch --gpus=1 … run.sh, or salloc --gpus=1"
    return [warning(what, facts.host.hostname, fix)]


def wsl(facts: Facts) -> Found:
    """What is different under Windows."""
    if not facts.host.surroundings.wsl:
        return None
    what = "Windows keeps 1 to 1.5 GiB of the card, and devices cannot reach each other's memory"
    return [note(what, "WSL", "leave the NVIDIA driver to Windows: none is installed in Linux")]


def telemetry(facts: Facts) -> Found:
    """A container may train and still not be told how its devices fare."""
    told = facts.host.surroundings.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    if told is None:
        return None
    capabilities = {part.strip() for part in told.split(",")}
    if capabilities & {TELEMETRY, "all"}:
        return []
    what = f"NVIDIA_DRIVER_CAPABILITIES is {told}: devices train, but tell nothing of themselves"
    fix = "start it with -e NVIDIA_DRIVER_CAPABILITIES=compute,utility"
    return [warning(what, "container", fix)]


def memory_nodes(facts: Facts) -> Found:
    """Nodes without processors: device memory that the kernel shows as its own, or CXL."""
    bare = facts.host.surroundings.memory_only_nodes
    if bare is None:
        return None
    if not bare:
        return []
    what = (
        f"{bare} of its memory nodes have no processors: their memory is not counted as the host's"
    )
    return [note(what, "memory")]


CHECKS = (
    Check(id="host.memory", title="memory is free", find=memory),
    Check(id="host.limits", title="the whole machine may be used", find=limited),
    Check(id="host.swap", title="memory or swap enough", find=swap),
    Check(id="host.cores", title="a core for every rank", find=cores),
    Check(id="host.shared-memory", title="/dev/shm is large enough", find=shared_memory),
    Check(id="host.pinned-memory", title="memory may be pinned", find=pinned_memory),
    Check(id="host.open-files", title="many files may be open", find=open_files),
    Check(id="host.detached", title="runs outlive the shell that starts them", find=detached),
    Check(id="host.login-node", title="this is a machine for training", find=login_node),
    Check(id="host.wsl", title="Windows leaves all to Linux", find=wsl),
    Check(id="host.telemetry", title="devices tell how they fare", find=telemetry),
    Check(id="host.memory-nodes", title="all memory belongs to processors", find=memory_nodes),
)
