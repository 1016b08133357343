"""Failures people really had with devices of other makers than NVIDIA: area C, by their ids.

id    caused here by
C02   npu-smi's table with the cells as newer versions print them
C03   npu-smi's table as a container with some of the chips sees it
C05   a stand-in for a torch_npu without `mem_get_info`, asked by engine.sees in process
C06   stand-ins for backends that can be imported and have no device, or that raise when asked
C08   rocm-smi's JSON: strings, keys in another case, a warning before it, an APU
C09   the three variables of ROCm, alone and together
C11   xpu-smi's JSON of eight cards with two tiles each
C12   PCI folders of makers that no part of the probe can use

Not caused here: that a run on these devices really starts (C03 aclrtSetDevice, C09 torch-hip's own
numbering, C11 xccl): there is no such device; the variables a script exports are tested with it.
"""

from __future__ import annotations

import re
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine import sees
from tests.fakes.recordings import plant, session
from tests.probe.checks.sound import FINE, result_of
from tests.probe.host.trees import GIB, tree
from wizard.facts import Device, Facts
from wizard.probe import amd, ascend, host, intel
from wizard.probe.accelerators import Accelerators
from wizard.probe.checks import check
from wizard.probe.running import Ran, Run

MIB = 1024**2
CPU = Device(kind="cpu", index=0, name="CPU")


def answering(**outputs: str) -> Run:
    """Commands that begin with these words (`_` for a space) answer so; others are not there."""

    def run(command: Sequence[str], limit_seconds: float) -> Ran:
        said = " ".join(command)
        for words, text in outputs.items():
            if said.startswith(words.replace("__", "-").replace("_", " ")):
                return Ran(0, text)
        return Ran(None)

    return run


def npus(root: Path, text: str, **variables: str) -> Accelerators:
    tree(root, {"dev/davinci_manager": ""})
    return ascend.read(root, answering(npu__smi_info=text), variables)


def facts_of(found: Accelerators) -> Facts:
    return Facts(devices=found.devices, host=FINE.host, software=FINE.software)


INFO = session("ascend910b3_x8").answers["npu-smi info"].out


def test_c02_an_amount_without_its_space_is_read(tmp_path: Path) -> None:
    found = npus(tmp_path, INFO.replace("3385 / 65536", "31877/ 65536"))

    assert len(found.devices) == 8
    assert found.devices[2].memory_used_bytes == 31877 * MIB
    assert found.devices[2].memory_free_bytes == (65536 - 31877) * MIB


def test_c02_what_the_driver_holds_of_an_idle_chip_is_not_use_by_others(tmp_path: Path) -> None:
    found = npus(tmp_path, INFO)

    assert [p for p in check(facts_of(found)) if "held" in p.what] == []


def test_c02_a_chip_that_others_train_on_is_said_with_their_processes(tmp_path: Path) -> None:
    busy = INFO.replace("3385 / 65536", "61877/ 65536").replace(
        "| No running processes found in NPU 2 ",
        "| 2       0                 | 4242          | python3.1                | 58000 |\n| ",
    )
    (problem,) = result_of("devices.in-use", facts_of(npus(tmp_path, busy))).problems

    assert "python3.1 (4242)" in problem.what
    assert problem.where.startswith("device 2 ")


def test_c02_a_table_with_the_containers_own_process_ids_names_its_processes(
    tmp_path: Path,
) -> None:
    busy = INFO.replace(
        "| No running processes found in NPU 2 ",
        "| 2       0       | 4242       | python3.1        | 58000      | 17 |\n| ",
    )
    found = npus(tmp_path, busy)

    (process,) = found.devices[2].readings.processes or ()
    assert process.pid in (4242, 17)
    assert process.memory_bytes == 58000 * MIB


def only(text: str, ids: Sequence[int]) -> str:
    """The table with the chips of these ids alone."""
    rule = re.search(r"^\+=.*\+$", text, re.MULTILINE)
    assert rule
    blocks = text.split(rule[0] + "\n")
    kept = [b for b in blocks[1:] if (m := re.match(r"\| (\d+) +910B", b)) and int(m[1]) in ids]
    return blocks[0] + "".join(f"{rule[0]}\n{block}" for block in kept)


def test_c03_devices_of_a_container_are_counted_from_zero(tmp_path: Path) -> None:
    found = npus(tmp_path, only(INFO, (0, 3, 4, 7)))

    assert [device.index for device in found.devices] == [0, 1, 2, 3]
    assert [device.bus.pci_id for device in found.devices] == [
        "00000000:C1:00.0",
        "00000000:82:00.0",
        "00000000:01:00.0",
        "00000000:42:00.0",
    ]


def test_c03_the_visibility_variable_takes_positions_not_the_ids_of_the_table(
    tmp_path: Path,
) -> None:
    text = only(INFO, (0, 3, 4, 7))
    found = npus(tmp_path, text, ASCEND_RT_VISIBLE_DEVICES="2,3")
    wrong = npus(tmp_path, text, ASCEND_RT_VISIBLE_DEVICES="0,3,4,7")

    assert [device.bus.pci_id for device in found.devices] == [
        "00000000:01:00.0",
        "00000000:42:00.0",
    ]
    assert [device.index for device in wrong.devices] == [0, 3]  # 4 is no position
    assert any("4" in problem.what for problem in wrong.problems)


class Backend(types.SimpleNamespace):
    """A torch module of devices, as torch_npu makes one."""

    def __init__(self, count: int, **more: Any) -> None:
        super().__init__(
            is_available=lambda: True,
            device_count=lambda: count,
            get_device_properties=lambda index: types.SimpleNamespace(
                name="Ascend910B3", total_memory=64 * GIB
            ),
            **more,
        )


def test_c05_a_torch_npu_that_cannot_tell_free_memory_still_lists_its_devices() -> None:
    torch = types.SimpleNamespace(npu=Backend(2))
    told = sees._devices(torch, "npu", free=True)

    assert told["error"] is None
    assert [one["memory_total_bytes"] for one in told["devices"]] == [64 * GIB, 64 * GIB]
    assert [one["memory_free_bytes"] for one in told["devices"]] == [None, None]


def raises() -> bool:
    raise RuntimeError("no Ascend driver")


@pytest.mark.parametrize(
    ("backends", "chosen"),
    [
        ({"npu": types.SimpleNamespace(is_available=raises)}, "cpu"),
        ({"npu": types.SimpleNamespace()}, "cpu"),
        ({"npu": Backend(0)}, "cpu"),
        ({"npu": types.SimpleNamespace(is_available=raises), "cuda": Backend(1)}, "cuda"),
        ({"npu": Backend(0), "xpu": Backend(1)}, "xpu"),
    ],
)
def test_c06_a_backend_counts_only_with_a_device_behind_it(
    backends: dict[str, Any], chosen: str
) -> None:
    assert sees._backend(types.SimpleNamespace(**backends)) == chosen


def test_c06_four_bit_layers_are_not_offered_on_an_npu(tmp_path: Path) -> None:
    found = result_of("software.quantized", facts_of(npus(tmp_path, INFO)))

    assert "QLoRA is not offered" in found.problems[0].what


ROCM = " ".join(amd.ROCM_SMI)


def test_c08_strings_in_any_case_after_a_warning_are_numbers(tmp_path: Path) -> None:
    recorded = session("rx7900xt").answers[ROCM].out
    odd = "WARNING: power state\n" + recorded.replace("Card Series", "Card series")
    root = plant("rx7900xt", tmp_path)
    (card,) = amd.read(root, answering(rocm__smi=odd), {}).devices

    assert card.name == "Radeon RX 7900 XT"
    assert card.memory_total_bytes == 21458059264
    assert card.memory_used_bytes == 27856896
    assert card.readings.utilization_percent == 0.0


def test_c08_an_apu_shares_the_hosts_memory_and_is_not_half_a_gibibyte(tmp_path: Path) -> None:
    root = plant("strix_halo", tmp_path)
    (card,) = amd.read(root, session("strix_halo"), {}).devices

    assert card.unified_memory
    assert (card.memory_total_bytes or 0) > 60 * GIB


def eight(root: Path, **variables: str) -> Accelerators:
    return amd.read(plant("mi300x_x8", root), session("mi300x_x8"), variables)


def uuids(found: Accelerators) -> list[str | None]:
    return [device.uuid for device in found.devices]


def test_c09_the_inner_variable_numbers_what_the_outer_one_left(tmp_path: Path) -> None:
    everything = uuids(eight(tmp_path / "all"))
    both = eight(tmp_path / "both", ROCR_VISIBLE_DEVICES="4,5,6,7", HIP_VISIBLE_DEVICES="1,0")

    assert uuids(both) == [everything[5], everything[4]]


def test_c09_cudas_variable_counts_only_without_hips(tmp_path: Path) -> None:
    everything = uuids(eight(tmp_path / "all"))
    cuda = eight(tmp_path / "cuda", CUDA_VISIBLE_DEVICES="4")
    both = eight(tmp_path / "both", CUDA_VISIBLE_DEVICES="4", HIP_VISIBLE_DEVICES="2")

    assert uuids(cuda) == [everything[4]]
    assert uuids(both) == [everything[2]]


def tiles(root: Path, run: Run, **variables: str) -> Accelerators:
    return intel.read(plant("intel_max1550_x8", root), run, variables)


def test_c11_eight_cards_of_two_tiles_are_sixteen_devices(tmp_path: Path) -> None:
    found = tiles(tmp_path, session("intel_max1550_x8"))

    assert len(found.devices) == 16
    assert {device.memory_total_bytes for device in found.devices} == {65520 * MIB}
    assert len({device.uuid for device in found.devices}) == 16
    assert [device.index for device in found.devices] == list(range(16))


def test_c11_in_the_composite_hierarchy_a_card_is_one_device(tmp_path: Path) -> None:
    run = session("intel_max1550_x8")
    found = tiles(tmp_path, run, ZE_FLAT_DEVICE_HIERARCHY="COMPOSITE")

    assert len(found.devices) == 8


def test_c11_a_first_sample_that_is_not_there_is_unknown_not_zero(tmp_path: Path) -> None:
    recorded = session("intel_max1550_x8")

    def run(command: Sequence[str], limit_seconds: float) -> Ran:
        ran = recorded(command, limit_seconds)
        if command[1] != "stats":
            return ran
        return Ran(0, re.sub(r'"value": [\d.]+', '"value": "N/A"', ran.out))

    found = tiles(tmp_path, run)

    assert len(found.devices) == 16
    assert {device.memory_used_bytes for device in found.devices} == {None}
    assert {device.readings.utilization_percent for device in found.devices} == {None}


def bus(root: Path, *cards: tuple[str, str]) -> Path:
    """Cards on the PCI bus: (maker, class)."""
    files: dict[str, str] = {}
    for number, (maker, kind) in enumerate(cards):
        folder = f"sys/bus/pci/devices/0000:{number:02x}:00.0"
        files |= {f"{folder}/vendor": f"{maker}\n", f"{folder}/class": f"{kind}\n"}
    return tree(root, files)


@pytest.mark.parametrize(
    ("maker", "kind", "name"),
    [
        ("0xcabc", "0x120000", "Cambricon MLU"),
        ("0x1ed5", "0x030200", "Moore Threads"),
        ("0x1da3", "0x120000", "Habana Gaudi"),
        ("0x19e5", "0x120000", "Huawei Ascend"),
        ("0x1002", "0x120000", "AMD Instinct"),
    ],
)
def test_c12_a_card_nobody_here_can_use_is_said_and_never_silently_the_cpu(
    tmp_path: Path, maker: str, kind: str, name: str
) -> None:
    here = host.read_host(bus(tmp_path, (maker, kind), (maker, kind)), {})
    facts = Facts(devices=(CPU,), host=here, software=FINE.software)
    (problem,) = result_of("devices.usable", facts).problems

    assert problem.what.startswith(f"2 × {name}: ")
    assert (problem.severity, problem.exit_code) == ("error", 6)


def test_c12_network_cards_and_desktop_graphics_are_no_accelerators(tmp_path: Path) -> None:
    root = bus(tmp_path, ("0x19e5", "0x020000"), ("0x1002", "0x030000"), ("0x8086", "0x030000"))

    assert host.read_host(root, {}).surroundings.other_accelerators == ()


def test_c12_a_card_whose_driver_is_loaded_is_left_to_its_own_part(tmp_path: Path) -> None:
    root = tree(bus(tmp_path, ("0x19e5", "0x120000")), {"dev/davinci_manager": ""})

    assert host.read_host(root, {}).surroundings.other_accelerators == ()
