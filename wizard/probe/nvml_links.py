"""What is asked of NVML about NVLink and about each pair of devices; raw, for `links` to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wizard.probe.nvml_calls import Card, ask, pci_text, trouble

Say = Callable[[Mapping[str, Any]], None]

MOST_LINKS = 36
NO_SUCH_LINK = (2, 13)
"""Invalid argument past the last link; the function missing in an old driver."""
COMMON_SPEED_FIELD = 90
READ, WRITE, NVLINK = 0, 1, 2


def say_links(nvml: Any, card: Card, say: Say) -> None:
    """A `link` line for each NVLink of a card, or `linkless` with the code that says there is none.

    Link lines: active, version, address and type of the far end, MB/s; a failed call is null.
    """
    own = {"index": card.index, "uuid": card.uuid}
    states, code = _states(nvml, card.handle)
    if not states:
        say({"kind": "linkless", **own, "code": code})
        return
    speed = _speed(nvml, card.handle)
    for link, active in states:
        far = _far_end(nvml, card.handle, link) if active else {}
        say({"kind": "link", **own, "link": link, "active": active, "mb_s": speed, **far})


def _states(nvml: Any, handle: Any) -> tuple[list[tuple[int, bool]], int | None]:
    """((link, whether it is up) of each that exists, code of the first failure)."""
    states: list[tuple[int, bool]] = []
    first_code = None
    for link in range(MOST_LINKS):
        try:
            states.append((link, nvml.nvmlDeviceGetNvLinkState(handle, link) == 1))
        except Exception as error:
            code = trouble(error)["code"]
            first_code = code if first_code is None else first_code
            if link == 0 or code in NO_SUCH_LINK:
                break
    return states, first_code


def _far_end(nvml: Any, handle: Any, link: int) -> dict[str, Any]:
    remote = ask(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    return {
        "version": ask(nvml.nvmlDeviceGetNvLinkVersion, handle, link),
        "remote_pci": ask(pci_text, remote),
        "remote_type": ask(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link),
    }


def _speed(nvml: Any, handle: Any) -> int | None:
    """MB/s of one link in one direction."""
    try:
        (answer,) = nvml.nvmlDeviceGetFieldValues(handle, [COMMON_SPEED_FIELD])
        return int(answer.value.uiVal) or None if answer.nvmlReturn == 0 else None
    except Exception:
        return None


def say_pairs(nvml: Any, card: Card, cards: Sequence[Card], say: Say) -> None:
    """A `pair` line for a card with each later one: where their paths meet, and peer access."""
    for other in (one for one in cards if one.index > card.index):
        ends = card.handle, other.handle
        say(
            {
                "kind": "pair",
                "indices": [card.index, other.index],
                "uuids": [card.uuid, other.uuid],
                "level": ask(nvml.nvmlDeviceGetTopologyCommonAncestor, *ends),
                "p2p_read": ask(nvml.nvmlDeviceGetP2PStatus, *ends, READ),
                "p2p_write": ask(nvml.nvmlDeviceGetP2PStatus, *ends, WRITE),
                "p2p_nvlink": ask(nvml.nvmlDeviceGetP2PStatus, *ends, NVLINK),
            }
        )
