"""Eight very different machines, as the hardware page shows them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.probe import machines
from tests.screens import values
from wizard.facts import Device, Facts, Host, Readings, Software, Surroundings
from wizard.problem import Problem
from wizard.screens.hardware import HardwarePage

RECORDED: Mapping[str, str] = {
    "switched": "h100x8_sxm_hgx",
    "off_fabric": "b200x8_one_gpu_off_fabric",
    "mixed": "rtx5090_4090_mixed",
    "one_pool": "gb10_spark",
    "slice": "mig_h100_1g10gb",
    "npus": "ascend_a3_16",
    "tiles": "intel_max1550_x8",
    "cpu": "cpu_only_cgroup",
}
"""Name of a picture → the recording."""
EIGHT: Mapping[str, str] = {
    "cpu": "cpu_only_cgroup",
    "laptop": "rtx4060_laptop_wsl2",
    "one_24": "container_4090_cgroup90",
    "no_peers": "rtx3090x2_dual_socket",
    "pairs": "a100_80x4_pcie_pairs",
    "switched": "h100x8_sxm_hgx",
    "slice": "mig_h100_1g10gb",
    "npus_8": "ascend910b3_x8",
}
"""Name of a walk → the recording: one of each kind of machine."""
TORCH: Mapping[str, Mapping[str, str]] = {
    "npu": {"torch": "2.9.0+cpu", "torch-npu": "2.9.0"},
    "xpu": {"torch": "2.13.0+xpu"},
    "cpu": {"torch": "2.13.0+cpu"},
}
HOT = Readings(
    utilization_percent=98.0,
    temperature_c=87.0,
    power_w=566.0,
    power_cap_w=575.0,
    throttle_reasons=("thermal",),
    processes=(),
)
"""What a card says that is at its limit."""


def facts(name: str) -> Facts:
    """A recorded machine with fixed software, disks and problems, whatever machine tests run on."""
    recorded = {**EIGHT, **RECORDED}[name]
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("TUNEWRIGHT_HOME")
        os.environ["TUNEWRIGHT_HOME"] = folder
        try:
            found = machines.probed(recorded, Path(folder) / "root")
        finally:
            _restore(before)
    host = _host(found, machines.true(recorded)["facts"])
    return replace(
        found,
        devices=tuple(_shown(device, name, host) for device in found.devices),
        host=host,
        software=_software(found),
        problems=PROBLEMS.get(name, tuple(p for p in found.problems if "recognised" in p.what)),
    )


def _host(found: Facts, wanted: Mapping[str, object]) -> Host:
    """What was recorded of the host, the rest made up."""
    known = {path[5:]: machines.at(found, path) for path in wanted if path.startswith("host.")}
    if "memory_total_bytes" in known:
        known["memory_available_bytes"] = found.host.memory_available_bytes
    around = Surroundings(
        numa_nodes=found.host.surroundings.numa_nodes,
        swap_bytes=0,
        shared_memory_bytes=64 * 1024**2,
        open_files=1024,
        network=("eth0",),
    )
    named = {key: value for key, value in known.items() if "." not in key}
    return replace(values.HOST, hostname="server", surroundings=around, **named)


def _software(found: Facts) -> Software:
    torch = TORCH.get(found.devices[0].kind, {"torch": "2.13.0+cu130"})
    return replace(
        values.SOFTWARE,
        versions={**torch, **{k: v for k, v in values.SOFTWARE.versions.items() if k != "torch"}},
        driver=found.software.driver,
        cuda=found.software.cuda,
    )


def _restore(home: str | None) -> None:
    if home is None:
        del os.environ["TUNEWRIGHT_HOME"]
    else:
        os.environ["TUNEWRIGHT_HOME"] = home


def _shown(device: Device, name: str, host: Host) -> Device:
    """The first card of the mixed machine is at its limit."""
    if device.kind == "cpu":
        return replace(device, name=host.cpu_name or "CPU")
    return replace(device, readings=HOT) if (name, device.index) == ("mixed", 0) else device


PROBLEMS: Mapping[str, tuple[Problem, ...]] = {
    "off_fabric": (
        Problem(
            what="it has no NVLink to the others; a run over all of them is as slow as its PCIe",
            where="device 2",
            fix="train on the other seven, and reset the fabric manager",
            severity="warning",
        ),
    ),
    "mixed": (
        Problem(
            what="built for CUDA 12.4, which has no code for capability 12.0",
            where="torch 2.6.0+cu124",
            fix="run ./install.sh again: it picks the build for this machine",
        ),
        Problem(what="cards of two kinds: a run uses those of one", severity="info"),
    ),
    "one_pool": (
        Problem(
            what="it shares its memory with the host: both are planned as one",
            where="device 0",
            severity="info",
        ),
    ),
}


def page(name: str) -> HardwarePage:
    """The page of a machine, with everything known."""
    known = facts(name)
    return HardwarePage(lambda say: known, known)
