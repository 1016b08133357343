"""Raw lines become links: the kind, the rate of the hardware, peer access with its reason."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.probe.links.said import (
    A100,
    GPU,
    H100,
    HIDDEN,
    OK,
    PHB,
    PIX,
    REGKEY,
    RTX3090,
    SWITCH,
    SYS,
    behind_switches,
    between,
    cards,
    nvlinks,
    pair,
    pairs,
    with_slice_of,
)
from wizard.facts import Device, Link
from wizard.probe import catalog
from wizard.probe.links import NVLINK_GBS, read_links
from wizard.probe.topology import UNSAID
from wizard.probe.wiring import NVLINKS, by_capability

NOWHERE = Path("/nonexistent")


def read(devices: Any, raw: Any, root: Path = NOWHERE) -> tuple[Link, ...]:
    return read_links(devices, raw, root=root)


def two(name: str = H100, capability: tuple[int, int] = (9, 0)) -> tuple[Device, ...]:
    return cards(2, name, capability, pcie=(5, 16))


@pytest.mark.parametrize(
    ("name", "capability", "links", "gbs"),
    [
        ("Tesla P100-SXM2-16GB", (6, 0), 4, 80.0),
        ("Tesla V100-SXM2-32GB", (7, 0), 6, 150.0),
        (A100, (8, 0), 12, 300.0),
        ("NVIDIA RTX A6000", (8, 6), 4, 56.25),
        (H100, (9, 0), 18, 450.0),
        ("NVIDIA H800", (9, 0), 8, 200.0),
        ("NVIDIA B200", (10, 0), 18, 900.0),
    ],
)
def test_a_pairs_rate_is_its_links_times_that_of_the_generation(
    name: str, capability: tuple[int, int], links: int, gbs: float
) -> None:
    devices = two(name, capability)
    (link,) = read(devices, behind_switches(2, links, SWITCH, "00000000:CA:00.0"))
    assert (link.kind, link.gbs) == ("nvswitch", gbs)


def test_rates_are_those_of_the_shipped_table() -> None:
    for name in catalog.accelerator_names():
        row = catalog.accelerator(name) or {}
        links, gbs = catalog.number(row, "link_count"), catalog.number(row, "link_gbs")
        if row["vendor"] == "NVIDIA" and links and gbs:
            major, minor = map(int, row["compute_capability"].split("."))
            device = replace(two()[0], compute_capability=(major, minor))
            assert by_capability(NVLINK_GBS, device) * links == gbs, name
            assert by_capability(NVLINKS, device) == links, name


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 4070 SUPER"])
def test_cards_without_peer_access_are_known_by_the_table_and_by_their_series(name: str) -> None:
    (link,) = read(cards(2, name, (7, 5)), [pair(0, 1, PHB)])
    assert link.peer_access is False
    assert "stock driver" in link.why


def test_a_card_of_unknown_capability_has_the_rate_its_driver_states() -> None:
    devices = tuple(Device(kind="cuda", index=i, name="new", uuid=f"GPU-{i:08d}") for i in (0, 1))
    raw = [line | {"mb_s": 26562} for line in behind_switches(2, 10, SWITCH, None)]
    assert read(devices, raw)[0].gbs == pytest.approx(265.62)
    assert read(devices, behind_switches(2, 10, SWITCH, None))[0].gbs is None


def test_direct_links_join_those_they_lead_to() -> None:
    devices = cards(4, "NVIDIA A100 80GB PCIe", (8, 0))
    there = {0: 1, 1: 0, 2: 3, 3: 2}
    raw = [
        line
        for one, other in there.items()
        for line in nvlinks(one, [(GPU, devices[other].bus.pci_id)] * 12)
    ]
    links = read(devices, [*raw, *pairs(4, SYS, OK)])
    assert [link.devices for link in links if link.kind == "nvlink"] == [(0, 1), (2, 3)]
    assert {link.gbs for link in links if link.kind == "nvlink"} == {300.0}
    assert between(links, 0, 2).kind == "socket"


def test_links_to_a_card_that_may_not_be_used_join_nothing() -> None:
    raw = nvlinks(0, [(GPU, "00000000:99:00.0")] * 4) + nvlinks(1, [(GPU, "00000000:98:00.0")] * 4)
    (link,) = read(cards(2, RTX3090, (8, 6)), [*raw, pair(0, 1, PHB, OK)])
    assert (link.kind, link.gbs, link.peer_access) == ("host-bridge", 31.5, True)


def test_the_kernel_knows_a_switch_that_an_old_driver_does_not_name(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:ca:00.0"
    folder.mkdir(parents=True)
    (folder / "class").write_text("0x068000\n")
    raw = behind_switches(2, 12, None, "00000000:CA:00.0")
    (link,) = read(two(A100, (8, 0)), raw, tmp_path)
    assert (link.kind, "hidden" in link.why) == ("nvswitch", False)


def test_azures_first_bus_is_an_address_like_any_other() -> None:
    devices = cards(2, H100, (9, 0), buses=("00000001:00:00.0", "00000002:00:00.0"))
    raw = nvlinks(0, [(GPU, "00000002:00:00.0")] * 6) + nvlinks(1, [(GPU, "00000001:00:00.0")] * 6)
    assert read(devices, raw)[0].kind == "nvlink"


def test_a_matrix_that_counts_more_links_than_a_card_has_means_a_switch() -> None:
    raw = [pair(a, b, nvlinks=6) for a in range(4) for b in range(a + 1, 4)]
    assert {link.kind for link in read(cards(4, H100, (9, 0)), raw)} == {"nvlink"}
    assert {link.kind for link in read(cards(4, "Tesla V100-SXM3-32GB", (7, 0)), raw)} == {
        "nvswitch"
    }


def test_a_tool_that_says_only_that_links_are_up_joins_nothing() -> None:
    raw = behind_switches(2, 4, UNSAID, None)
    assert read(cards(2, RTX3090, (8, 6)), [*raw, pair(0, 1, PIX, OK)])[0].kind == "pcie-switch"


def test_the_slower_slot_bounds_what_goes_over_the_bus() -> None:
    fast, slow = cards(1, H100, (9, 0), pcie=(5, 16))[0], cards(2, H100, (9, 0), pcie=(3, 8))[1]
    (link,) = read((fast, slow), [pair(0, 1, PIX, OK)])
    assert link.gbs == pytest.approx(7.9)
    assert "PCIe 3.0 x8" in link.why


def test_what_nobody_says_is_unknown() -> None:
    (link,) = read(two(), [])
    assert (link.kind, link.gbs, link.peer_access, link.source) == ("unknown", None, None, "")


def test_different_memory_nodes_are_different_sockets_where_nothing_else_is_said() -> None:
    (link,) = read(cards(2, H100, (9, 0), nodes=(0, 1)), [])
    assert (link.kind, link.peer_access) == ("socket", None)


def test_one_refused_direction_is_a_refusal() -> None:
    (link,) = read(two(), [pair(0, 1, PIX, OK), pair(1, 0, None, OK, p2p_write=REGKEY)])
    assert link.peer_access is False
    assert "registry" in link.why


def test_slices_of_cards_reach_nobody() -> None:
    first, second = (with_slice_of(device, f"GPU-{i:08d}") for i, device in enumerate(two()))
    raw = behind_switches(2, 18, SWITCH, None)
    (link,) = read((first, second), [*raw, pair(0, 1, PIX, OK)])
    assert (link.kind, link.peer_access) == ("pcie-switch", False)


def test_devices_are_known_by_uuid_whatever_order_the_user_chose() -> None:
    devices = cards(3, "NVIDIA A100 80GB PCIe", (8, 0))
    raw = [pair(0, 1, PIX, OK), pair(0, 2, SYS, OK), pair(1, 2, SYS, OK)]
    links = read((devices[2], devices[1], devices[0]), raw)
    assert between(links, 1, 2).kind == "pcie-switch"
    assert between(links, 0, 1).kind == between(links, 0, 2).kind == "socket"


JUNK = st.sampled_from([None, True, False, -1, 0, 2, 255, "", "x", "00000000:10:00.0"])
NUMBER = st.none() | st.integers(0, 300)
LINES = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(["link", "pair", "linkless", "near"])},
        optional={
            "index": NUMBER,
            "uuid": st.none() | st.sampled_from(["GPU-00000000", "GPU-00000001", "x"]),
            "active": JUNK,
            "remote_type": NUMBER,
            "remote_pci": JUNK,
            "mb_s": st.none() | st.integers(1, 10**6),
            "indices": st.none() | st.lists(NUMBER, min_size=2, max_size=2),
            "uuids": st.sampled_from([None, ["GPU-00000000", "GPU-00000001"], [None, "x"]]),
            "level": NUMBER,
            "p2p_read": NUMBER,
            "p2p_write": NUMBER,
            "nvlinks": st.none() | st.integers(0, 40),
        },
    ),
    max_size=12,
)


@settings(max_examples=50)
@given(LINES)
def test_any_lines_give_one_link_for_each_pair(lines: Any) -> None:
    devices = cards(4, H100, (9, 0))
    links = read(devices, lines)
    assert [link.devices for link in links] == [(a, b) for a in range(4) for b in range(a + 1, 4)]
    assert all(link.why for link in links)
    assert all(link.gbs is None or link.gbs > 0 for link in links)


def test_a_hidden_far_end_is_taken_for_a_switch_and_said_to_be_assumed() -> None:
    (link,) = read(two(), behind_switches(2, 18, HIDDEN, None))
    assert link.kind == "nvswitch"
    assert "assumed" in link.why
