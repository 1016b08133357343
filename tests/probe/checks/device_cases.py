"""What trips each check of devices, links, driver and software."""

from __future__ import annotations

from dataclasses import replace

from tests.probe.checks.sound import (
    CARD,
    CARDS,
    FINE,
    HEALTHY,
    VERSIONS,
    Case,
    around,
    cards,
    in_container,
    in_wsl,
    linked,
    of_software,
    of_torch,
    readings,
)
from wizard.facts import GIB, DeviceProcess, Link
from wizard.probe.links import CLAIMED

DEVICE_CASES = (
    Case(
        id="links.peer-access",
        facts=linked(Link(devices=(0, 1), kind="pcie-switch", why=CLAIMED)),
        state="warn",
        says="may hang at its first exchange",
        fix="NCCL_P2P_DISABLE=1",
    ),
    Case(
        id="links.fabric",
        facts=linked(Link(devices=(0, 1), kind="nvswitch", peer_access=True)),
        state="warn",
        says="device 2: no active NVLink",
        fix="nvidia-smi nvlink -s",
    ),
    Case(
        id="devices.memory-errors",
        facts=readings(remap_pending=True),
        state="warn",
        says="waits for a reset",
        fix="sudo nvidia-smi -i 0 --gpu-reset",
    ),
    Case(
        id="devices.memory-errors",
        facts=readings(remap_failed=True),
        state="FAIL",
        says="could not be replaced",
        fix="train on the others",
    ),
    Case(
        id="devices.memory-errors",
        facts=readings(ecc_uncorrected=3),
        state="warn",
        says="3 uncorrected memory errors",
    ),
    Case(
        id="devices.in-use",
        facts=cards(
            memory_free_bytes=60 * GIB,
            readings=replace(HEALTHY, processes=(DeviceProcess(pid=7, name="python"),)),
        ),
        state="warn",
        says="19.4 GiB of its 80.0 GiB are held by python (7)",
        fix="nvidia-smi",
    ),
    Case(
        id="devices.in-use",
        facts=cards(memory_free_bytes=60 * GIB),
        state="warn",
        says="not visible here",
    ),
    Case(
        id="devices.spill",
        facts=in_wsl(cards(memory_used_bytes=78 * GIB)),
        state="warn",
        says="Windows moves what does not fit",
        fix="Sysmem Fallback",
    ),
    Case(
        id="devices.alike",
        facts=cards(name="NVIDIA GeForce RTX 3060", memory_total_bytes=12 * GIB),
        state="warn",
        says="fits the smallest (12.0 GiB)",
        fix="--devices",
    ),
    Case(
        id="devices.compute-mode",
        facts=readings(compute_mode="prohibited"),
        state="FAIL",
        says="no program may use it",
        fix="sudo nvidia-smi -i 0 -c DEFAULT",
    ),
    Case(
        id="devices.compute-mode",
        facts=readings(compute_mode="exclusive_process"),
        state="note",
        says="one process at a time",
    ),
    Case(
        id="devices.throttling",
        facts=readings(throttle_reasons=("heat", "power cap"), temperature_c=91.0),
        state="warn",
        says="held down at 91 °C: heat",
    ),
    Case(
        id="devices.display",
        facts=readings(display_active=True),
        state="note",
        says="drives a display",
        fix="systemctl isolate multi-user.target",
    ),
    Case(
        id="devices.persistence",
        facts=readings(persistence_mode=False),
        state="note",
        says="persistence mode is off",
        fix="sudo nvidia-smi -pm 1",
    ),
    Case(
        id="devices.slices",
        facts=replace(
            FINE, devices=tuple(replace(card, mig_parent_uuid="GPU-9") for card in CARDS)
        ),
        state="note",
        says="2 MIG slices",
    ),
    Case(
        id="devices.unified",
        facts=cards(unified_memory=True, name="NVIDIA GB10"),
        state="note",
        says="offload gains nothing",
    ),
    Case(
        id="devices.coherent",
        facts=cards(name="NVIDIA GH200 480GB"),
        state="note",
        says="one address space over NVLink-C2C",
    ),
    Case(
        id="devices.usable",
        facts=around(other_accelerators=("2 × Cambricon MLU: no part can use it",)),
        state="warn",
        says="2 × Cambricon MLU",
        fix="--set device_kind=cpu",
    ),
    Case(
        id="driver.fits-torch",
        facts=of_software(driver="550.54.14", cuda="12.4"),
        state="FAIL",
        says="driver 550.54.14, which serves CUDA 12.4, is too old",
        fix="580 or newer",
    ),
    Case(
        id="driver.fits-torch",
        facts=of_software(driver="470.42", cuda=None, torch_build="cuda 12.6"),
        state="FAIL",
        says="too old for a torch built for CUDA 12.6",
        fix="525 or newer",
    ),
    Case(
        id="driver.fits-torch",
        facts=in_wsl(of_software(cuda="12.4")),
        state="FAIL",
        says="too old",
        fix="in Windows",
    ),
    Case(
        id="driver.fits-torch",
        facts=in_container(of_software(cuda="12.4")),
        state="FAIL",
        says="too old",
        fix="outside the container",
    ),
    Case(
        id="torch.build",
        facts=of_software(torch_build="cpu"),
        state="FAIL",
        says="built for cpu (2.13.0), but this machine has NVIDIA H100",
        fix="./install.sh",
    ),
    Case(
        id="torch.sees-devices",
        facts=of_torch(devices=()),
        state="FAIL",
        says="sees 0 of the 2 devices",
    ),
    Case(
        id="torch.sees-devices",
        facts=of_torch(error="libcudart.so.13 is not found"),
        state="FAIL",
        says="libcudart.so.13",
    ),
    Case(
        id="torch.kernels",
        facts=cards(name="Tesla P100-PCIE-16GB", compute_capability=(6, 0)),
        state="FAIL",
        says="has no kernels for capability 6.0",
        fix="./install.sh",
    ),
    Case(
        id="devices.bf16",
        facts=cards(bf16_native=False, compute_capability=(7, 5)),
        state="note",
        says="float16",
    ),
    Case(
        id="software.python",
        facts=of_software(python="3.10.4"),
        state="FAIL",
        says="3.11 is needed",
    ),
    Case(
        id="software.libc",
        facts=of_software(libc="glibc 2.17"),
        state="FAIL",
        says="torch has no build for glibc 2.17",
        fix="pip cannot help",
    ),
    Case(
        id="software.libc", facts=of_software(libc="musl"), state="FAIL", says="no build for musl"
    ),
    Case(
        id="software.packages",
        facts=of_software(versions={**VERSIONS, "torch": None, "trl": None}),
        state="FAIL",
        says="not installed: torch, trl",
        fix="./install.sh",
    ),
    Case(
        id="software.packages",
        facts=of_software(unmet={"trl": "<1.17,>=1.16"}),
        state="warn",
        says="version 1.16.0 is not one this works with",
        fix="pip install 'trl<1.17,>=1.16'",
    ),
    Case(
        id="software.quantized",
        facts=of_torch(bnb_4bit=False),
        state="warn",
        says="cannot run a 4-bit layer",
    ),
    Case(
        id="software.quantized",
        facts=replace(FINE, devices=(replace(CARD, kind="npu", name="910B"),)),
        state="note",
        says="no backend for npu",
    ),
    Case(
        id="software.cpu-adam",
        facts=of_software(cpu_adam_lacks=("c++", "ninja", "python headers")),
        state="warn",
        says="c++, ninja, python headers missing",
        fix="sudo apt-get install -y g++ python3-dev; put ninja on PATH",
    ),
    Case(
        id="software.cpu-adam",
        facts=of_software(cpu_adam_lacks=("nvcc 13.0 (this one is 12.4)",)),
        state="warn",
        says="nvcc 13.0 (this one is 12.4) missing",
        fix="CUDA_HOME",
    ),
    Case(
        id="software.flash-attention",
        facts=cards(compute_capability=(7, 5)),
        state="warn",
        says="no kernels for capability 7.5",
        fix="sdpa",
    ),
)
