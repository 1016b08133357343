"""Intel and Apple: recognised, told in full, and said to be not yet trained on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import recordings
from tests.fakes.recordings import Recording, parse
from wizard.probe import apple, intel
from wizard.probe.accelerators import Accelerators


def read(root: Path, environment: dict[str, str] | None = None) -> Accelerators:
    name = "intel_max1550_x8"
    return intel.read(recordings.plant(name, root), recordings.session(name), environment or {})


def test_c11_eight_cards_are_sixteen_devices_as_torch_counts_them(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert [device.index for device in found.devices] == list(range(16))
    assert {device.memory_total_bytes for device in found.devices} == {65520 * 1024**2}
    ends = [(device.uuid or "")[-1] for device in found.devices]
    assert ends == ["1", "2"] * 8
    assert len({(device.uuid or "")[:-1] for device in found.devices}) == 8


def test_c11_a_first_sample_that_is_not_there_is_unknown_never_0(tmp_path: Path) -> None:
    first, *_, last = read(tmp_path).devices
    assert (first.readings.power_w, first.memory_free_bytes) == (None, None)
    assert "first sample" in first.unknown["memory_free_bytes"]
    assert last.readings.temperature_c == 34.0
    assert last.memory_used_bytes == 29 * 1024**2


def test_c11_a_composite_hierarchy_has_one_device_a_card(tmp_path: Path) -> None:
    found = read(tmp_path, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"})
    assert len(found.devices) == 8
    assert found.devices[0].memory_total_bytes == 2 * 65520 * 1024**2


@pytest.mark.parametrize(
    ("mask", "indices"), [("3,2", [3, 2]), ("0.1,1.0", [1, 2]), ("0,x,1", [0]), ("8.0", [])]
)
def test_the_mask_names_devices_or_tiles_of_cards(
    mask: str, indices: list[int], tmp_path: Path
) -> None:
    found = read(tmp_path, {"ZE_AFFINITY_MASK": mask})
    assert [device.index for device in found.devices] == indices


def test_without_xpu_smi_the_cards_are_known_by_their_ids(tmp_path: Path) -> None:
    recordings.plant("intel_max1550_x8", tmp_path)
    found = intel.read(tmp_path, Recording({}), {})
    assert len(found.devices) == 16
    assert found.devices[0].memory_total_bytes is None
    assert "xpu-smi is not" in found.problems[0].what


def test_graphics_inside_a_processor_is_no_accelerator(tmp_path: Path) -> None:
    recordings.plant("intel_max1550_x8", tmp_path)
    for path in (tmp_path / "sys/bus/pci/devices").glob("*/device"):
        path.write_text("0x46a6\n")
    assert intel.read(tmp_path, Recording({}), {}) == Accelerators()


def test_they_are_said_to_be_not_yet_trained_on(tmp_path: Path) -> None:
    assert "not yet trained on" in read(tmp_path).problems[0].what
    name = "apple_m3_max"
    root = recordings.plant(name, tmp_path / "mac")
    assert "not yet trained on" in apple.read(root, recordings.session(name)).problems[0].what


def test_an_apple_processor_is_one_device_in_one_pool_of_memory(tmp_path: Path) -> None:
    name = "apple_m3_max"
    found = apple.read(recordings.plant(name, tmp_path), recordings.session(name))
    (device,) = found.devices
    assert (device.kind, device.name, device.unified_memory) == ("mps", "Apple M3 Max", True)
    assert device.memory_total_bytes == 64 * 1024**3
    assert device.memory_free_bytes == (1402317 + 998712 + 71230) * 16384
    assert device.memory_bandwidth_gbs == 400.0
    assert "40 graphics cores" in device.unknown["bf16_tflops"]


@pytest.mark.parametrize(
    "session",
    [
        "",
        "$ " + " ".join(["sysctl", *apple.KEYS]) + "\nmachdep.cpu.brand_string: Intel(R) Core(TM)",
    ],
)
def test_a_mac_with_another_processor_has_no_such_device(session: str, tmp_path: Path) -> None:
    recordings.plant("apple_m3_max", tmp_path)
    assert apple.read(tmp_path, Recording(parse(session))) == Accelerators()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"device_list": 3}', '{"device_list": [3]}'])
def test_what_is_no_answer_of_xpu_smi_is_no_card(text: str) -> None:
    assert intel.parse_discovery(text) == []


def test_virtual_functions_and_other_processors_are_left_out() -> None:
    text = (
        '{"device_list": [{"device_name": "a", "device_type": "GPU"},'
        '{"device_name": "b", "device_function_type": "virtual"},'
        '{"device_name": "c", "device_type": "NNP"}]}'
    )
    assert [card["device_name"] for card in intel.parse_discovery(text)] == ["a"]
