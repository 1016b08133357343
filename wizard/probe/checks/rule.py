"""What a check is, and the short ways to say what it found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from wizard.facts import Device, Facts
from wizard.problem import Problem

Found: TypeAlias = Iterable[Problem] | None
"""The problems; None when there is nothing to look at here, or it could not be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One rule about a machine."""

    id: str
    title: str
    """What is so when nothing is wrong."""
    find: Callable[[Facts], Found]


def error(what: str, where: str, fix: str, *, exit_code: int = 1) -> Problem:
    """Training cannot work like this."""
    return Problem(what=what, where=where, fix=fix, severity="error", exit_code=exit_code)


def warning(what: str, where: str, fix: str, *, exit_code: int = 1) -> Problem:
    """Training may fail, or be much slower."""
    return Problem(what=what, where=where, fix=fix, severity="warning", exit_code=exit_code)


def note(what: str, where: str, fix: str = "") -> Problem:
    """Worth knowing; nothing is wrong."""
    return Problem(what=what, where=where, fix=fix, severity="info")


def name_of(device: Device) -> str:
    """A device as problems name it."""
    return f"device {device.index} ({device.name})"


def names_of(devices: Sequence[Device]) -> str:
    """Devices as problems name them: `devices 0, 3`."""
    plural = "s" if len(devices) > 1 else ""
    return f"device{plural} " + ", ".join(str(device.index) for device in devices)


def nvidia(facts: Facts) -> tuple[Device, ...]:
    """The NVIDIA devices."""
    return tuple(device for device in facts.devices if device.kind == "cuda")
