"""Checks of what lies between devices: doubtful peer access, a card beside the fabric."""

from __future__ import annotations

from collections import defaultdict

from wizard.facts import Facts, Link
from wizard.probe.checks.rule import Check, Found, names_of, warning
from wizard.probe.links import CLAIMED
from wizard.problem import Problem


def peer_access(facts: Facts) -> Found:
    """Peer access that the driver claims and that is known to hang in such a place."""
    if all(link.peer_access is None and CLAIMED not in link.why for link in facts.links):
        return None
    doubtful: dict[str, list[Link]] = defaultdict(list)
    for link in facts.links:
        claim = link.why[link.why.find(CLAIMED) :]
        if link.peer_access is None and CLAIMED in claim:
            doubtful[claim].append(link)
    return [_doubt(reason, links) for reason, links in doubtful.items()]


def _doubt(reason: str, links: list[Link]) -> Problem:
    return warning(
        f"{reason}: a run may hang at its first exchange",
        "devices " + ", ".join(f"{one}–{other}" for one, other in (x.devices for x in links)),
        "tunewright probe --test-links tells; NCCL_P2P_DISABLE=1 goes around it",
        exit_code=6,
    )


def fabric(facts: Facts) -> Found:
    """A device without NVLink among its like, which reach each other over a switch."""
    switched = {end for link in facts.links if link.kind == "nvswitch" for end in link.devices}
    if not switched:
        return None
    names = {facts.devices[end].name for end in switched}
    beside = [
        device
        for place, device in enumerate(facts.devices)
        if place not in switched and device.name in names
    ]
    what = "no active NVLink, unlike the others: what it exchanges crosses the bus"
    fix = "leave it out, or see nvidia-smi nvlink -s and the log of nvidia-fabricmanager"
    return [warning(what, names_of([device]), fix, exit_code=6) for device in beside]


CHECKS = (
    Check(id="links.peer-access", title="peer access is to be trusted", find=peer_access),
    Check(id="links.fabric", title="every device is on the fabric", find=fabric),
)
