"""NVML's answers become devices: values with their units, slices, order, what comes early."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.fakes import nvml
from tests.fakes.nvml import Nvml, NVMLError, found, in_child, load, plant, running, said
from tests.probe.checks.sound import FINE
from tests.probe.nvidia.saying import on_the_bus
from wizard import overview
from wizard.facts import Device, DeviceProcess, Readings
from wizard.probe import running as real
from wizard.probe.accelerators import CHILD, Accelerators, read_nvidia
from wizard.probe.nvml_decode import READINGS
from wizard.probe.running import Ran

MIB = 1024**2


def one(root: Path, **answers: object) -> Device:
    """An L40S that gives these answers to NVML's calls."""
    double = load("l40s_single")
    double.cards[0].update({f"nvmlDeviceGet{call}": answer for call, answer in answers.items()})
    (device,) = found(double, root).devices
    return device


def test_every_reading_has_a_check() -> None:
    names = {field.name for field in dataclasses.fields(Readings)}
    assert READINGS.keys() | {"remap_pending", "remap_failed"} == names


def test_a_card_has_its_own_numbers_and_those_of_the_table(tmp_path: Path) -> None:
    card = found(load("rtx4090x8_nop2p"), tmp_path).devices[0]
    assert card.memory_total_bytes == 24564 * MIB
    assert card.compute_capability == (8, 9)
    assert card.memory_bandwidth_gbs == 1010
    assert card.bf16_tflops == 165.2
    assert card.source == "nvml, table"


def test_eight_cards_have_their_places_on_the_machine(tmp_path: Path) -> None:
    answer = found(load("h100x8_sxm_hgx"), tmp_path)
    assert [device.index for device in answer.devices] == list(range(8))
    last = answer.devices[7].bus
    assert (last.pci_id, last.numa_node) == ("00000000:DB:00.0", 1)
    assert last.cpu_affinity == "56-111,168-223"
    assert (last.pcie_generation, last.pcie_width) == (5, 16)
    assert (answer.driver, answer.cuda) == ("565.57.01", "12.7")


def test_memory_of_the_second_version_knows_what_the_driver_keeps(tmp_path: Path) -> None:
    device = one(tmp_path)
    assert device.memory_reserved_bytes == 479 * MIB
    assert device.memory_used_bytes == 1 * MIB
    assert device.memory_free_bytes == 45589 * MIB


def test_memory_of_the_first_version_leaves_open_what_the_driver_keeps(tmp_path: Path) -> None:
    device = found(load("gh200_480"), tmp_path).devices[0]
    assert device.memory_free_bytes == 97870 * MIB
    assert device.memory_reserved_bytes is None
    assert device.unknown["memory_reserved_bytes"] == "not known to this driver"


def test_readings_have_the_units_their_names_say(tmp_path: Path) -> None:
    readings = one(
        tmp_path,
        PowerUsage=84_530,
        Temperature=41,
        ClockInfo=2520,
        UtilizationRates=97,
        TotalEccErrors=2,
        ComputeMode=3,
        PersistenceMode=1,
        DisplayActive=0,
    ).readings
    assert (readings.power_w, readings.power_cap_w) == (84.53, 350)
    assert (readings.temperature_c, readings.sm_clock_mhz) == (41, 2520)
    assert (readings.utilization_percent, readings.ecc_uncorrected) == (97, 2)
    assert (readings.compute_mode, readings.persistence_mode) == ("exclusive_process", True)
    assert readings.display_active is False


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x0, ()),
        (0x1, ()),
        (0x3, ()),
        (0x4, ("power cap",)),
        (0x60, ("heat",)),
        (0x8C, ("power cap", "hardware slowdown", "power brake")),
    ],
)
def test_idle_is_no_reason_for_a_slow_clock(
    bits: int, reasons: tuple[str, ...], tmp_path: Path
) -> None:
    assert one(tmp_path, CurrentClocksEventReasons=bits).readings.throttle_reasons == reasons


def test_an_older_driver_knows_the_reasons_under_their_older_name(tmp_path: Path) -> None:
    assert one(tmp_path, CurrentClocksThrottleReasons=0x20).readings.throttle_reasons == ("heat",)


def test_a_card_that_only_computes_and_draws_is_held_by_both(tmp_path: Path) -> None:
    device = one(
        tmp_path,
        ComputeRunningProcesses=[{"pid": 7, "usedGpuMemory": 5}],
        GraphicsRunningProcesses=[],
    )
    assert device.readings.processes == (DeviceProcess(pid=7, name="process-7", memory_bytes=5),)


def test_an_empty_affinity_pins_nothing(tmp_path: Path) -> None:
    device = one(tmp_path, CpuAffinity="")
    assert device.bus.cpu_affinity is None
    assert device.unknown["cpu_affinity"]


def test_the_numa_node_of_sysfs_stands_in_for_that_of_nvml(tmp_path: Path) -> None:
    device = one(on_the_bus(tmp_path, "0000:a1:00.0", number="3"))
    assert device.bus.numa_node == 3
    assert device.sources["numa_node"] == "sysfs"
    assert "numa_node" not in device.unknown


def test_a_node_of_minus_one_is_none(tmp_path: Path) -> None:
    assert one(on_the_bus(tmp_path, "0000:a1:00.0", number="-1")).bus.numa_node is None


def test_what_a_device_does_not_tell_has_its_reason(tmp_path: Path) -> None:
    device = one(tmp_path, Temperature={"error": 4}, PowerUsage={"error": 999})
    assert device.unknown["temperature_c"] == "no permission to ask"
    assert device.unknown["power_w"] == "NVML error 999"


def test_two_slices_are_two_devices_on_one_card(tmp_path: Path) -> None:
    double = load("mig_h100_1g10gb")
    double.slices[0, 5] = {**double.slices[0, 2], "nvmlDeviceGetUUID": "MIG-second"}
    devices = found(double, tmp_path).devices
    assert [device.uuid for device in devices] == [
        "MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb",
        "MIG-second",
    ]
    assert {device.index for device in devices} == {0}
    assert devices[0].unknown["utilization_percent"] == "not told for a part of a card"


def test_links_name_their_ends_and_pairs_their_meeting_point(tmp_path: Path) -> None:
    lines = found(load("a100_80x4_pcie_pairs"), tmp_path).links
    links = [line for line in lines if line["kind"] == "link" and line["index"] == 2]
    assert len(links) == 12
    assert {line["remote_pci"] for line in links} == {"00000000:B8:00.0"}
    assert {(line["version"], line["remote_type"], line["mb_s"]) for line in links} == {
        (3, 0, 25000)
    }
    pairs = {tuple(line["indices"]): line["level"] for line in lines if line["kind"] == "pair"}
    assert (pairs[0, 1], pairs[0, 2], len(pairs)) == (40, 50, 6)


def test_links_that_are_down_are_listed_as_such(tmp_path: Path) -> None:
    lines = found(load("b200x8_one_gpu_off_fabric"), tmp_path).links
    up = dict.fromkeys(range(8), 0)
    for line in lines:
        if line["kind"] == "link":
            up[line["index"]] += line["active"]
    assert up == {0: 18, 1: 18, 2: 0, 3: 18, 4: 18, 5: 18, 6: 18, 7: 18}


def test_names_and_memory_come_before_everything_else() -> None:
    kinds = [json.loads(line)["kind"] for line in said(load("a40x10")).splitlines()]
    assert kinds[:11] == ["driver", *["device"] * 10]
    assert kinds[-1] == "end"


@pytest.mark.wide
def test_a_listener_hears_of_names_and_memory_while_the_rest_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in in_child("a40x10", seconds_per_call=0.02).items():
        monkeypatch.setenv(name, value)
    heard: list[Accelerators] = []
    complete = read_nvidia(tmp_path, real.run, heard.append)
    early = [answer.devices for answer in heard if len(answer.devices) == 10]
    assert early[0][9].memory_total_bytes == 46068 * MIB
    assert early[0][9].compute_capability is None
    assert complete.devices[9].compute_capability == (8, 6)


def test_an_answer_cut_off_by_a_hang_keeps_its_whole_lines(tmp_path: Path) -> None:
    text = said(load("a40x10"))
    cut = text[: text.index('"details"') + 40]

    def hangs(command: object, limit_seconds: float) -> Ran:
        return Ran(None, cut, timed_out=True)

    answer = read_nvidia(tmp_path, hangs)
    assert len(answer.devices) == 10
    (problem,) = answer.problems
    assert "did not answer within 20 seconds for device 0, device 1" in problem.what
    assert problem.severity == "warning"


def test_a_driver_that_lists_no_device_although_there_is_one_is_a_problem(tmp_path: Path) -> None:
    empty = Nvml(cards=[], driver="550.127.05", cuda=12040)
    answer = found(empty, plant({"dev/nvidia0": ""}, tmp_path))
    assert answer.driver == "550.127.05"
    assert [problem.severity for problem in answer.problems] == ["error"]


def test_a_count_that_fails_is_a_problem(tmp_path: Path) -> None:
    double = load("l40s_single")
    double.broken["nvmlDeviceGetCount"] = NVMLError(999)
    (problem,) = found(double, plant({"dev/nvidia0": ""}, tmp_path)).problems
    assert "Unknown Error" in problem.what


def test_a_slice_in_use_keeps_its_parents_health(tmp_path: Path) -> None:
    double = load("mig_h100_1g10gb")
    double.cards[0]["nvmlDeviceGetRemappedRows"] = [0, 1, 1, 0]
    assert found(double, tmp_path).devices[0].readings.remap_pending is True


def test_grace_hopper_is_said_to_share_its_address_space(tmp_path: Path) -> None:
    answer = found(load("gh200_480"), tmp_path)
    assert answer.devices[0].unified_memory is False
    assert answer.devices[0].coherent_memory
    (said_so,) = overview.pool_lines(dataclasses.replace(FINE, devices=answer.devices))
    assert "one address space" in said_so


@pytest.mark.parametrize("mode", [1, 2])
def test_a_card_that_forbids_every_program_is_left_out(mode: int, tmp_path: Path) -> None:
    double = load("h100nvlx2")
    double.cards[1]["nvmlDeviceGetComputeMode"] = mode
    answer = found(double, tmp_path)
    assert len(answer.devices) == (1 if mode == 2 else 2)
    assert [problem.where for problem in answer.problems] == (["device 1"] if mode == 2 else [])


def test_names_keep_no_control_characters(tmp_path: Path) -> None:
    assert one(tmp_path, Name="NVIDIA\x1b[31m L40S\n").name == "NVIDIA[31m L40S"


def test_the_fakes_hold_every_recorded_machine_of_this_vendor() -> None:
    assert len(nvml.IDS) == 24


def test_the_real_child_answers_on_any_machine() -> None:
    ran = real.run(CHILD, 20)
    assert ran.ok
    assert '"kind"' in ran.out


def test_reading_a_bare_folder_finds_nothing_and_says_nothing(tmp_path: Path) -> None:
    no_library = Nvml(cards=[], init_error=12)
    assert read_nvidia(tmp_path, running(said(no_library))) == Accelerators()
