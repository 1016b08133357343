"""Which devices CUDA_VISIBLE_DEVICES leaves, and in which order, read as CUDA reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wizard.facts import Device, TorchView
from wizard.probe.accelerators import Accelerators
from wizard.probe.torchview import same_device
from wizard.problem import Problem

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


def visible(
    found: Accelerators, environment: Mapping[str, str], torch: TorchView | None = None
) -> Accelerators:
    """The devices left, in the variable's order; as in CUDA, a wrong entry ends the list.

    torch, asked under the same variables, knows what their numbers mean; without it the order of
    the driver is taken, and said to be where cards differ.
    """
    wanted = environment.get(VARIABLE)
    if wanted is None or not _by_driver(found.devices):
        return found
    known = _as_torch(found.devices, torch)
    chosen, bad = (known, None) if known else _chosen(found.devices, wanted)
    problems = list(found.problems)
    if bad is not None:
        problems.append(_invisible(bad, wanted) if chosen else _none_left(bad, wanted))
    elif not chosen:
        problems.append(_all_hidden(wanted))
    if not known:
        problems += _order(found.devices, wanted, environment)
    return replace(found, devices=tuple(chosen), problems=tuple(problems))


def _by_driver(devices: Sequence[Device]) -> bool:
    """CUDA devices as the driver lists them; those that torch lists are what is left already."""
    return any(d.kind == "cuda" and not d.source.startswith("torch") for d in devices)


def _as_torch(devices: Sequence[Device], torch: TorchView | None) -> list[Device]:
    """The devices torch lists, in its order; empty when it lists none or others."""
    listed = torch.devices if torch is not None else ()
    matches = [[d for d in devices if same_device(d.uuid, seen.uuid)] for seen in listed]
    return [one[0] for one in matches] if all(len(one) == 1 for one in matches) else []


def _chosen(devices: Sequence[Device], wanted: str) -> tuple[list[Device], str | None]:
    """(devices, the entry that ends the list); an empty entry or -1 ends it in silence."""
    chosen: list[Device] = []
    for entry in (part.strip() for part in wanted.split(",")):
        device = _named(devices, entry)
        if device in chosen:
            return [], entry  # CUDA shows no device at all when one is named twice
        if device is None:
            return chosen, None if entry in ("", "-1") else entry
        chosen.append(device)
    return chosen, None


def _named(devices: Sequence[Device], entry: str) -> Device | None:
    """The device an entry names: a number, a UUID, or the unique beginning of one."""
    if entry.isascii() and entry.isdigit():
        return next((d for d in devices if d.index == int(entry[:9])), None)
    if not entry.startswith(("GPU-", "MIG-")):
        return None
    older = _older_slice(devices, entry)
    if older is not None:
        return older
    matches = [d for d in devices if d.uuid and d.uuid.lower().startswith(entry.lower())]
    if not matches:
        # A card's own UUID names the first slice of a card that is divided.
        matches = [d for d in devices if (d.mig_parent_uuid or "") == entry][:1]
    return matches[0] if len(matches) == 1 else None


def _older_slice(devices: Sequence[Device], entry: str) -> Device | None:
    """A slice in the form of older drivers: `MIG-GPU-<uuid of the card>/<instance>/<slice>`."""
    card = entry.removeprefix("MIG-").split("/")[0]
    if not entry.startswith("MIG-GPU-"):
        return None
    exact = [d for d in devices if d.uuid == entry]
    slices = exact or [d for d in devices if d.mig_parent_uuid == card]
    return slices[0] if len(slices) == 1 else None


def _invisible(entry: str, wanted: str) -> Problem:
    return Problem(
        what=f"`{entry}` names no device; it and what follows is not used",
        where=f"{VARIABLE}={wanted}",
        fix="nvidia-smi -L lists indices and UUIDs",
        severity="warning",
        exit_code=6,
    )


def _none_left(entry: str, wanted: str) -> Problem:
    return Problem(
        what=f"`{entry}` names no device, or one twice: CUDA then shows none at all",
        where=f"{VARIABLE}={wanted}",
        fix="nvidia-smi -L lists indices and UUIDs",
        exit_code=6,
    )


def _all_hidden(wanted: str) -> Problem:
    return Problem(
        what="every accelerator of this machine is hidden",
        where=f"{VARIABLE}={wanted}",
        fix="unset it to use them",
        severity="warning",
        exit_code=6,
    )


def _order(devices: Sequence[Device], wanted: str, environment: Mapping[str, str]) -> list[Problem]:
    """On mixed machines a number means different cards to CUDA and to the driver."""
    mixed = len({device.name for device in devices}) > 1
    by_bus = environment.get(ORDER) == "PCI_BUS_ID"
    if not mixed or by_bus or not any(part.strip().isdigit() for part in wanted.split(",")):
        return []
    return [
        Problem(
            what="its indices are read in the driver's order; CUDA counts the fastest card first",
            where=f"{VARIABLE}={wanted}",
            fix=f"set {ORDER}=PCI_BUS_ID, or name the devices by UUID",
            severity="warning",
            exit_code=6,
        )
    ]
