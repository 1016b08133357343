"""(Facts) → islands: which devices reach each other well, and which to take for a smaller run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from wizard.facts import Facts, Island, Link

Positions = tuple[int, ...]
Connectivity = Literal["alone", "nvswitch", "full mesh", "partial mesh", "pairs", "none"]

FAST = ("nvswitch", "nvlink", "xgmi", "hccs")
"""Links of the accelerators' own, whatever the vendor."""
LEVELS: tuple[tuple[str, ...], ...] = (FAST, ("pcie-switch",), ("host-bridge",))
"""Best first. Devices joined by nothing better than the link between sockets are apart."""
ALONE = "alone"
_RANK = {kind: rank for rank, kind in enumerate(("unknown", "socket", *reversed(sum(LEVELS, ()))))}


def islands(facts: Facts) -> tuple[Island, ...]:
    """Every device in exactly one island, the islands in the order of their first devices.

    All devices of an island reach one another over links of one level: the accelerators' own,
    else a PCIe switch, else the host bridges of one socket. A partial mesh falls into its fully
    connected parts. `gbs` is that of the slowest link inside, None when one is unknown.
    """
    links = best_links(facts.links)
    left = set(range(len(facts.devices)))
    found: list[Positions] = []
    for kinds in LEVELS:
        while (group := _largest_clique(left, links, kinds)) and len(group) > 1:
            found.append(group)
            left.difference_update(group)
    found += [(position,) for position in left]
    return tuple(_island(group, links) for group in sorted(found))


def best_links(links: Iterable[Link]) -> dict[tuple[int, int], Link]:
    """The best link of each pair, by positions in ascending order."""
    found: dict[tuple[int, int], Link] = {}
    for link in links:
        low, high = sorted(link.devices)
        before = found.get((low, high))
        if before is None or _quality(link) > _quality(before):
            found[low, high] = link
    return found


def _quality(link: Link) -> tuple[int, float]:
    return _RANK[link.kind], link.gbs or 0.0


def _largest_clique(
    among: Iterable[int], links: Mapping[tuple[int, int], Link], kinds: Sequence[str]
) -> Positions:
    """The most devices that are all joined by these kinds; then the fastest, then the first."""
    neighbours: dict[int, set[int]] = {position: set() for position in among}
    for (low, high), link in links.items():
        if link.kind in kinds and low in neighbours and high in neighbours and low != high:
            neighbours[low].add(high)
            neighbours[high].add(low)
    grown: list[Positions] = []
    settled: set[int] = set()
    for seed in sorted(neighbours):
        if seed not in settled:
            grown.append(_grown(seed, neighbours, links))
            # Those that are joined to nobody else would grow the same group again.
            settled.update(one for one in grown[-1] if neighbours[one] < set(grown[-1]))
    return max(grown, key=lambda group: _worth(group, links), default=())


def _grown(
    seed: int, neighbours: Mapping[int, set[int]], links: Mapping[tuple[int, int], Link]
) -> Positions:
    """A clique around one device: each time the candidate that keeps most others, then fastest."""
    group, candidates = [seed], set(neighbours[seed])
    while candidates:
        best = max(
            candidates,
            key=lambda one: (
                len(candidates & neighbours[one]),
                sum(_gbs(one, member, links) for member in group),
                -one,
            ),
        )
        group.append(best)
        candidates &= neighbours[best]
    return tuple(sorted(group))


def _worth(group: Positions, links: Mapping[tuple[int, int], Link]) -> tuple[int, float, list[int]]:
    total = sum(_gbs(a, b, links) for a, b in _pairs(group))
    return len(group), total, [-position for position in group]


def _gbs(one: int, other: int, links: Mapping[tuple[int, int], Link]) -> float:
    link = links.get((min(one, other), max(one, other)))
    return (link.gbs or 0.0) if link else 0.0


def _pairs(group: Sequence[int]) -> list[tuple[int, int]]:
    ordered = sorted(group)
    return [(a, b) for place, a in enumerate(ordered) for b in ordered[place + 1 :]]


def _island(group: Positions, links: Mapping[tuple[int, int], Link]) -> Island:
    inside = [links[pair] for pair in _pairs(group)]
    if not inside:
        return Island(devices=group, kind=ALONE)
    slowest = min(inside, key=_quality)
    rates = [link.gbs for link in inside if link.gbs is not None]
    whole = len(rates) == len(inside)
    return Island(devices=group, kind=slowest.kind, gbs=min(rates) if whole else None)


def connectivity(facts: Facts) -> Connectivity:
    """How far the accelerators' own links go: over a switch, all to all, in part, in pairs."""
    positions = [p for p, device in enumerate(facts.devices) if device.kind != "cpu"]
    if len(positions) < 2:
        return "alone"
    links = best_links(facts.links)
    joined = [pair for pair in _pairs(positions) if pair in links and links[pair].kind in FAST]
    if not joined:
        return "none"
    if len(joined) == len(_pairs(positions)):
        return "nvswitch" if any(links[p].kind == "nvswitch" for p in joined) else "full mesh"
    degrees = [sum(position in pair for pair in joined) for position in positions]
    return "pairs" if max(degrees) == 1 else "partial mesh"


def no_peer_access(facts: Facts, among: Sequence[int]) -> str | None:
    """Why NCCL must not let these devices read each other's memory; None when it may.

    It must not where a test has shown that data does not come over. Where the driver refuses it,
    NCCL knows, pair by pair, and is told only if no pair is left: what switches peer access off
    switches off NVLink too (huggingface/accelerate#2328).
    """
    links = best_links(facts.links)
    found = [links[pair] for pair in _pairs(among) if pair in links]
    refused = [link for link in found if link.peer_access is False]
    failed = [link for link in refused if link.source == "measured"]
    if failed:
        return failed[0].why
    none_left = bool(found) and len(refused) == len(found)
    return refused[0].why.rpartition("; ")[2] if none_left else None


def best_subset(facts: Facts, count: int, among: Sequence[int] | None = None) -> Positions:
    """Positions of the `count` devices that reach each other best, in ascending order.

    Grown from every device, each time by the one with the best links to those already taken;
    the set with the best slowest link wins, then the fastest in sum, then the first.
    Bridged devices are rarely neighbours by index. `among` leaves out the others.
    """
    positions = list(range(len(facts.devices)) if among is None else dict.fromkeys(among))
    if count >= len(positions):
        return tuple(sorted(positions))
    links = best_links(facts.links)
    groups = [_taken(seed, positions, count, links) for seed in positions]
    return max(groups, key=lambda group: _bond(group, links), default=())


def _taken(
    seed: int, positions: Sequence[int], count: int, links: Mapping[tuple[int, int], Link]
) -> Positions:
    group = [seed]
    while len(group) < count:
        rest = [position for position in positions if position not in group]
        group.append(max(rest, key=lambda one: _nearness(one, group, links)))
    return tuple(sorted(group))


def _nearness(
    one: int, group: Sequence[int], links: Mapping[tuple[int, int], Link]
) -> tuple[tuple[int, float], float, int]:
    found = [links.get((min(one, member), max(one, member))) for member in group]
    qualities = [_quality(link) if link else (-1, 0.0) for link in found]
    return min(qualities), sum(rate for _, rate in qualities), -one


def _bond(
    group: Positions, links: Mapping[tuple[int, int], Link]
) -> tuple[tuple[int, float], float, list[int]]:
    qualities = [_quality(links[p]) if p in links else (-1, 0.0) for p in _pairs(group)]
    slowest = min(qualities, default=(0, 0.0))
    return slowest, sum(rate for _, rate in qualities), [-position for position in group]
