"""Some machines that are all like one: their devices and memory together, and what is between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from wizard.facts import Device, Facts, Link
from wizard.problem import Problem, ProblemError

MOST = 64
"""As many machines as a machine may have devices; planning takes as long as there are pairs."""
BANDWIDTH = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(Gbps|Gbit/s|GB/s)", re.IGNORECASE)


def check_count(nodes: int) -> None:
    """Raise ProblemError (exit code 2) for a number of machines that nobody plans for."""
    if not 1 <= nodes <= MOST:
        raise ProblemError(Problem(what=f"--nodes takes 1 to {MOST:,}", exit_code=2))


def bandwidth_gbs(text: str | None) -> float | None:
    """GB/s of `100Gbps` or `12.5 GB/s`; None for none.

    Raises ProblemError (exit code 2) for anything else.
    """
    if text is None:
        return None
    found = BANDWIDTH.fullmatch(text.strip())
    if found is None or not float(found[1]):
        what = f"no bandwidth of a network: {text[:40]}"
        raise ProblemError(
            Problem(what=what, where="--network", fix="like 100Gbps, or 12.5GB/s", exit_code=2)
        )
    return float(found[1]) / (1 if found[2].lower() == "gb/s" else 8)


def several(
    facts: Facts,
    nodes: int,
    devices: Sequence[int] | None = None,
    network_gbs: float | None = None,
) -> Facts:
    """The facts of `nodes` machines that are all like this one.

    `devices` are indices of those that each lends, all when None; `network_gbs` is what the network
    of each carries in one direction, None when that is not known.
    """
    used = [
        place
        for place, device in enumerate(facts.devices)
        if devices is None or device.index in devices or device.kind == "cpu"
    ]
    # The CPU is one device, whose ranks are counted by num_devices.
    one = [facts.devices[place] for place in used]
    times = nodes if facts.accelerators else 1
    host = facts.host
    return replace(
        facts,
        devices=tuple(_numbered(one, times)),
        links=tuple(_linked(facts.links, used, times)),
        host=replace(
            host,
            memory_total_bytes=_times(host.memory_total_bytes, nodes),
            memory_available_bytes=_times(host.memory_available_bytes, nodes),
        ),
        machines=nodes,
        network_gbs=network_gbs,
    )


def _times(size_bytes: int | None, nodes: int) -> int | None:
    return None if size_bytes is None else size_bytes * nodes


def _numbered(devices: Sequence[Device], times: int) -> list[Device]:
    """Each device once for every machine; only its own machine knows it by UUID."""
    return [
        replace(device, index=turn * len(devices) + place, uuid=None)
        for turn in range(times)
        for place, device in enumerate(devices)
    ]


def _linked(links: Sequence[Link], used: list[int], times: int) -> list[Link]:
    new = {old: place for place, old in enumerate(used)}
    return [
        replace(
            link,
            devices=(
                turn * len(used) + new[link.devices[0]],
                turn * len(used) + new[link.devices[1]],
            ),
        )
        for turn in range(times)
        for link in links
        if set(link.devices) <= set(used)
    ]
