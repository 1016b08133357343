"""Facts of a sound machine, ways to make it ill, and what a check then finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from wizard.facts import (
    GIB,
    Device,
    Disk,
    Facts,
    Folder,
    Host,
    Link,
    Readings,
    Software,
    Surroundings,
    TorchDevice,
    TorchView,
)
from wizard.probe import checks

MIB = 1024**2
VERSIONS: Mapping[str, str | None] = {
    "torch": "2.13.0",
    "transformers": "5.24.0",
    "trl": "1.16.0",
    "peft": "0.21.2",
    "accelerate": "1.15.0",
    "datasets": "5.2.0",
    "deepspeed": "0.19.8",
    "bitsandbytes": "0.50.2",
    "flash-attn": "2.8.3",
}
HEALTHY = Readings(
    throttle_reasons=("power cap",),
    ecc_uncorrected=0,
    remap_pending=False,
    remap_failed=False,
    compute_mode="default",
    persistence_mode=True,
    display_active=False,
    processes=(),
)
CARD = Device(
    kind="cuda",
    index=0,
    name="NVIDIA H100 80GB HBM3",
    uuid="GPU-0",
    memory_total_bytes=80 * GIB,
    memory_free_bytes=79 * GIB,
    memory_used_bytes=500 * MIB,
    memory_reserved_bytes=600 * MIB,
    compute_capability=(9, 0),
    bf16_native=True,
    readings=HEALTHY,
)
CARDS = (CARD, replace(CARD, index=1, uuid="GPU-1"))
AROUND = Surroundings(
    swap_bytes=8 * GIB,
    shared_memory_bytes=64 * GIB,
    memlock_bytes=None,
    open_files=65536,
    numa_nodes=2,
    memory_only_nodes=0,
    disks=(
        Disk(
            path="/",
            free_bytes=500 * GIB,
            total_bytes=900 * GIB,
            kind="ext4",
            speed="nvme",
            used_for=("runs", "cache", "hub cache", "tmp"),
        ),
    ),
    folders=(Folder(path="/home/me/runs", used_for="runs", writable=True),),
    environment={"HOME": "/home/me"},
)
FINE = Facts(
    devices=CARDS,
    host=Host(
        hostname="box",
        system="Linux 6.8.0",
        cpu_cores=64,
        memory_total_bytes=512 * GIB,
        memory_available_bytes=500 * GIB,
        surroundings=AROUND,
    ),
    software=Software(
        python="3.12.4",
        versions=VERSIONS,
        driver="580.65.06",
        cuda="13.0",
        torch_build="cuda 13.0",
        libc="glibc 2.39",
        cpu_adam_lacks=(),
    ),
    torch=TorchView(
        version="2.13.0+cu130",
        cuda="13.0",
        arch_list=("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"),
        devices=(TorchDevice(index=0, name="H100"), TorchDevice(index=1, name="H100")),
        bnb_4bit=True,
    ),
)
NOTHING_KNOWN = Facts(
    devices=(Device(kind="cpu", index=0, name="CPU"),),
    host=Host(hostname="box", system="Linux"),
    software=Software(python="3.12.4"),
)


def cards(**changes: Any) -> Facts:
    """The first card changed."""
    return replace(FINE, devices=(replace(CARD, **changes), *CARDS[1:]))


def readings(**changes: Any) -> Facts:
    return cards(readings=replace(HEALTHY, **changes))


def around(**changes: Any) -> Facts:
    return replace(FINE, host=replace(FINE.host, surroundings=replace(AROUND, **changes)))


def of_host(**changes: Any) -> Facts:
    return replace(FINE, host=replace(FINE.host, **changes))


def of_software(**changes: Any) -> Facts:
    return replace(FINE, torch=None, software=replace(FINE.software, **changes))


def of_torch(**changes: Any) -> Facts:
    assert FINE.torch is not None
    return replace(FINE, torch=replace(FINE.torch, **changes))


def disk(**changes: Any) -> Facts:
    return around(disks=(replace(AROUND.disks[0], **changes),))


def variables(**given: str) -> Facts:
    return around(environment={"HOME": "/home/me", **given})


def in_container(facts: Facts, kind: str = "docker") -> Facts:
    here = replace(facts.host.surroundings, container=kind)
    return replace(facts, host=replace(facts.host, surroundings=here))


def in_wsl(facts: Facts) -> Facts:
    here = replace(facts.host.surroundings, wsl=True)
    return replace(facts, host=replace(facts.host, surroundings=here))


def linked(*links: Link) -> Facts:
    """Three cards, linked like this."""
    return replace(FINE, devices=(*CARDS, replace(CARD, index=2)), links=links)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Facts that trip a check, and what it says of them."""

    id: str
    facts: Facts
    state: str
    says: str
    fix: str = ""


def result_of(name: str, facts: Facts) -> checks.Result:
    (found,) = (result for result in checks.results(facts) if result.check.id == name)
    return found
