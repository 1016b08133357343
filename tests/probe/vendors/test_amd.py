"""AMD: the kernel's topology, rocm-smi, amd-smi, partitions, APUs, three variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes import recordings
from tests.fakes.recordings import Recording, parse
from wizard.probe import amd
from wizard.probe.accelerators import Accelerators

GIB = 1024**3


def read(name: str, root: Path, environment: dict[str, str] | None = None) -> Accelerators:
    return amd.read(recordings.plant(name, root), recordings.session(name), environment or {})


def test_c08_every_value_is_a_text_keys_change_case_and_warnings_come_first() -> None:
    document = {
        "card0": {"card series": "Radeon RX 7900 XT", "vram total memory (b)": "21458059264"}
    }
    (card,) = amd.parse_rocm_smi("WARNING: low power {state}\n" + json.dumps(document))
    assert (card.name, card.total_bytes) == ("Radeon RX 7900 XT", 21458059264)


def test_c08_an_apu_has_the_hosts_memory_and_says_so(tmp_path: Path) -> None:
    (device,) = read("strix_halo", tmp_path).devices
    assert device.unified_memory
    assert device.memory_total_bytes == 536870912 + 65879822336


def test_c09_rocr_filters_first_and_hip_numbers_the_rest(tmp_path: Path) -> None:
    both = {"ROCR_VISIBLE_DEVICES": "4,5,6", "HIP_VISIBLE_DEVICES": "2,0"}
    found = read("mi300x_x8", tmp_path, both)
    assert [device.index for device in found.devices] == [6, 4]
    assert "keep HIP_VISIBLE_DEVICES only" in found.problems[0].fix
    assert [link.devices for link in found.known_links] == [(0, 1)]


def test_c09_cudas_variable_is_read_where_hips_is_not_set(tmp_path: Path) -> None:
    assert [
        d.index for d in read("mi300x_x8", tmp_path, {"CUDA_VISIBLE_DEVICES": "1"}).devices
    ] == [1]


def test_c09_a_device_is_named_by_uuid_too(tmp_path: Path) -> None:
    named = {"ROCR_VISIBLE_DEVICES": "GPU-9a3c51f0b7d24e03"}
    assert [device.index for device in read("mi300x_x8", tmp_path, named).devices] == [3]


def test_partitions_have_their_own_memory_and_nobody_elses_use(tmp_path: Path) -> None:
    found = read("mi300x_cpx", tmp_path)
    assert [device.memory_total_bytes for device in found.devices] == [25767706624] * 8
    for device in found.devices:
        assert device.memory_free_bytes is None
        assert "partitions" in device.unknown["memory_free_bytes"]
        assert device.bf16_tflops is None
        assert device.uuid is None
        assert device.mig_parent_uuid == "GPU-9a3c51f0b7d24e00"


def test_without_any_tool_the_kernel_still_tells_what_there_is(tmp_path: Path) -> None:
    recordings.plant("mi300x_x8", tmp_path)
    found = amd.read(tmp_path, Recording({}), {})
    assert len(found.devices) == 8
    first = found.devices[0]
    assert (first.memory_total_bytes, first.name) == (206141652992, "AMD gfx942")
    assert first.memory_free_bytes is None
    assert "do not answer" in first.unknown["readings"]
    assert {link.kind for link in found.known_links} == {"xgmi"}


def test_amd_smi_is_asked_where_rocm_smi_is_not(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kfd").touch()
    told = {
        "gpu_data": [
            {
                "gpu": 0,
                "asic": {
                    "market_name": "AMD Instinct MI350X",
                    "target_graphics_version": "gfx950",
                    "asic_serial": "0x1A2B",
                },
                "bus": {"bdf": "0000:05:00.0"},
                "vram": {"size": {"value": 294896, "unit": "MB"}},
                "driver": {"version": "6.18.3"},
            }
        ]
    }
    session = parse(f"$ {' '.join(amd.AMD_SMI)}\n{json.dumps(told)}")
    found = amd.read(tmp_path, Recording(session), {})
    (device,) = found.devices
    assert device.name == "AMD Instinct MI350X"
    assert device.compute_capability == (9, 5)
    assert device.memory_total_bytes == 294896 * 1024**2
    assert (found.driver, device.bus.pci_id) == ("6.18.3", "00000000:05:00.0")


def test_a_tool_that_hangs_is_said_and_what_the_kernel_tells_stays(tmp_path: Path) -> None:
    recordings.plant("mi300x_x8", tmp_path)
    session = parse(f"$ {' '.join(amd.ROCM_SMI)}\n\n[hangs]")
    found = amd.read(tmp_path, Recording(session), {})
    assert len(found.devices) == 8
    assert [(p.where, p.severity) for p in found.problems] == [("rocm-smi", "warning")]


@pytest.mark.parametrize(
    ("arch", "capability"),
    [
        ("gfx942", (9, 4)),
        ("gfx90a", (9, 0)),
        ("gfx950", (9, 5)),
        ("gfx1100", (11, 0)),
        ("gfx1201", (12, 0)),
        ("gfx", None),
        (None, None),
        ("nonsense", None),
    ],
)
def test_an_architecture_is_the_capability_that_torch_reports(
    arch: str | None, capability: tuple[int, int] | None
) -> None:
    assert amd.capability(arch) == capability


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"card0": 3}', '{"cardx": {}}', "\x00{"])
def test_what_is_no_answer_of_rocm_smi_is_no_card(text: str) -> None:
    assert amd.parse_rocm_smi(text) == []
