"""What is wrong with NVIDIA devices or their driver, in words that lead to a remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from engine.theirs import quoted
from wizard.facts import Device
from wizard.probe import nvml_values as values
from wizard.probe.nvml_decode import LOST, Line
from wizard.probe.pci import Card, Traces
from wizard.problem import Problem

DRIVER_NOT_LOADED, NO_LIBRARY, VERSION_MISMATCH = 9, 12, 18
NVML = "NVIDIA driver"


def _problem(
    what: str, where: str, fix: str, severity: Literal["error", "warning", "info"] = "error"
) -> Problem:
    return Problem(what=what, where=where, fix=fix, severity=severity, exit_code=6)


def without_devices(error: Line | None, traces: Traces, library: str | None) -> Problem | None:
    """Why there is no device although something speaks for one; None on a machine without any."""
    code = (error or {}).get("code")
    if code == VERSION_MISMATCH:
        return mismatch(traces, library)
    if traces.wsl and (traces.wsl_driver or code == DRIVER_NOT_LOADED):
        return _windows()
    if code in (NO_LIBRARY, DRIVER_NOT_LOADED, None) and not traces.any:
        return None
    if code == DRIVER_NOT_LOADED or (traces.cards and not traces.nodes):
        return not_loaded(traces)
    if code == NO_LIBRARY:
        return _no_library()
    return _problem(
        f"it does not answer: {values.words((error or {}).get('text')) or 'it lists no device'}",
        NVML,
        "run nvidia-smi; it should list the devices",
    )


def mismatch(traces: Traces, library: str | None) -> Problem:
    """The driver was updated below a running kernel."""
    module = f" ({traces.module})" if traces.module else ""
    library = f" ({library})" if library else ""
    return _problem(
        f"the module in the kernel{module} and the library{library} have different versions",
        NVML,
        "reboot, or unload and reload the nvidia kernel modules: the driver was updated",
    )


def _windows() -> Problem:
    return _problem(
        "the driver of Windows does not reach into this WSL",
        NVML,
        "update the NVIDIA driver in Windows and run `wsl --update` there; install no driver in "
        "Linux; /usr/lib/wsl/lib must be where libraries are looked for",
    )


def _no_library() -> Problem:
    return _problem(
        "a driver is here, but its library libnvidia-ml.so.1 is not found",
        NVML,
        "in a container start it with the NVIDIA runtime (docker run --gpus all) and with "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    )


def not_loaded(traces: Traces) -> Problem:
    """A card is on the bus, and no driver reaches it; the likely cause is named."""
    held = {card.driver for card in traces.cards}
    cards = ", ".join(card.address for card in traces.cards[:4]) or "an NVIDIA card"
    if "nouveau" in held or traces.nouveau:
        cause = "the driver nouveau holds it, which cannot compute"
        fix = "install the NVIDIA driver, block nouveau (blacklist nouveau), and reboot"
    elif "vfio-pci" in held:
        cause = "it is given away to a virtual machine (vfio-pci)"
        fix = "take it back from the virtual machine, or use another card"
    else:
        cause = "the NVIDIA kernel module is not loaded"
        fix = (
            "run `modprobe nvidia` and read what dmesg says: after a kernel update the module is "
            "built anew by the driver's package; with Secure Boot its key must be enrolled"
        )
    return _problem(f"a card is on the bus ({cards}), but {cause}", NVML, fix)


def hung(limit_seconds: float, known: Sequence[Device], late: Sequence[int]) -> Problem:
    """The driver did not answer in time; late: indices of the known devices not told of in full."""
    which = ", ".join(f"device {index}" for index in late) or "the links between devices"
    about = f" for {which}" if known else ""
    return _problem(
        f"it did not answer within {limit_seconds:.0f} seconds{about}",
        NVML,
        "run nvidia-smi; if it hangs as well, reboot",
        "warning" if known else "error",
    )


def died(code: int | None, with_devices: bool) -> Problem:
    """The child ended before it had said all."""
    signal = f" (signal {-code})" if code is not None and code < 0 else ""
    return _problem(
        f"the process that asks it ended before its answer was complete{signal}",
        NVML,
        "look for Xid in dmesg; a card that is failing can do this to every program",
        "warning" if with_devices else "error",
    )


def lost(line: Line, known: Sequence[Device], cards: Sequence[Card]) -> Problem:
    """A device that cannot be opened, with its address where that can be told."""
    index, code = values.whole(line.get("index"), 0, 1024), line.get("code")
    text = values.words(line.get("text"))
    state = (
        "has fallen off the bus"
        if code in LOST
        else f"cannot be read: {quoted(text) if text else code}"
    )
    others = {device.bus.pci_id for device in known}
    missing = [card.address for card in cards if card.address not in others]
    address = f" ({missing[0]})" if len(missing) == 1 else ""
    return _problem(
        f"it {state}; it is left out",
        f"device {index}{address}",
        "look for Xid in dmesg; a reset or a reboot brings it back",
        "warning",
    )


def unusable(device: Device) -> Problem | None:
    """Why no run may be put on a device; None when one may."""
    if device.readings.remap_failed:
        what, fix = "a faulty memory row could not be replaced", "have the card exchanged"
    elif device.readings.compute_mode == "prohibited":
        what = "its compute mode forbids every program"
        fix = f"run nvidia-smi -i {device.index} -c DEFAULT as root"
    else:
        return None
    return _problem(f"{what}; it is left out", f"device {device.index}", fix, "warning")


def unlisted(index: int) -> Problem:
    """A card in MIG mode without slices to use."""
    return _problem(
        "it is divided (MIG), and its slices cannot be listed here",
        f"device {index}",
        "create one (nvidia-smi mig -cgi ... -C), or start the container with one",
        "warning",
    )


def by_other_way(error: Line | None, way: str) -> Problem:
    """NVML was of no use, and something else knew the devices."""
    code = (error or {}).get("code")
    told = values.words((error or {}).get("text"))
    text = quoted(told) if told else "it gave no devices"
    if code == NO_LIBRARY:
        text = "its library libnvidia-ml.so.1 is not found"
    return _problem(
        f"NVML cannot be asked: {text}; the devices are those {way} lists, with fewer facts",
        NVML,
        "in a container add `utility` to NVIDIA_DRIVER_CAPABILITIES to see temperature and load",
        "warning",
    )
