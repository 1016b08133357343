"""nvidia-smi as the second way: its table by field name, its words for what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.nvml import plant
from tests.probe.links.said import topology
from tests.probe.nvidia import saying
from tests.probe.nvidia.saying import answering, smi_row
from wizard.probe import smi
from wizard.probe.accelerators import read_nvidia
from wizard.probe.links import read_links
from wizard.probe.running import Ran

MIB = 1024**2


def test_a_row_is_a_device_with_its_units() -> None:
    listed = smi.read(answering(smi=saying.smi(smi_row(1, "NVIDIA GeForce RTX 4090"))))
    (device,) = listed.devices
    assert (device.index, device.name) == (1, "NVIDIA GeForce RTX 4090")
    assert device.memory_free_bytes == 24206 * MIB
    assert device.memory_reserved_bytes == 356 * MIB
    assert device.bus.pci_id == "00000000:02:00.0"
    assert (device.bus.pcie_generation, device.bus.pcie_width) == (4, 16)
    assert (device.readings.power_w, device.readings.power_cap_w) == (18.5, 450)
    assert device.readings.persistence_mode is False
    assert device.compute_capability == (8, 9)
    assert listed.driver == "550.127.05"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("[N/A]", "not supported by this device"),
        ("[Not Supported]", "not supported by this device"),
        ("ERR!", "the driver reports an error"),
        ("Insufficient Permissions", "no permission to ask"),
        ("[Unknown Error]", "the driver reports an unknown error"),
        ("", "nvidia-smi does not tell"),
        ("12a", "nvidia-smi does not tell"),
    ],
)
def test_words_in_place_of_a_number_are_unknown_with_their_reason(cell: str, reason: str) -> None:
    (device,) = smi.decode(saying.smi(smi_row(0, "Tesla T4", temperature=cell)).out)
    assert device.readings.temperature_c is None
    assert device.unknown["temperature_c"] == reason


def test_a_driver_that_does_not_know_a_newer_field_is_asked_for_the_older_ones() -> None:
    asked: list[str] = []

    def run(command: Sequence[str], limit_seconds: float) -> Ran:
        asked.append(command[1])
        if "compute_cap" in command[1]:
            return Ran(2, 'Field "compute_cap" is not a valid field to query.\n')
        header = "index, name, uuid, driver_version, memory.total [MiB]"
        return Ran(0, f"{header}\n0, Tesla V100-SXM2-16GB, GPU-1, 418.67, 16130\n")

    (device,) = smi.read(run).devices
    assert len(asked) == 2
    assert device.memory_total_bytes == 16130 * MIB
    assert device.compute_capability == (7, 0), "the table knows the card"


@pytest.mark.parametrize(
    "ran",
    [
        saying.NO_DRIVER,
        Ran(None, "", "not found"),
        Ran(None, "", "", timed_out=True),
        Ran(0, "No devices were found\n"),
        Ran(0, ""),
    ],
)
def test_where_it_fails_it_lists_nothing(ran: Ran) -> None:
    assert smi.read(answering(smi=ran)).devices == ()


def test_a_mismatch_names_the_version_of_the_library() -> None:
    assert smi.read(answering(smi=saying.MISMATCH)).library == "550.144"


def test_a_divided_card_does_not_lend_its_memory_to_its_slices() -> None:
    (device,) = smi.decode(saying.smi(smi_row(0, "NVIDIA A100-SXM4-80GB", mig="Enabled")).out)
    assert device.memory_total_bytes is None
    assert "divided" in device.unknown["memory_total_bytes"]


def test_devices_that_nvml_died_over_are_taken_from_nvidia_smi(tmp_path: Path) -> None:
    root = plant({"dev/nvidia0": ""}, tmp_path)
    listed = saying.smi(smi_row(0, "NVIDIA L40S"))

    def run(command: Sequence[str], limit_seconds: float) -> Ran:
        return Ran(-11) if "wizard.probe.nvidia" in command else answering(smi=listed)(command, 1)

    answer = read_nvidia(root, run)
    assert [device.name for device in answer.devices] == ["NVIDIA L40S"]
    assert {problem.severity for problem in answer.problems} == {"warning"}
    assert "signal 11" in answer.problems[0].what


def test_links_come_from_nvidia_smi_as_well(tmp_path: Path) -> None:
    root = plant({"dev/nvidia0": ""}, tmp_path)
    listed = saying.smi(*(smi_row(i, "NVIDIA A100-SXM4-40GB") for i in range(2)))
    matrix = topology([["X", "NV12"], ["NV12", "X"]])

    def run(command: Sequence[str], limit_seconds: float) -> Ran:
        if command[:3] == ("nvidia-smi", "topo", "-m"):
            return Ran(0, matrix)
        return Ran(-11) if "wizard.probe.nvidia" in command else answering(smi=listed)(command, 1)

    answer = read_nvidia(root, run)
    (link,) = read_links(answer.devices, answer.links, root=root)
    assert (link.devices, link.kind) == ((0, 1), "nvlink")
