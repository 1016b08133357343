"""Islands part the devices, whatever order links come in; subsets are the best connected."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.probe.links.said import cards, facts
from wizard.facts import Facts, Island, Link
from wizard.islands import best_links, best_subset, connectivity, islands, no_peer_access

KINDS = st.sampled_from(
    ("nvswitch", "nvlink", "xgmi", "pcie-switch", "host-bridge", "socket", "unknown")
)


def link(a: int, b: int, kind: Any = "nvlink", gbs: float | None = 300.0, **more: Any) -> Link:
    return Link(devices=(a, b), kind=kind, gbs=gbs, **more)


def machine(count: int, *links: Link) -> Facts:
    return facts(cards(count, "NVIDIA A100 80GB PCIe", (8, 0)), links)


@st.composite
def machines(draw: st.DrawFn) -> Facts:
    count = draw(st.integers(1, 9))
    pairs = draw(st.lists(st.sampled_from(list(itertools.combinations(range(10), 2)))))
    links = [
        link(a, b, draw(KINDS), draw(st.none() | st.sampled_from([12.0, 25.0, 300.0])))
        for a, b in pairs
        if b < count
    ]
    return machine(count, *links)


@given(machines())
def test_every_device_is_in_exactly_one_island(given_facts: Facts) -> None:
    members = [place for island in islands(given_facts) for place in island.devices]
    assert sorted(members) == list(range(len(given_facts.devices)))


@given(machines(), st.randoms())
def test_the_order_and_direction_of_links_change_nothing(given_facts: Facts, random: Any) -> None:
    links = [link(*x.devices[::-1], x.kind, x.gbs) for x in given_facts.links]
    random.shuffle(links)
    turned = facts(given_facts.devices, links)
    assert islands(turned) == islands(given_facts)
    assert best_subset(turned, 3) == best_subset(given_facts, 3)


@given(machines())
def test_inside_an_island_everybody_reaches_everybody_at_its_rate(given_facts: Facts) -> None:
    links = best_links(given_facts.links)
    for island in islands(given_facts):
        inside = [links.get(pair) for pair in itertools.combinations(island.devices, 2)]
        assert all(one is not None and one.kind not in ("socket", "unknown") for one in inside)
        if island.gbs is not None:
            assert all(one is not None and (one.gbs or 0) >= island.gbs for one in inside)


@given(machines(), st.integers(1, 9))
def test_a_subset_has_the_size_asked_for_or_all_there_are(facts_: Facts, count: int) -> None:
    chosen = best_subset(facts_, count)
    assert len(set(chosen)) == len(chosen) == min(count, len(facts_.devices))


def test_two_bridged_pairs_are_two_islands() -> None:
    found = islands(machine(4, link(0, 1), link(2, 3), link(0, 2, "socket", 31.5)))
    assert found == (
        Island(devices=(0, 1), kind="nvlink", gbs=300.0),
        Island(devices=(2, 3), kind="nvlink", gbs=300.0),
    )


def test_a_socket_is_an_island_where_nothing_better_joins() -> None:
    bridges = [link(a, b, "host-bridge", 31.5) for a, b in ((0, 1), (2, 3))]
    across = [link(a, b, "socket", 31.5) for a in (0, 1) for b in (2, 3)]
    found = islands(machine(4, *bridges, *across))
    assert [island.devices for island in found] == [(0, 1), (2, 3)]
    assert {island.kind for island in found} == {"host-bridge"}


def test_one_unknown_rate_makes_the_islands_rate_unknown() -> None:
    (island,) = islands(machine(3, link(0, 1), link(1, 2), link(0, 2, gbs=None)))
    assert island.gbs is None


def test_sixty_four_partitions_are_parted_at_once() -> None:
    pairs = itertools.combinations(range(64), 2)
    (island,) = islands(machine(64, *(link(a, b, "xgmi", 64.0) for a, b in pairs)))
    assert len(island.devices) == 64


def test_connectivity_has_a_name() -> None:
    assert connectivity(machine(1)) == "alone"
    assert connectivity(machine(2, link(0, 1, "socket"))) == "none"
    assert connectivity(machine(2, link(0, 1))) == "full mesh"
    assert connectivity(machine(2, link(0, 1, "nvswitch"))) == "nvswitch"
    assert connectivity(machine(4, link(0, 1), link(2, 3))) == "pairs"
    assert connectivity(machine(3, link(0, 1), link(1, 2))) == "partial mesh"


def test_peer_access_is_refused_only_where_no_pair_has_it() -> None:
    no: dict[str, Any] = {"peer_access": False, "why": "PCIe 4.0 x16; refused"}
    bus = link(0, 1, "host-bridge", **no)
    assert no_peer_access(machine(2, bus), (0, 1)) == "refused"
    assert no_peer_access(machine(3, bus, link(1, 2, peer_access=True)), (0, 1, 2)) is None
    assert no_peer_access(machine(3, bus, link(1, 2, "host-bridge")), (0, 1, 2)) is None
    assert no_peer_access(machine(2), (0, 1)) is None


def test_what_a_test_has_shown_outweighs_what_other_pairs_can() -> None:
    hangs = link(0, 1, "pcie-switch", peer_access=False, why="hangs", source="measured")
    assert no_peer_access(machine(3, hangs, link(1, 2, peer_access=True)), (0, 1, 2)) == "hangs"
    assert no_peer_access(machine(3, hangs, link(1, 2, peer_access=True)), (1, 2)) is None
