"""Checks of driver, torch and packages: whether they fit each other and the devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wizard.facts import Device, Facts, Software
from wizard.probe.checks.rule import Check, Found, error, name_of, note, nvidia, warning
from wizard.probe.versions import numbers
from wizard.problem import Problem

INSTALL = "./install.sh, which picks the build for this machine"
OLDEST_PYTHON = (3, 11)
OLDEST_GLIBC = (2, 28)
"""torch's wheels since 2.6 are built against it: pytorch/pytorch#150724."""
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""CUDA major version → first NVIDIA driver on Linux that serves it."""
NEEDED = ("torch", "transformers", "trl", "peft", "accelerate", "datasets")
FLASH_ATTENTION = (8, 0)
NO_BITSANDBYTES = ("npu", "mps")
ARCHITECTURE = re.compile(r"(sm|compute|gfx)_?(\d+)(\d)([af]?)$")


def driver(facts: Facts) -> Found:
    """The driver must serve the CUDA that torch was built for."""
    needed = _cuda(facts)
    if not nvidia(facts) or needed is None or not (facts.software.driver or facts.software.cuda):
        return None
    software = facts.software
    oldest = OLDEST_DRIVER.get(needed[0], 0)
    if software.cuda:
        fits = numbers(software.cuda)[:1] >= needed[:1]
    else:
        fits = numbers(software.driver or "") >= (oldest,)
    if fits:
        return []
    serves = f", which serves CUDA {software.cuda}" if software.cuda else ""
    version = ".".join(map(str, needed))
    return [
        error(
            f"driver {software.driver or 'unknown'}{serves}, is too old for a torch built for "
            f"CUDA {version}",
            "NVIDIA driver",
            f"{_update_driver(facts)} to {oldest} or newer, or run {INSTALL}",
            exit_code=6,
        )
    ]


def _update_driver(facts: Facts) -> str:
    around = facts.host.surroundings
    if around.wsl:  # a Linux driver inside WSL breaks it: microsoft/WSL#9134
        return "update the NVIDIA driver in Windows"
    if around.container:
        return "update the driver of the machine outside the container"
    return "update the driver"


def torch_build(facts: Facts) -> Found:
    """torch without support for the accelerators that are here would train on the CPU."""
    devices = facts.accelerators
    build = facts.software.torch_build
    version = facts.software.versions.get("torch") or ""
    if build is None and version.endswith("+cpu"):
        build = "cpu"
    if not devices or build is None:
        return None
    kinds = {"cuda": "cuda", "rocm": "rocm", "xpu": "xpu"}
    kind = devices[0].kind
    if kind not in kinds or build.startswith(kinds[kind]):
        return []
    return [
        error(
            f"built for {build} ({version or 'version unknown'}), but this machine has "
            f"{devices[0].name}",
            "torch",
            f"run {INSTALL}",
            exit_code=6,
        )
    ]


def torch_sees(facts: Facts) -> Found:
    """What the driver lists, torch must see as well: never a silent run on the CPU."""
    view, devices = facts.torch, facts.accelerators
    if view is None or not devices:
        return None
    if view.error:
        return [
            error(
                f"cannot be used: {view.error}",
                "torch",
                f"python -c 'import torch'; then {INSTALL}",
                exit_code=6,
            )
        ]
    if len(view.devices) >= len(devices):
        return []
    return [
        error(
            f"it sees {len(view.devices)} of the {len(devices)} devices that the driver lists",
            "torch",
            "python -c 'import torch; torch.cuda.init()' says why; a driver newer than its kernel "
            "module needs a reboot",
            exit_code=6,
        )
    ]


def architectures(facts: Facts) -> Found:
    """torch must hold kernels for every device's architecture."""
    devices = [device for device in nvidia(facts) if device.compute_capability]
    if not devices or (not _arch_list(facts) and _range_of_build(facts) is None):
        return None
    left_out = [device for device in devices if not _covered(facts, device)]
    if not left_out:
        return []
    olds = [device for device in devices if (device.compute_capability or (9, 9)) < (7, 5)]
    news = [device for device in devices if (device.compute_capability or (0, 0)) >= (10, 0)]
    fix = f"run {INSTALL}"
    if olds and news:  # pytorch/pytorch#157517: no one wheel holds both
        fix = "no one build serves both the old and the new cards here: train on one kind of them"
    return [
        error(
            f"torch {facts.software.versions.get('torch') or ''} has no kernels for capability "
            f"{_dotted(device)}",
            name_of(device),
            fix,
            exit_code=6,
        )
        for device in left_out
    ]


def covers(arch_list: Sequence[str], capability: tuple[int, int]) -> bool:
    """Whether kernels of these architectures run on a device of this compute capability."""
    return any(_covers(entry, capability) for entry in arch_list)


def _covers(entry: str, capability: tuple[int, int]) -> bool:
    found = ARCHITECTURE.match(entry)
    if not found or found[1] == "gfx":
        return False
    built = (int(found[2]), int(found[3]))
    if found[4] == "a":
        return built == capability
    if found[1] == "compute" and not found[4]:  # compiled further on the device itself
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


def _covered(facts: Facts, device: Device) -> bool:
    assert device.compute_capability is not None
    if listed := _arch_list(facts):
        return covers(listed, device.compute_capability)
    oldest, newest = _range_of_build(facts) or ((0, 0), (99, 0))
    return oldest <= device.compute_capability < newest


def _arch_list(facts: Facts) -> tuple[str, ...]:
    return facts.torch.arch_list if facts.torch else ()


def _range_of_build(facts: Facts) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """(oldest capability, first that is too new) of a torch nobody asked yet: pytorch#157517."""
    cuda = _cuda(facts)
    version = numbers(facts.software.versions.get("torch") or "")
    if cuda is None or not version:
        return None
    if cuda >= (13,):
        return (7, 5), (99, 0)
    if cuda >= (12, 8):
        return ((7, 5) if version >= (2, 11) else (7, 0)), (99, 0)
    return (5, 0), (10, 0)


def bf16(facts: Facts) -> Found:
    """Without bf16 in hardware training falls back to float16 or float32."""
    devices = [device for device in facts.accelerators if device.bf16_native is not None]
    if not devices:
        return None
    without = [device for device in devices if not device.bf16_native]
    return [
        note("no bf16 in hardware: plans use float16 with a loss scaler", name_of(device))
        for device in without
    ]


def python(facts: Facts) -> Found:
    """The Python this runs in; of another machine it may not be known."""
    if not facts.software.python:
        return None
    if numbers(facts.software.python) >= OLDEST_PYTHON:
        return []
    needed = ".".join(map(str, OLDEST_PYTHON))
    return [
        error(f"Python {facts.software.python} is too old: {needed} is needed", "python", INSTALL)
    ]


def libc(facts: Facts) -> Found:
    """torch has no build for an old C library, nor for another one."""
    name, _, version = (facts.software.libc or "").partition(" ")
    if not name:
        return None
    if name == "glibc" and numbers(version) >= OLDEST_GLIBC:
        return []
    needed = ".".join(map(str, OLDEST_GLIBC))
    return [
        error(
            f"torch has no build for {facts.software.libc}: glibc {needed} or newer is needed",
            "operating system",
            "use a newer one, or a container of it: pip cannot help here",
        )
    ]


def packages(facts: Facts) -> Found:
    """What trains must be there, in versions that were tested together."""
    if not facts.software.versions:
        return None
    return list(_packages(facts.software))


def _packages(software: Software) -> Iterator[Problem]:
    absent = [name for name in NEEDED if software.versions.get(name) is None]
    if absent:
        yield error(f"not installed: {', '.join(absent)}", "packages", INSTALL)
    for name, wanted in software.unmet.items():
        what = f"version {software.versions.get(name)} is not one this works with: {wanted}"
        yield warning(what, name, f"pip install '{name}{wanted}'")


def quantized(facts: Facts) -> Found:
    """Whether 4-bit layers really run here."""
    version = facts.software.versions.get("bitsandbytes")
    if version is None or not facts.accelerators:
        return None
    kind = facts.accelerators[0].kind
    if kind in NO_BITSANDBYTES:
        what = f"bitsandbytes {version} has no backend for {kind} devices: QLoRA is not offered"
        return [note(what, "bitsandbytes")]
    tried = facts.torch.bnb_4bit if facts.torch else None
    if tried is None:
        return None
    if tried:
        return []
    what = f"bitsandbytes {version} cannot run a 4-bit layer on this device: QLoRA would fail"
    return [warning(what, "bitsandbytes", "python -m bitsandbytes says why")]


def cpu_adam(facts: Facts) -> Found:
    """Offload to the host needs DeepSpeed's CPU Adam, which is built at its first use."""
    lacks = facts.software.cpu_adam_lacks
    if lacks is None:
        return None
    if not lacks:
        return []
    what = f"its CPU Adam, which offload needs, cannot be built: {', '.join(lacks)} missing"
    return [warning(what, "deepspeed", "; ".join(_build_fixes(lacks)))]


def _build_fixes(lacks: Sequence[str]) -> Iterator[str]:
    system = {"c++": "g++", "python headers": "python3-dev"}
    wanted = [system[tool] for tool in lacks if tool in system]
    if wanted:
        yield f"sudo apt-get install -y {' '.join(wanted)}"
    if "ninja" in lacks:
        yield "put ninja on PATH: activate this environment, or pip install ninja"
    if any(tool.startswith("nvcc") for tool in lacks):
        yield "install the CUDA toolkit of torch's own version and set CUDA_HOME to it"


def flash_attention(facts: Facts) -> Found:
    """The flash-attn package serves capability 8.0 and newer."""
    version = facts.software.versions.get("flash-attn")
    if version is None or not nvidia(facts):
        return None
    old = [
        d for d in nvidia(facts) if d.compute_capability and d.compute_capability < FLASH_ATTENTION
    ]
    return [
        warning(
            f"flash-attn {version} has no kernels for capability {_dotted(device)}",
            name_of(device),
            "leave attn_implementation at sdpa",
        )
        for device in old
    ]


def _cuda(facts: Facts) -> tuple[int, ...] | None:
    """The CUDA version torch was built for."""
    if facts.torch and facts.torch.cuda:
        return numbers(facts.torch.cuda)
    kind, _, version = (facts.software.torch_build or "").partition(" ")
    return numbers(version) if kind == "cuda" else None


def _dotted(device: Device) -> str:
    return ".".join(map(str, device.compute_capability or ()))


CHECKS = (
    Check(id="driver.fits-torch", title="the driver serves torch's CUDA", find=driver),
    Check(id="torch.build", title="torch is built for these devices", find=torch_build),
    Check(id="torch.sees-devices", title="torch sees every device", find=torch_sees),
    Check(id="torch.kernels", title="torch has kernels for every device", find=architectures),
    Check(id="devices.bf16", title="bf16 in hardware", find=bf16),
    Check(id="software.python", title="Python is new enough", find=python),
    Check(id="software.libc", title="the C library is new enough", find=libc),
    Check(id="software.packages", title="packages that train, in tested versions", find=packages),
    Check(id="software.quantized", title="4-bit layers run", find=quantized),
    Check(id="software.cpu-adam", title="DeepSpeed's CPU Adam can be built", find=cpu_adam),
    Check(
        id="software.flash-attention", title="flash-attn serves every device", find=flash_attention
    ),
)
