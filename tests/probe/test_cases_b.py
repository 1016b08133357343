"""Area B, what lies between devices: each known failure as a machine, and what is right for it.

Parts of the situations that no source states, and that these tests therefore do not rest on:

| case | assumed | instead |
|---|---|---|
| B03 | the text of a hidden far end's address | any address that is no device's, and none at all |
| B06 | where escape codes stand in the header | around it, and none |
| B09 | the code of a refusal on a 4090 | every code of a refusal |
| B15 | what tells a virtual machine | the processor's flag, and the maker's name |
| B19 | that an H20 reports as much memory | two names with the same memory |

That a test really hangs needs cards on which it does; a rank that is stopped stands for it in
`tests/probe/links/test_linktest.py`, and recorded lines do here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import machines, nvml
from tests.probe.links import said
from tests.probe.links.said import (
    A10G,
    A100,
    GPU,
    H100,
    HIDDEN,
    NO_ADDRESS,
    OK,
    PHB,
    PIX,
    PXB,
    RTX3090,
    RTX4090,
    RTX5090,
    SYS,
    behind_switches,
    between,
    cards,
    mesh,
    nvlinks,
    pair,
    pairs,
    topology,
)
from tests.probe.links.test_linktest import HANG, Child, copy, ended, summed
from tests.runner import making
from wizard import script
from wizard.answers import Answers
from wizard.facts import Device, Facts, Link
from wizard.islands import best_subset, connectivity, islands
from wizard.planner import pool
from wizard.probe import catalog, linktest, nvml_links, surroundings
from wizard.probe import topology as texts
from wizard.probe.checks import check
from wizard.probe.links import read_links
from wizard.probe.nvml_calls import Card

NOWHERE = Path("/nonexistent")
NO_PEER_ACCESS = "NCCL_P2P_DISABLE=1"


def recorded(name: str, root: Path) -> Facts:
    """A recorded machine, read through NVML's double."""
    found = nvml.found(nvml.load(name), root)
    return said.facts(found.devices, read_links(found.devices, found.links, root=root))


def printed(devices: Sequence[Device], *parts: Any) -> Facts:
    """A machine of which only nvidia-smi tells."""
    return said.facts(
        devices, read_links(devices, [x for part in parts for x in part], root=NOWHERE)
    )


def matrix(text: str) -> tuple[dict[str, Any], ...]:
    return texts.nvidia_topology(text)


def near(text: str) -> list[dict[str, Any]]:
    return [line for line in texts.nvidia_topology(text) if line["kind"] == "near"]


def run_sh(facts: Facts, *devices: str, driver: str = "580.126.20") -> str:
    """The script of a run on these devices, all of them unless named."""
    names = devices or tuple(device.uuid or "" for device in facts.devices)
    strategy = "ddp" if len(names) > 1 else "single"
    parallel = {
        "strategy": strategy,
        "device_kind": "cuda",
        "devices": names,
        "num_devices": len(names),
    }
    facts = replace(facts, software=replace(facts.software, driver=driver))
    batch = {"effective_batch_size": 2 * len(names)}
    plan = making.plan(making.spec(parallel=parallel, training=batch))
    files = script.render(plan, name="run", python=sys.executable, facts=facts, written="today")
    return files["run.sh"]


def warnings(facts: Facts, word: str) -> list[str]:
    return [str(p) for p in check(facts) if p.severity == "warning" and word in str(p)]


def test_b01_a_link_past_the_last_is_no_failure_of_the_card(tmp_path: Path) -> None:
    gb200 = {
        "nvmlDeviceGetName": "NVIDIA GB200",
        "nvmlDeviceGetCudaComputeCapability": [10, 0],
        "nvmlDeviceGetMemoryInfo": {"total_mib": 189471, "used_mib": 0},
        "nvmlDeviceGetNvLinkState": [1] * 18,
        "nvmlDeviceGetNvLinkRemoteDeviceType": [2] * 18,
        "nvmlDeviceGetNvLinkRemotePciInfo": ["00000000:C4:00.0"] * 18,
    }
    four = [{**gb200, "nvmlDeviceGetUUID": f"GPU-{index}"} for index in range(4)]
    assert nvml_links.MOST_LINKS == 36
    with pytest.raises(nvml.NVMLError, match="Invalid Argument"):
        nvml.Nvml(four).nvmlDeviceGetNvLinkState(nvml.Handle(0), 18)

    found = nvml.found(nvml.Nvml(four), tmp_path)

    links = read_links(found.devices, found.links, root=tmp_path)
    assert len(found.devices) == 4
    assert {(link.kind, link.gbs) for link in links} == {("nvswitch", 900.0)}


@pytest.mark.parametrize("code", [2, 3, 13, 999])
def test_b01_a_card_without_links_is_a_card_like_any_other(code: int) -> None:
    lines: list[Any] = []
    one = nvml.Nvml([{"nvmlDeviceGetNvLinkState": {"error": code}}])
    nvml_links.say_links(one, Card(0, nvml.Handle(0), "GPU-0"), lines.append)
    assert [line["kind"] for line in lines] == ["linkless"]


def test_b03_active_links_with_a_hidden_far_end_mean_a_switch(tmp_path: Path) -> None:
    found = recorded("h100x8_vm_hidden_switch", tmp_path)
    assert connectivity(found) == "nvswitch"
    assert {link.gbs for link in found.links} == {450.0}
    assert all("assumed" in link.why for link in found.links)
    for address in (NO_ADDRESS, "00000000:00:00.0", None):
        links = read_links(
            cards(2, H100, (9, 0)), behind_switches(2, 18, HIDDEN, address), root=NOWHERE
        )
        assert links[0].kind == "nvswitch"


def test_b04_six_links_between_all_of_four_are_a_full_mesh_without_a_switch() -> None:
    text = topology(
        mesh(4, "NV6"),
        cpus=("6,14,22,30", "2,10,18,26", "7,15,23,31", "5,13,21,29"),
        numa=("3", "1", "7", "5"),
        own_numa=("N/A",) * 4,
    )
    found = printed(cards(4, H100, (9, 0)), matrix(text))
    assert connectivity(found) == "full mesh"
    assert {(link.kind, link.gbs) for link in found.links} == {("nvlink", 150.0)}
    assert [line["numa_node"] for line in near(text)] == [3, 1, 7, 5]
    assert texts.cores(near(text)[0]["cpu_affinity"]) == (6, 14, 22, 30)


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("names", [[f"NIC{i}" for i in range(34)], ["mlx5_0", "mlx5_bond_1"]])
def test_b06_columns_of_network_cards_are_no_devices(terminal: bool, names: list[str]) -> None:
    text = topology(
        mesh(8, "NV18"),
        cards=names,
        cpus=("0-95",) * 4 + ("96-191",) * 4,
        numa=("0",) * 4 + ("1",) * 4,
        terminal=terminal,
    )
    lines = matrix(text)
    assert len([line for line in lines if line["kind"] == "pair"]) == 8 * 7
    found = printed(cards(8, "NVIDIA H20", (9, 0)), lines)
    assert {(link.kind, link.gbs) for link in found.links} == {("nvswitch", 450.0)}
    assert near(text)[7]["cpu_affinity"] == "96-191"


def pcie_box(root: Path, *, isolated: bool) -> Facts:
    """Four cards, two behind a switch on each socket; ACS gives each its own IOMMU group."""
    devices = cards(4, "NVIDIA A40", (8, 6), nodes=(0, 0, 1, 1))
    for number, device in enumerate(devices if isolated else ()):
        folder = root / f"sys/bus/pci/devices/0000:{16 + number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{number}")
        assert device.bus.pci_id == f"00000000:{16 + number:02X}:00.0"
    raw = [
        pair(0, 1, PXB, OK),
        pair(2, 3, PIX, OK),
        *(pair(a, b, SYS, OK) for a in (0, 1) for b in (2, 3)),
    ]
    return said.read(devices, raw, root)


def test_b07_pairs_that_acs_may_send_through_the_processor_are_doubted(tmp_path: Path) -> None:
    found = pcie_box(tmp_path, isolated=True)
    doubted = [link.devices for link in found.links if link.peer_access is None]
    assert doubted == [(0, 1), (2, 3)]
    (text,) = warnings(found, "ACS")
    assert "devices 0–1, 2–3" in text
    assert "--test-links" in text
    assert warnings(pcie_box(tmp_path / "other", isolated=False), "ACS") == []


def test_b07_a_hang_names_acs_and_the_script_keeps_the_way_around(tmp_path: Path) -> None:
    found = pcie_box(tmp_path, isolated=True)
    pairs_of_four = [copy(a, b, 9.0) for a in range(4) for b in range(a + 1, 4)]
    child = Child([HANG, ended(-9)], [*pairs_of_four, summed(4), ended()])
    tested = linktest.test_links(found.devices, found.links, run=child)
    (problem,) = tested.problems
    assert problem.severity == "error"
    assert "hangs" in problem.what
    assert NO_PEER_ACCESS in problem.fix
    assert "ACS and the IOMMU" in problem.fix
    assert f"export {NO_PEER_ACCESS}" in run_sh(replace(found, links=tested.links))
    assert NO_PEER_ACCESS not in run_sh(found)


def test_b09_cards_whose_driver_refuses_peer_access_run_without_it(tmp_path: Path) -> None:
    found = recorded("rtx4090x8_nop2p", tmp_path)
    assert {link.peer_access for link in found.links} == {False}
    assert all("stock driver of GeForce RTX 4090" in link.why for link in found.links)
    text = run_sh(found)
    assert f"export {NO_PEER_ACCESS}" in text
    assert "# the stock driver of GeForce RTX 4090 has no peer access" in text
    for code in range(1, 7):
        (link,) = read_links(cards(2, RTX4090, (8, 9)), pairs(2, PHB, code), root=NOWHERE)
        assert link.peer_access is False


def test_b09_an_early_driver_that_claims_peer_access_is_not_believed() -> None:
    devices = cards(2, RTX4090, (8, 9))
    found = said.facts(devices, read_links(devices, pairs(2, PHB, OK), root=NOWHERE))
    assert found.links[0].peer_access is None
    assert warnings(found, "stock driver of GeForce RTX 4090")


@pytest.mark.parametrize("driver", ["525.105.17", "535.129.03", "550.40.06"])
def test_b09_one_old_driver_makes_accelerate_refuse_even_a_single_card(driver: str) -> None:
    found = said.facts(cards(4, RTX4090, (8, 9)))
    text = run_sh(found, "GPU-00000001", driver=driver)
    assert f"export {NO_PEER_ACCESS}" in text
    assert "export NCCL_IB_DISABLE=1" in text
    assert "accelerate refuses" in text
    assert "NCCL_IB_DISABLE" not in run_sh(found, "GPU-00000001", driver="550.40.07")
    alone = said.facts(cards(1, RTX4090, (8, 9)))
    assert "NCCL_IB_DISABLE" not in run_sh(alone, driver=driver)


def test_b10_a_bridge_between_consumer_cards_is_left_on(tmp_path: Path) -> None:
    found = recorded("rtx3090x2_nvlink", tmp_path)
    (link,) = found.links
    assert (link.kind, link.gbs) == ("nvlink", 56.25)
    assert NO_PEER_ACCESS not in run_sh(found)
    allowed = read_links(
        found.devices,
        [
            *nvlinks(0, [(GPU, "00000000:11:00.0")] * 4),
            *nvlinks(1, [(GPU, "00000000:10:00.0")] * 4),
            pair(0, 1, PHB, OK),
        ],
        root=NOWHERE,
    )
    assert all(link.peer_access is not False for link in allowed)


def test_b10_the_decision_is_made_for_the_chosen_cards_only() -> None:
    devices = cards(3, RTX3090, (8, 6))
    bridged = Link(devices=(0, 1), kind="nvlink", gbs=56.25, peer_access=True, why="bridge")
    apart = [
        Link(devices=(a, 2), kind="host-bridge", gbs=31.5, peer_access=False, why="refused")
        for a in (0, 1)
    ]
    found = said.facts(devices, (bridged, *apart))
    assert NO_PEER_ACCESS not in run_sh(found)
    assert NO_PEER_ACCESS not in run_sh(found, "GPU-00000000", "GPU-00000001")
    assert NO_PEER_ACCESS in run_sh(found, "GPU-00000000", "GPU-00000002")


def test_b12_the_smallest_card_sets_the_budget_and_cards_that_are_alike_are_offered() -> None:
    found = machines.machine("mixed")
    every = pool.choose(found, Answers(devices=tuple(range(5))))
    assert every.smallest.memory_total_bytes == 24564 * 1024**2
    chosen = pool.choose(found, Answers())
    assert len({device.name for device in chosen.devices}) == 1
    assert "left out" in chosen.reason
    (text,) = warnings(found, "smallest")
    assert "--devices" in text


def test_b13_a_short_way_over_the_bus_is_no_permission_to_use_it() -> None:
    paths = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-63\nGPU1\tPHB\t X \t0-63\n"
    peers = " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n"
    devices = cards(2, RTX5090, (12, 0), pcie=(5, 16))
    (link,) = printed(devices, matrix(paths), texts.nvidia_peer_access(peers)).links
    assert (link.kind, link.gbs, link.peer_access) == ("host-bridge", 63.0, False)
    assert "not with these devices" in link.why


@pytest.mark.parametrize(
    "files",
    [
        {"proc/cpuinfo": "processor : 0\nflags : fpu sse hypervisor\n"},
        {
            "proc/cpuinfo": "processor : 0\nflags : fpu sse hypervisor\n",
            "sys/class/dmi/id/sys_vendor": "Amazon EC2\n",
        },
    ],
)
def test_b15_a_claim_inside_a_virtual_machine_is_to_be_tested(
    files: dict[str, str], tmp_path: Path
) -> None:
    found = recorded("a10gx4_g5_12xlarge", nvml.plant(files, tmp_path))
    assert {link.kind for link in found.links} == {"host-bridge"}
    assert {link.peer_access for link in found.links} == {None}
    (text,) = warnings(found, "virtual machine")
    assert "--test-links" in text


def test_b15_on_bare_metal_the_same_claim_stands(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "flags : fpu\n", "sys/class/dmi/id/sys_vendor": "Amazon EC2\n"}
    found = recorded("a10gx4_g5_12xlarge", nvml.plant(files, tmp_path))
    assert {link.peer_access for link in found.links} == {True}


def test_b15_peer_access_that_works_slower_than_none_is_found() -> None:
    devices = cards(2, A10G, (8, 6))
    known = read_links(devices, pairs(2, PHB, OK), root=NOWHERE)
    child = Child([copy(0, 1, 0.02), summed(2), ended()])
    problems = linktest.test_links(devices, known, run=child).problems
    assert problems[0].severity == "warning"
    assert NO_PEER_ACCESS in problems[0].fix


def test_b16_sixteen_cards_with_old_columns_are_one_switched_island() -> None:
    text = topology(mesh(16, "NV6"), cards=["mlx5_0", "mlx5_1"], cpus=("0-23,48-71",) * 16)
    found = printed(cards(16, "Tesla V100-SXM3-32GB", (7, 0)), matrix(text))
    (island,) = islands(found)
    assert (len(island.devices), island.kind, island.gbs) == (16, "nvswitch", 150.0)
    assert connectivity(found) == "nvswitch"
    assert {line["numa_node"] for line in near(text)} == {None}


# NVIDIA/nccl#671 shows the rows of GPU0 and GPU1; the cube is the same seen from each corner.
CUBE = {
    **dict.fromkeys([(0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7)], "NV1"),
    **dict.fromkeys([(0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7)], "NV2"),
}


def test_b16_a_cube_of_eight_is_a_partial_mesh_of_two_connected_fours() -> None:
    rows = [
        [
            "X"
            if i == k
            else CUBE.get((min(i, k), max(i, k)), "NODE" if i // 4 == k // 4 else "SYS")
            for k in range(8)
        ]
        for i in range(8)
    ]
    found = printed(cards(8, "Tesla V100-SXM2-32GB", (7, 0)), matrix(topology(rows)))
    assert connectivity(found) == "partial mesh"
    assert [island.devices for island in islands(found)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert {island.gbs for island in islands(found)} == {25.0}
    assert best_subset(found, 4) == (0, 1, 2, 3)
    assert between(found.links, 0, 4).gbs == 50.0
    assert between(found.links, 0, 5).kind == "socket"


def test_b18_an_empty_list_of_cores_shifts_nothing_and_pins_nothing() -> None:
    text = topology(
        mesh(4, "NODE"), cpus=("0", "", "", ""), numa=("0", "0", "1", "1"), begins_with_tab=False
    )
    assert [line["cpu_affinity"] for line in near(text)] == ["0", None, None, None]
    assert [line["numa_node"] for line in near(text)] == [0, 0, 1, 1]
    assert texts.cores(near(text)[1]["cpu_affinity"]) == ()
    devices = cards(4, A100, (8, 0))
    assert {link.kind for link in printed(devices, matrix(text)).links} == {"host-bridge"}
    assert warnings(said.facts(devices, cpu_cores=1), "only 1 for 4 devices")


def test_b19_domains_count_and_a_cards_own_memory_node_is_not_its_processors() -> None:
    buses = [f"{int(domain, 16):08X}:01:00.0" for domain in ("9", "19", "29", "39")]
    name = "NVIDIA GH200 120GB"
    devices = cards(4, name, (9, 0), buses=buses)
    raw = [
        line
        for one in range(4)
        for other in range(4)
        if one != other
        for line in nvlinks(one, [(GPU, buses[other])] * 6)
    ]
    found = said.facts(devices, read_links(devices, raw, root=NOWHERE))
    assert connectivity(found) == "full mesh"
    assert {link.gbs for link in found.links} == {150.0}
    text = topology(
        mesh(4, "NV6"),
        cpus=("0-71", "72-143", "144-215", "216-287"),
        numa=("0", "1", "2", "3"),
        own_numa=("4", "12", "20", "28"),
    )
    assert [line["numa_node"] for line in near(text)] == [0, 1, 2, 3]
    assert [line["memory_numa_node"] for line in near(text)] == [4, 12, 20, 28]


def test_b19_a_card_is_known_by_its_name_and_not_by_its_memory() -> None:
    rows = [catalog.accelerator(name) or {} for name in ("NVIDIA GH200 480GB", "NVIDIA H20")]
    assert all(rows)
    assert rows[0]["bf16_tflops"] != rows[1]["bf16_tflops"]


def test_b21_two_of_six_are_those_with_a_bridge_and_not_the_first() -> None:
    bridged = {(0, 3), (1, 2), (4, 5)}
    rows = [
        [
            "X" if i == k else "NV12" if (min(i, k), max(i, k)) in bridged else "NODE"
            for k in range(6)
        ]
        for i in range(6)
    ]
    found = printed(cards(6, "NVIDIA A100 80GB PCIe", (8, 0)), matrix(topology(rows)))
    assert connectivity(found) == "pairs"
    assert best_subset(found, 2) == (0, 3)
    assert best_subset(found, 2, among=(1, 2, 4, 5)) == (1, 2)
    assert [island.devices for island in islands(found)] == [(0, 3), (1, 2), (4, 5)]


def test_b22_only_nodes_with_processors_count(tmp_path: Path) -> None:
    files = {"sys/devices/system/node/node0/cpulist": "0-71\n"}
    files |= {f"sys/devices/system/node/node{n}/cpulist": "\n" for n in range(1, 9)}
    nodes = surroundings.memory_nodes(nvml.plant(files, tmp_path))
    assert (nodes.with_processors, nodes.without_processors) == (1, 8)


def test_a_card_beside_the_fabric_is_pointed_out(tmp_path: Path) -> None:
    found = recorded("b200x8_one_gpu_off_fabric", tmp_path)
    switched = [link for link in found.links if link.kind == "nvswitch"]
    assert {link.gbs for link in switched} == {900.0}
    assert len(switched) == 7 * 6 / 2
    assert [island.devices for island in islands(found)] == [(0, 1, 3, 4, 5, 6, 7), (2,)]
    (text,) = warnings(found, "no active NVLink")
    assert text.startswith("device 2")


def test_two_bridged_pairs_on_two_sockets_are_two_islands(tmp_path: Path) -> None:
    found = recorded("a100_80x4_pcie_pairs", tmp_path)
    assert [(i.devices, i.kind, i.gbs) for i in islands(found)] == [
        ((0, 1), "nvlink", 300.0),
        ((2, 3), "nvlink", 300.0),
    ]
    assert between(found.links, 0, 2).kind == "socket"
