"""What the probes of all vendors share: visibility, numbers in text, and how a problem is said."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from wizard.facts import Link
from wizard.probe.accelerators import Accelerators
from wizard.problem import Problem


def read_text(path: Path) -> str:
    """A file's text, stripped; empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def first_number(text: object) -> float | None:
    """The number a text begins with; None for `N/A`, `-` and the like."""
    found = re.match(r"\s*(-?\d{1,15}(?:\.\d{1,15})?)(?!\d)", str(text))
    return float(found[1]) if found else None


def whole(text: object) -> int | None:
    """The whole number a text begins with, not below 0; of broken ones, their whole part."""
    number = first_number(text)
    return None if number is None or number < 0 else int(number)


def pci_id(text: str) -> str | None:
    """A PCI address as the NVIDIA driver writes it too: `00000000:3B:00.0`."""
    found = re.fullmatch(
        r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-9a-fA-F])", text.strip()
    )
    if not found:
        return None
    domain, bus, device, function = found.groups(default="0")
    return f"{int(domain, 16):08X}:{bus}:{device}.{function}".upper()


def pci_folder(root: Path, address: str) -> Path:
    """The folder of a PCI device in sysfs, whose names have four digits of domain."""
    domain, _, rest = address.lower().partition(":")
    return root / "sys/bus/pci/devices" / f"{int(domain, 16):04x}:{rest}"


def numa_node(folder: Path) -> int | None:
    """The NUMA node of a PCI device; -1 in sysfs means that there is none to tell."""
    text = read_text(folder / "numa_node")
    return int(text) if text.isdecimal() else None


def json_in(text: str) -> Any:
    """The JSON document in a command's output, which warnings may precede; None without one."""
    for start, character in enumerate(text):
        if character in "{[":
            try:
                return json.JSONDecoder().raw_decode(text, start)[0]
            except ValueError:
                continue
    return None


def positions(wanted: str, count: int) -> tuple[list[int], str | None]:
    """(positions a visibility variable leaves, the entry that ends the list); -1 and "" mean none.

    As in the runtimes, a wrong or repeated entry ends the list.
    """
    kept: list[int] = []
    for entry in (part.strip() for part in wanted.split(",")):
        if not entry.isdecimal() or int(entry) >= count or int(entry) in kept:
            return kept, entry if entry not in ("", "-1") else None
        kept.append(int(entry))
    return kept, None


def hidden(
    found: Accelerators, kept: Sequence[int], bad: str | None, where: str, hint: str
) -> Accelerators:
    """Only the devices at these positions, in that order; indices stay those of the variable."""
    problems = list(found.problems)
    if bad is not None:
        problems.append(_invisible(bad, where, hint))
    if not kept and found.devices:
        problems.append(_all_hidden(where))
    return replace(
        found,
        devices=tuple(found.devices[old] for old in kept),
        known_links=_moved(found.known_links, {old: new for new, old in enumerate(kept)}),
        problems=tuple(problems),
    )


def _moved(links: Sequence[Link], places: Mapping[int, int]) -> tuple[Link, ...]:
    found = []
    for link in links:
        first, second = (places.get(end) for end in link.devices)
        if first is not None and second is not None:
            found.append(replace(link, devices=(min(first, second), max(first, second))))
    return tuple(sorted(found, key=lambda link: link.devices))


def _invisible(entry: str, where: str, hint: str) -> Problem:
    return Problem(
        what=f"`{entry}` names no device, or one twice; it and what follows is not used",
        where=where,
        fix=hint,
        severity="warning",
        exit_code=6,
    )


def _all_hidden(where: str) -> Problem:
    return Problem(
        what="every accelerator of this machine is hidden",
        where=where,
        fix="unset it to use them",
        severity="warning",
        exit_code=6,
    )


def not_trained_on(name: str) -> Problem:
    """Said early; the planner refuses them too, and never plans for the CPU instead."""
    return Problem(
        what="recognised, but not yet trained on",
        where=name,
        fix="device_kind=cpu trains on the CPU, which is right for small models only",
        severity="warning",
        exit_code=6,
    )


def hung(command: str, limit_seconds: float) -> Problem:
    """A vendor's tool that did not answer."""
    return Problem(
        what=f"{command} did not answer within {limit_seconds:.0f} seconds",
        where=command,
        fix=f"run {command} by hand; if it hangs as well, reboot",
        exit_code=6,
    )
