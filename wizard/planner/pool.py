"""Which devices a run may use: named by the user, else the largest group of one kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wizard.answers import Answers
from wizard.facts import Device, Facts
from wizard.islands import best_subset, islands
from wizard.problem import Problem, ProblemError
from wizard.wording import counted, gib

TRAINS_AS = {"cuda": "cuda", "rocm": "cuda", "npu": "npu", "cpu": "cpu"}
"""Kind of device → what the engine calls it: torch for ROCm has the interface of torch.cuda."""

CPU_RANKS = 2
"""Ranks on a machine without accelerators: enough to share the rows, cheap in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Devices of one kind, best first."""

    kind: str
    devices: tuple[Device, ...]
    """One per rank at most; for CPU ranks the one CPU."""
    count: int
    """Ranks the run may have."""
    fixed: bool
    """Whether the user gave the count: then no plan has fewer."""
    reason: str
    island: int = 0
    """Devices of the largest group that reach each other best; `count` where all do."""
    machines: int = 1
    """Machines that the devices are shared out over evenly."""
    nvme_path: str | None = None
    """A folder on a fast disk that weights and states may wait in."""

    def take(self, count: int, facts: Facts) -> tuple[Device, ...]:
        """The devices that a run on so many uses: those that reach each other best."""
        if self.fixed or count >= len(self.devices):
            return self.devices[:count]
        return _some(self.devices, count, facts, named=False)

    @property
    def on_one_machine(self) -> int:
        """Ranks that one machine has room for."""
        return self.count // self.machines or self.count

    @property
    def unified(self) -> bool:
        """Host and devices share one pool, so that moving things between them frees nothing."""
        return self.kind != "cpu" and any(device.unified_memory for device in self.devices)

    @property
    def smallest(self) -> Device:
        """The device with the least memory: it decides whether a plan fits."""
        return min(self.devices, key=lambda d: d.memory_total_bytes or 0)


def choose(facts: Facts, answers: Answers) -> Pool:
    """The devices the answers allow.

    Raises ProblemError (exit code 6) when they name a device that is not there.
    """
    settings = answers.fixed
    count = settings.get("num_devices", answers.num_devices)
    kind = settings.get("device_kind")
    if kind == "cpu" or (kind is None and not facts.accelerators):
        return _cpu_pool(facts, count, answers)
    usable = [d for d in facts.accelerators if d.kind in TRAINS_AS]
    if kind is None and not usable:
        raise ProblemError(_not_trained_on(facts.accelerators))
    devices = [d for d in usable if kind in (None, TRAINS_AS[d.kind])]
    if not devices:
        raise _missing(f"no {kind} device", "device_kind", "device_kind=cpu trains on the CPU")
    named = _named(devices, answers, settings)
    chosen = named if named is not None else _largest_group(devices)
    if count is not None and count > len(chosen):
        there = f"{len(chosen)} of one kind {'is' if len(chosen) == 1 else 'are'} here"
        what = f"{counted(count, 'device')} asked for, {there}"
        raise _missing(what, "num_devices", f"num_devices={len(chosen)} uses them all")
    some = _some(chosen, count, facts, named=named is not None)
    fixed = count is not None or named is not None
    return Pool(
        kind=TRAINS_AS[chosen[0].kind],
        devices=some,
        count=count or len(chosen),
        fixed=fixed,
        reason=_reason(chosen, facts.accelerators, named=named is not None),
        island=_island(some, facts),
        machines=facts.machines,
        nvme_path=_nvme_path(facts),
    )


def _cpu_pool(facts: Facts, count: int | None, answers: Answers) -> Pool:
    settings = answers.fixed
    if any(index != 0 for index in answers.devices or ()):
        raise _missing("no accelerator is in use", "--devices", "leave it out to train on the CPU")
    if settings.get("devices"):
        raise _missing(
            f"there is no device {settings['devices'][0]}",
            "devices",
            "leave it out to train on the CPU",
        )
    cores = facts.host.cpu_cores or 1
    cpu = next((d for d in facts.devices if d.kind == "cpu"), None) or Device(
        kind="cpu",
        index=0,
        name=facts.host.cpu_name or "CPU",
        memory_total_bytes=facts.host.memory_total_bytes,
        memory_free_bytes=facts.host.memory_available_bytes,
    )
    ranks = count or min(CPU_RANKS, cores)
    return Pool(
        kind="cpu",
        devices=(cpu,),
        count=ranks,
        fixed=count is not None,
        reason=f"no accelerator; 1 core carries {counted(ranks, 'CPU rank')}"
        if cores == 1
        else f"no accelerator; {cores:,} cores carry {counted(ranks, 'CPU rank')}",
    )


def _named(
    devices: Sequence[Device], answers: Answers, settings: Mapping[str, Any]
) -> list[Device] | None:
    """The devices the user listed by index or UUID, in that order; None when none were listed."""
    if settings.get("devices"):
        by_name = {d.uuid: d for d in devices if d.uuid}
        return [_find(by_name, uuid, "devices") for uuid in settings["devices"]]
    if answers.devices is not None:
        by_index = {d.index: d for d in devices}
        return [_find(by_index, index, "devices") for index in answers.devices]
    return None


def _find(known: Mapping[Any, Device], name: object, setting: str) -> Device:
    if name in known:
        return known[name]
    there = ", ".join(map(str, known)) or "none with such a name"
    raise _missing(f"there is no device {name}", setting, f"this machine has: {there}")


def _largest_group(devices: Sequence[Device]) -> list[Device]:
    """The devices of one kind that compute most together; by number where rates are unknown."""
    groups: dict[tuple[str, int | None], list[Device]] = defaultdict(list)
    for device in devices:
        groups[device.name, device.memory_total_bytes].append(device)
    rated = all(group[0].bf16_tflops for group in groups.values())

    def worth(group: list[Device]) -> tuple[float, int]:
        each = (group[0].bf16_tflops or 0.0) if rated else 1.0
        return len(group) * each, group[0].memory_total_bytes or 0

    return max(groups.values(), key=worth)


def _island(devices: Sequence[Device], facts: Facts) -> int:
    """How many of these devices reach each other over the best links that join any."""
    places = {place for place, device in enumerate(facts.devices) if device in devices}
    return max((len(places & set(one.devices)) for one in islands(facts)), default=0)


def _nvme_path(facts: Facts) -> str | None:
    """The folder of the runs, where it is on a fast disk."""
    disks = facts.host.surroundings.disks
    fast = any(disk.speed == "nvme" and "runs" in disk.used_for for disk in disks)
    return facts.host.disk_path if fast else None


def _some(
    chosen: Sequence[Device], count: int | None, facts: Facts, *, named: bool
) -> tuple[Device, ...]:
    """As many as asked for: the first of those the user listed, else those best linked."""
    if count is None or named or count < 2:
        return tuple(chosen[:count])
    among = [facts.devices.index(device) for device in chosen]
    return tuple(facts.devices[position] for position in best_subset(facts, count, among))


def _reason(chosen: Sequence[Device], there: Sequence[Device], *, named: bool) -> str:
    if named:
        return f"the {len(chosen)} you named"
    group = f"{len(chosen)} × {chosen[0].name}"
    others = [device for device in there if device not in chosen]
    if not others:
        return group
    return f"{group}, {_worth_most(chosen)}; {len(others)} other left out: {_why_not(others)}"


def _worth_most(chosen: Sequence[Device]) -> str:
    return "the strongest device" if len(chosen) == 1 else "the largest group of one kind"


def _why_not(others: Sequence[Device]) -> str:
    """Ranks wait for the slowest, and each holds what the smallest has room for."""
    names = ", ".join(sorted({f"{device.name} ({_memory(device)})" for device in others}))
    return f"beside {names} each rank would have its memory at most, and wait for the slower one"


def _memory(device: Device) -> str:
    return gib(device.memory_total_bytes)


def _not_trained_on(there: Sequence[Device]) -> Problem:
    """Devices that the engine cannot drive: said, never a silent plan for the CPU."""
    name, kind = there[0].name, there[0].kind
    return Problem(
        what=f"{name} is recognised but not yet trained on: the engine drives CUDA, ROCm and "
        f"Ascend devices, not {kind}",
        where=f"{len(there)} × {kind}",
        fix="device_kind=cpu trains on the CPU, which is right for small models only",
        exit_code=6,
    )


def _missing(what: str, where: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=6))
