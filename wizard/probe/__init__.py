"""World → Facts: what this machine is."""

from __future__ import annotations

from wizard.facts import Device, Facts, Host, Software
from wizard.probe.accelerators import Accelerators, read_accelerators
from wizard.probe.host import read_host
from wizard.probe.software import read_software
from wizard.problem import Problem


def probe_machine() -> Facts:
    """Facts of this machine. Never raises; what cannot be read is None or a Problem."""
    found = read_accelerators()
    host = read_host()
    software = read_software(driver=found.driver, cuda=found.cuda)
    return Facts(
        devices=found.devices or (cpu_device(host),),
        host=host,
        software=software,
        problems=(*found.problems, *_torch_without_cuda(found, software)),
    )


def cpu_device(host: Host) -> Device:
    """The CPU as a device: its memory is the host's."""
    return Device(
        kind="cpu",
        index=0,
        name=host.cpu_name or "CPU",
        memory_total_bytes=host.memory_total_bytes,
        memory_free_bytes=host.memory_available_bytes,
        source="host",
    )


def _torch_without_cuda(found: Accelerators, software: Software) -> tuple[Problem, ...]:
    torch = software.versions.get("torch") or ""
    if not found.devices or not torch.endswith("+cpu"):
        return ()
    return (
        Problem(
            what=f"built without CUDA ({torch}), but this machine has {found.devices[0].name}",
            where="torch",
            fix="run install.sh again: it picks the build for this machine",
            exit_code=6,
        ),
    )
