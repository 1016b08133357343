"""Checks of the accelerators themselves: health, use by others, modes, how alike they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from wizard.facts import GIB, Device, DeviceProcess, Facts
from wizard.probe.checks.rule import (
    Check,
    Found,
    error,
    name_of,
    names_of,
    note,
    nvidia,
    warning,
)
from wizard.problem import Problem
from wizard.wording import gib

IDLE_BYTES = 600 * 1024**2
"""What drivers and desktops hold of a card that nobody trains on."""
IDLE_NPU_BYTES = 4 * GIB
"""The Ascend driver holds 2.8 to 3.4 GB of an idle chip."""
FULL_SHARE = 0.95
DISPLAY_RESERVE = "1.5 GiB"
HOT = ("heat", "hardware slowdown", "power brake")


def _about(
    facts: Facts, known: Callable[[Device], object], find: Callable[[Device], Sequence[Problem]]
) -> Found:
    """What is found about each accelerator of which `known` is not None."""
    devices = [device for device in facts.accelerators if known(device) is not None]
    return [problem for device in devices for problem in find(device)] if devices else None


def in_use(facts: Facts) -> Found:
    """Memory that others hold: what is used beyond the driver's own share, or by a process."""
    return _about(facts, lambda device: device.memory_free_bytes, _held)


def _held(device: Device) -> list[Problem]:
    total, free = device.memory_total_bytes or 0, device.memory_free_bytes or 0
    used_bytes = total - free - (device.memory_reserved_bytes or 0)
    if device.unified_memory or used_bytes <= _idle_bytes(device):
        return []
    processes = device.readings.processes or ()
    # Inside a container the list is empty although memory is held: NVIDIA/nvidia-docker#179.
    by = f" by {_processes(processes)}" if processes else " by processes that are not visible here"
    return [
        warning(
            f"{gib(used_bytes)} of its {gib(device.memory_total_bytes)} are held{by}",
            name_of(device),
            "plan with what is free, or end what holds it: nvidia-smi lists it"
            if device.kind == "cuda"
            else "plan with what is free, or end what holds it",
        )
    ]


def _idle_bytes(device: Device) -> int:
    return IDLE_NPU_BYTES if device.kind == "npu" else IDLE_BYTES


def _processes(processes: Sequence[DeviceProcess]) -> str:
    named = [f"{one.name or 'process'} ({one.pid})" for one in processes]
    more = f" and {len(named) - 3} more" if len(named) > 3 else ""
    return ", ".join(named[:3]) + more


def spill(facts: Facts) -> Found:
    """Under WSL a full card is not an error but ten times slower: Windows swaps it to memory."""
    if not facts.host.surroundings.wsl:
        return None
    return _about(facts, lambda device: device.memory_used_bytes, _spilling)


def _spilling(device: Device) -> list[Problem]:
    total, used = device.memory_total_bytes or 0, device.memory_used_bytes or 0
    if not total or used < FULL_SHARE * total:
        return []
    return [
        warning(
            "it is full: Windows moves what does not fit to main memory, about ten times slower",
            name_of(device),
            "close what uses it in Windows; in NVIDIA's control panel set 'CUDA - Sysmem Fallback "
            "Policy' to 'Prefer No Sysmem Fallback'",
        )
    ]


def display(facts: Facts) -> Found:
    """A card that draws a desktop loses memory while one trains."""
    return _about(
        facts,
        lambda device: device.readings.display_active,
        lambda device: (
            [
                note(
                    f"it drives a display: keep about {DISPLAY_RESERVE} of it free",
                    name_of(device),
                    "log out of the desktop, or sudo systemctl isolate multi-user.target",
                )
            ]
            if device.readings.display_active
            else []
        ),
    )


def compute_mode(facts: Facts) -> Found:
    """Prohibited: nothing runs. Exclusive: one process at a time."""
    return _about(facts, lambda device: device.readings.compute_mode, _mode)


def _mode(device: Device) -> list[Problem]:
    mode = device.readings.compute_mode
    fix = f"sudo nvidia-smi -i {device.index} -c DEFAULT"
    if mode == "prohibited":
        what = "its compute mode is prohibited: no program may use it"
        return [error(what, name_of(device), fix, exit_code=6)]
    if mode in ("exclusive_process", "exclusive_thread"):
        what = "one process at a time may use it: chat and training cannot share it"
        return [note(what, name_of(device), fix)]
    return []


def persistence(facts: Facts) -> Found:
    """Without it each start of a program loads the driver anew; WSL and MIG have none."""
    if facts.host.surroundings.wsl:
        return None
    if all(device.readings.persistence_mode is None for device in nvidia(facts)):
        return None
    off = [device for device in nvidia(facts) if device.readings.persistence_mode is False]
    if not off:
        return []
    what = "persistence mode is off: each program that starts waits for the driver to load"
    fix = "sudo nvidia-smi -pm 1"
    if facts.host.surroundings.container:
        fix += ", on the machine outside the container"
    return [note(what, names_of(off), fix)]


def memory_errors(facts: Facts) -> Found:
    """Faulty memory: a reset mends a pending row, nothing mends a failed one."""

    def known(device: Device) -> object:
        readings = device.readings
        values = (readings.ecc_uncorrected, readings.remap_pending, readings.remap_failed)
        return next((value for value in values if value is not None), None)

    return _about(facts, known, lambda device: list(_memory_errors(device)))


def _memory_errors(device: Device) -> Iterator[Problem]:
    readings, where = device.readings, name_of(device)
    reset = f"sudo nvidia-smi -i {device.index} --gpu-reset, or reboot"
    if readings.remap_failed:
        what = "a faulty memory row could not be replaced: runs on it will die"
        yield error(what, where, "train on the others, and have the card replaced", exit_code=6)
    if readings.remap_pending:
        what = "a faulty memory row waits for a reset to be replaced"
        yield warning(what, where, reset, exit_code=6)
    if readings.ecc_uncorrected:
        count = readings.ecc_uncorrected
        what = f"{count} uncorrected memory errors since the last reset"
        yield warning(what, where, reset, exit_code=6)


def throttling(facts: Facts) -> Found:
    """A clock held down by heat or power: slower than planned, and slows every other rank."""
    return _about(facts, lambda device: device.readings.throttle_reasons, _throttled)


def _throttled(device: Device) -> list[Problem]:
    reasons = [one for one in device.readings.throttle_reasons or () if one in HOT]
    if not reasons:
        return []
    heat = device.readings.temperature_c
    at = f" at {heat:.0f} °C" if heat is not None else ""
    return [
        warning(
            f"its clock is held down{at}: {', '.join(reasons)}",
            name_of(device),
            "look at fans, air flow and power cables; nvidia-smi -q -d PERFORMANCE tells more",
        )
    ]


def alike(facts: Facts) -> Found:
    """Every rank gets the same work: the smallest device sets the batch, the slowest the pace."""
    devices = facts.accelerators
    if len(devices) < 2:
        return None
    if len({device.name for device in devices}) == 1:
        return []
    sizes = [device.memory_total_bytes for device in devices if device.memory_total_bytes]
    least = f" ({gib(min(sizes))})" if sizes else ""
    names = ", ".join(sorted({device.name for device in devices}))
    return [
        warning(
            f"the devices differ ({names}): all get a batch that fits the smallest{least}, and "
            "wait for the slowest",
            names_of(devices),
            "train on those that are alike: --devices takes their numbers",
        )
    ]


def slices(facts: Facts) -> Found:
    """Slices of one card cannot form one process group over NCCL."""
    parts = [device for device in facts.accelerators if device.mig_parent_uuid]
    if not parts:
        return None
    if len(parts) == 1:
        return []
    what = f"{len(parts)} MIG slices: they cannot train together, a run takes one"
    fix = "for more memory than a slice has: sudo nvidia-smi -mig 0, when nobody uses the card"
    return [note(what, names_of(parts), fix)]


def usable(facts: Facts) -> Found:
    """Cards on the bus that cannot be used: never silently a run on the CPU."""
    others = facts.host.surroundings.other_accelerators
    if not (others or facts.accelerators):
        return None
    say = warning if facts.accelerators else error
    return [
        say(
            reason,
            "accelerators",
            "load the driver its maker gives for it, or train on the CPU on purpose: "
            "--set device_kind=cpu",
            exit_code=6,
        )
        for reason in others
    ]


def unified(facts: Facts) -> Found:
    """One pool of memory: there is no host to offload to."""
    shared = [device for device in facts.accelerators if device.unified_memory]
    if not shared:
        return None
    what = "it shares its memory with the host: offload gains nothing, and both are planned as one"
    return [note(what, names_of(shared))]


def coherent(facts: Facts) -> Found:
    """Two memories in one address space: tensors live in the device's, offload is near."""
    near = [device for device in facts.accelerators if device.coherent_memory]
    if not near:
        return None
    what = (
        "its memory and the host's are one address space over NVLink-C2C: what is offloaded stays "
        "within fast reach, but torch allocates in the device's own, so a plan must fit there; "
        "the host may count the device's memory as its own"
    )
    return [note(what, names_of(near))]


CHECKS = (
    Check(id="devices.usable", title="every accelerator can be used", find=usable),
    Check(id="devices.memory-errors", title="no memory errors", find=memory_errors),
    Check(id="devices.in-use", title="nobody else holds their memory", find=in_use),
    Check(id="devices.spill", title="none spills into Windows' memory", find=spill),
    Check(id="devices.alike", title="all devices are alike", find=alike),
    Check(id="devices.compute-mode", title="any program may use them", find=compute_mode),
    Check(id="devices.throttling", title="no clock is held down", find=throttling),
    Check(id="devices.display", title="none drives a display", find=display),
    Check(id="devices.persistence", title="the driver stays loaded", find=persistence),
    Check(id="devices.slices", title="slices are used one to a run", find=slices),
    Check(id="devices.unified", title="memory of host and device", find=unified),
    Check(id="devices.coherent", title="one address space with the host", find=coherent),
)
