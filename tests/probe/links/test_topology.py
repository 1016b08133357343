"""Texts of nvidia-smi about links, in the formats that drivers really print."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.probe.links.said import mesh, topology
from wizard.probe import topology as parse
from wizard.probe.running import Ran

# As printed by driver 580 on two RTX 5090 (noonghunna/club-3090#1133).
TWO_5090 = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPHB\t0-63\t0\t\tN/A\n"
    "GPU1\tPHB\t X \t0-63\t0\t\tN/A\n"
    "\n"
    "Legend:\n\n  X    = Self\n"
)
TWO_5090_PEERS = (
    " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tGNS\tX\t\n\n"
    "Legend:\n\n  X    = Self\n  OK   = Status Ok\n"
)
NVLINKS = (
    "GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-00000000-0000-0000-0000-000000000000)\n"
    "\t Link 0: 14.062 GB/s\n\t Link 1: 14.062 GB/s\n\t Link 2: <inactive>\n"
    "GPU 1: NVIDIA GeForce RTX 3090 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
    "NVML: Unable to retrieve NVLink information as all links are inActive\n"
)


def of_kind(lines: tuple[dict[str, Any], ...], kind: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["kind"] == kind]


def test_cells_of_the_matrix_are_levels_of_nvml() -> None:
    lines = parse.nvidia_topology(TWO_5090)
    assert of_kind(lines, "pair") == [
        {"kind": "pair", "indices": (0, 1), "level": 30},
        {"kind": "pair", "indices": (1, 0), "level": 30},
    ]


def test_what_is_near_a_device_stands_in_the_last_columns() -> None:
    near = of_kind(parse.nvidia_topology(TWO_5090), "near")
    assert near[1] == {
        "kind": "near",
        "index": 1,
        "cpu_affinity": "0-63",
        "numa_node": 0,
        "memory_numa_node": None,
    }


def test_an_empty_numa_cell_is_unknown_and_shifts_nothing() -> None:
    # Two sockets, driver 550 (noonghunna/club-3090#178).
    text = topology(
        mesh(2, "SYS"), cpus=("0-7,16-23", "8-15,24-31"), numa=("", "1"), own_numa=("N/A", "N/A")
    )
    near = of_kind(parse.nvidia_topology(text), "near")
    assert [line["numa_node"] for line in near] == [None, 1]
    assert [line["cpu_affinity"] for line in near] == ["0-7,16-23", "8-15,24-31"]


def test_cells_of_the_peer_matrix_are_codes_of_nvml() -> None:
    assert [line["p2p_read"] for line in parse.nvidia_peer_access(TWO_5090_PEERS)] == [2, 2]
    assert parse.PEER_CODES == {"OK": 0, "CNS": 1, "GNS": 2, "TNS": 3, "DR": 4, "NS": 5, "U": 6}


def test_active_nvlinks_are_counted_and_inactive_ones_said() -> None:
    lines = parse.nvidia_nvlinks(NVLINKS)
    assert [(line["index"], line["active"]) for line in lines] == [(0, True), (0, True), (0, False)]
    assert lines[0]["mb_s"] == 14062


def test_nothing_is_made_of_an_error_message() -> None:
    for text in ("", "NVIDIA-SMI has failed because it couldn't communicate with the driver.\n"):
        assert parse.nvidia_topology(text) == ()
        assert parse.nvidia_peer_access(text) == ()
        assert parse.nvidia_nvlinks(text) == ()


def test_all_three_are_asked_and_those_that_fail_left_out() -> None:
    answers = {("topo", "-m"): TWO_5090, ("nvlink", "-s"): NVLINKS}

    def run(command: Any, _limit: float) -> Ran:
        text = answers.get(tuple(command[1:]))
        return Ran(1, "", "not supported") if text is None else Ran(0, text)

    kinds = [line["kind"] for line in parse.ask_nvidia_smi(run)]
    assert kinds == ["pair", "pair", "near", "near", "link", "link", "link"]


def test_a_list_of_cores_is_read_in_the_kernels_whole_grammar() -> None:
    assert parse.cores("6,14,22,30") == (6, 14, 22, 30)
    assert parse.cores("0-2,8,10-11") == (0, 1, 2, 8, 10, 11)
    assert parse.cores("") == parse.cores(None) == parse.cores("N/A") == ()


@given(st.text(alphabet="GPU0123456789NVXSYIPHB \t\n\x1b[4m", max_size=300))
def test_no_text_breaks_the_parsers(text: str) -> None:
    parse.nvidia_topology(text)
    parse.nvidia_peer_access(text)
    parse.nvidia_nvlinks(text)
    parse.cores(text)
