"""Real failures of NVIDIA machines (area A), each by its number: what is said of them.

Not caused here:
    A22  the training script of other tools; what this probe owes it is the capability
    A28  the error itself comes from a driver below Windows; the limit that leads to it is read
    A29  the slow step comes from Windows; the full card and the counter that ran over are read
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import nvml
from tests.fakes.nvml import Nvml, NVMLError, found, load, plant, running, said
from tests.probe.nvidia import saying
from tests.probe.nvidia.saying import answering, card, on_the_bus, smi, smi_row, torch_sees
from wizard.facts import Device, Facts, Host, Software, Surroundings
from wizard.probe import checks, visibility
from wizard.probe.accelerators import Accelerators, read_nvidia
from wizard.probe.assembly import assemble
from wizard.probe.running import Ran, Run
from wizard.probe.torchview import decode

MIB, GIB, KIB = 1024**2, 1024**3, 1024


def broken(name: str, **calls: object) -> Nvml:
    double = load(name)
    double.broken.update({key.replace("__", " "): value for key, value in calls.items()})
    return double


def without_nvml(code: int, root: Path, others: Run | None = None) -> Accelerators:
    return read_nvidia(root, running(said(Nvml(cards=[], init_error=code)), others))


def facts_of(double: Nvml, root: Path, others: Run | None = None) -> Facts:
    return assemble(root=plant(double.files, root), run=running(said(double), others))


def facts(
    devices: tuple[Device, ...], torch: str = "2.13.0+cu130", **surroundings: object
) -> Facts:
    around = replace(Surroundings(), **surroundings)  # type: ignore[arg-type]
    return Facts(
        devices=devices,
        host=Host(hostname="h", system="Linux", surroundings=around),
        software=Software(python="3.12.4", versions={"torch": torch}),
    )


def cuda(index: int, name: str, capability: tuple[int, int] | None = None) -> Device:
    return Device(kind="cuda", index=index, name=name, compute_capability=capability)


def texts(problems: object) -> str:
    return "\n".join(map(str, problems))  # type: ignore[call-overload]


def test_a01_gb10_refuses_the_question_for_memory_and_has_the_hosts(tmp_path: Path) -> None:
    (device,) = found(load("gb10_spark"), tmp_path).devices
    assert device.unified_memory
    assert device.memory_total_bytes == 127600748 * KIB
    assert device.memory_free_bytes == 118566368 * KIB
    assert device.sources["memory_total_bytes"] == "host"
    assert device.bus.pci_id == "0000000F:01:00.0"
    assert (device.bus.pcie_generation, device.bus.pcie_width) == (None, None)
    readings = device.readings
    assert (readings.power_w, readings.temperature_c, readings.utilization_percent) == (
        11.17,
        35,
        0,
    )


def test_a01_nvidia_smi_prints_na_for_the_memory_of_gb10(tmp_path: Path) -> None:
    missing = dict.fromkeys(("memory_total", "memory_used", "memory_free", "reserved"), "[N/A]")
    row = smi_row(0, "NVIDIA GB10", compute_cap="12.1", **missing)
    root = on_the_bus(tmp_path, "000f:01:00.0", driver="nvidia")
    (device,) = without_nvml(12, root, answering(smi=smi(row))).devices
    assert device.memory_total_bytes is None
    assert device.unknown["memory_total_bytes"] == "not supported by this device"


def test_a02_gb10_answers_wrongly_and_still_has_the_hosts_memory(tmp_path: Path) -> None:
    wrong = load("gb10_spark")
    wrong.cards[0]["nvmlDeviceGetMemoryInfo"] = {"total_mib": 1024, "used_mib": 0}
    (device,) = found(wrong, tmp_path).devices
    assert device.unified_memory
    assert device.memory_total_bytes == 127600748 * KIB


def test_a02_an_unknown_card_that_refuses_is_taken_for_one_with_the_hosts_memory(
    tmp_path: Path,
) -> None:
    unknown = load("gb10_spark")
    unknown.cards[0]["nvmlDeviceGetName"] = "NVIDIA N1X"
    assert found(unknown, tmp_path).devices[0].unified_memory


def test_a02_a_card_with_memory_of_its_own_that_refuses_is_unknown(tmp_path: Path) -> None:
    double = broken("l40s_single", nvmlDeviceGetMemoryInfo=NVMLError(3))
    (device,) = found(double, tmp_path).devices
    assert not device.unified_memory
    assert device.memory_total_bytes is None
    assert device.unknown["memory_total_bytes"] == "not supported by this device"


def test_a04_the_slice_is_the_device_and_not_the_card_that_may_not_be_asked(
    tmp_path: Path,
) -> None:
    answer = found(load("mig_h100_1g10gb"), tmp_path)
    (device,) = answer.devices
    assert device.name == "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    assert device.uuid == "MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb"
    assert device.memory_total_bytes == 9984 * MIB
    assert device.mig_parent_uuid == "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
    assert device.compute_capability == (9, 0)
    assert answer.problems == ()


def test_a04_slices_that_are_not_listed_do_not_lend_the_memory_of_the_card(tmp_path: Path) -> None:
    double = load("mig_h100_1g10gb")
    double.cards[0]["nvmlDeviceGetMemoryInfo"] = {"total_mib": 81559, "used_mib": 0}
    double.slices.clear()
    answer = found(double, tmp_path)
    assert answer.devices[0].memory_total_bytes is None
    assert "slices cannot be listed" in texts(answer.problems)


def test_a04_torch_tells_the_memory_of_a_slice_that_nvml_does_not_list(tmp_path: Path) -> None:
    double = load("mig_h100_1g10gb")
    double.slices.clear()
    seen = torch_sees(card("NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9.5, (9, 0)))
    answer = assemble(root=tmp_path, run=running(said(double), answering(torch=seen)), torch=True)
    assert answer.devices[0].memory_total_bytes == int(9.5 * GIB)
    assert answer.devices[0].sources["memory_total_bytes"] == "torch"


def test_a05_a_card_that_tells_no_utilisation_is_not_idle(tmp_path: Path) -> None:
    double = broken("a100_40x8_dgx", nvmlDeviceGetUtilizationRates=NVMLError(3))
    for device in found(double, tmp_path).devices:
        assert device.readings.utilization_percent is None
        assert device.unknown["utilization_percent"] == "not supported by this device"
        assert device.memory_total_bytes == 40960 * MIB


def test_a07_driver_library_mismatch_is_said_and_never_cpu(tmp_path: Path) -> None:
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05  Tue Oct 8\n")
    answer = without_nvml(18, tmp_path, answering(smi=saying.MISMATCH))
    (problem,) = answer.problems
    assert "kernel (550.127.05)" in problem.what
    assert "library (550.144)" in problem.what
    assert "reboot" in problem.fix
    assert (problem.severity, problem.exit_code) == ("error", 6)


def test_a08_a_lost_card_is_named_with_its_address_and_the_others_stay(tmp_path: Path) -> None:
    double = load("h100x8_sxm_hgx")
    double.cards[3]["nvmlDeviceGetHandleByIndex"] = {"error": 15}
    addresses = [one["nvmlDeviceGetPciInfo"].lower()[4:] for one in double.cards]
    answer = found(double, on_the_bus(tmp_path, *addresses))
    assert [device.index for device in answer.devices] == [0, 1, 2, 4, 5, 6, 7]
    (problem,) = answer.problems
    assert problem.where == "device 3 (00000000:5D:00.0)"
    assert "fallen off the bus" in problem.what
    assert "reboot" in problem.fix
    assert problem.severity == "warning"


LOGS = (
    "[ 9.1] NVRM: Xid (PCI:0000:5d:00): 79, pid=1, GPU has fallen off the bus.\n",
    "[ 9.1] NVRM: GPU at PCI:0000:5d:00: GPU-1\n"
    "[ 9.2] NVRM: GPU 0000:5d:00.0: GPU has fallen off the bus.\n",
)


@pytest.mark.parametrize("log", LOGS)
def test_a08_the_kernels_note_of_it_is_read_in_both_forms(log: str, tmp_path: Path) -> None:
    noise = "[ 8.0] NVRM: Xid (PCI:0000:18:00): 31, pid=9, name=python, Ch 8, MMU Fault\n"
    others = answering(dmesg=Ran(0, noise + log + log))
    (problem,) = found(load("h100x8_sxm_hgx"), tmp_path, others).problems
    assert problem.where == "device 3 (00000000:5D:00.0)"
    assert "fell off the bus (Xid 79)" in problem.what


def test_a08_a_card_that_goes_away_between_two_questions_is_left_out(tmp_path: Path) -> None:
    double = broken("h100x8_sxm_hgx", nvmlDeviceGetTemperature__5=NVMLError(15))
    answer = found(double, tmp_path)
    assert 5 not in [device.index for device in answer.devices]
    assert "fallen off the bus" in texts(answer.problems)


def test_a08_the_only_card_being_lost_is_an_error_and_never_cpu(tmp_path: Path) -> None:
    double = load("l40s_single")
    double.cards[0]["nvmlDeviceGetHandleByIndex"] = {"error": 15}
    (problem,) = found(double, tmp_path).problems
    assert problem.severity == "error"


def test_a10_jetson_without_nvml_is_what_torch_says(tmp_path: Path) -> None:
    files = {"etc/nv_tegra_release": "# R35 (release)", "proc/meminfo": "MemTotal: 64000000 kB\n"}
    seen = torch_sees(card("Orin", 61, (8, 7), integrated=True), cuda="12.6")
    answer = without_nvml(12, plant(files, tmp_path), answering(torch=seen))
    (device,) = answer.devices
    assert (device.name, device.compute_capability) == ("Orin", (8, 7))
    assert device.unified_memory
    assert device.source.startswith("torch")
    assert [problem.severity for problem in answer.problems] == ["warning"]


def test_a10_jetson_with_nvml_has_the_memory_of_its_host(tmp_path: Path) -> None:
    double = load("jetson_orin")
    (device,) = found(double, plant({"proc/meminfo": "MemTotal: 64000000 kB\n"}, tmp_path)).devices
    assert device.unified_memory
    assert device.memory_total_bytes == 64000000 * KIB


def test_a11_thor_keeps_what_it_tells_and_lacks_the_rest(tmp_path: Path) -> None:
    thor = Nvml(
        cards=[
            {
                "nvmlDeviceGetName": "NVIDIA Thor",
                "nvmlDeviceGetUUID": "GPU-0",
                "nvmlDeviceGetUtilizationRates": 37,
            }
        ],
        files={"proc/meminfo": "MemTotal: 128000000 kB\nMemAvailable: 100000000 kB\n"},
    )
    (device,) = found(thor, tmp_path).devices
    assert device.readings.utilization_percent == 37
    assert device.readings.temperature_c is None
    assert device.readings.power_w is None
    assert device.memory_free_bytes == 100000000 * KIB


def test_a13_wsl_has_its_card_without_any_file_of_a_linux_driver(tmp_path: Path) -> None:
    answer = facts_of(load("rtx4060_laptop_wsl2"), tmp_path)
    (device,) = answer.accelerators
    assert device.memory_total_bytes == 8188 * MIB
    assert device.readings.utilization_percent is None
    assert device.readings.display_active is True
    assert answer.host.surroundings.wsl
    assert "Windows keeps 1 to 1.5 GiB" in texts(answer.problems)
    assert "kernel module" not in texts(answer.problems)


def test_a14_a_broken_wsl_is_mended_in_windows_and_never_by_a_linux_driver(tmp_path: Path) -> None:
    root = plant(load("rtx4060_laptop_wsl2").files, tmp_path)
    (problem,) = without_nvml(9, root, answering(smi=saying.NO_DRIVER)).problems
    assert "update the NVIDIA driver in Windows" in problem.fix
    assert "install no driver in Linux" in problem.fix
    assert "/usr/lib/wsl/lib" in problem.fix
    assert problem.severity == "error"


EIGHT = tuple(
    Device(
        kind="cuda",
        index=i,
        name="NVIDIA A10G",
        uuid=f"GPU-{i}a3a85d-3c55-ca3a-a955-82c69ed360f{i}",
    )
    for i in range(8)
)


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ("GPU-2a3a85d-3c55-ca3a-a955-82c69ed360f2", [2]),
        ("GPU-7a3a8,GPU-1a", [7, 1]),
        ("3,1", [3, 1]),
        (" 1 , GPU-3a", [1, 3]),
        ("0,9,2", [0]),
        ("0,-1,2", [0]),
        ("0,GPU-zz,2", [0]),
        ("1,1", []),
        ("1,GPU-1a", []),
        ("GPU-", []),
        ("", []),
        ("-1", []),
        ("none", []),
        ("9" * 5000, []),
        ("٣", []),
    ],
)
def test_a16_cuda_visible_devices_is_read_as_cuda_reads_it(wanted: str, left: list[int]) -> None:
    answer = visibility.visible(Accelerators(devices=EIGHT), {"CUDA_VISIBLE_DEVICES": wanted})
    assert [device.index for device in answer.devices] == left
    assert left or answer.problems


@pytest.mark.parametrize(
    "wanted",
    [
        "MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb",
        "MIG-c788",
        "MIG-GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f/7/0",
        "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f",
        "0",
    ],
)
def test_a16_a_slice_is_named_in_any_form(wanted: str, tmp_path: Path) -> None:
    answer = found(load("mig_h100_1g10gb"), tmp_path)
    (device,) = visibility.visible(answer, {"CUDA_VISIBLE_DEVICES": wanted}).devices
    assert device.uuid == "MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb"


MIXED = (
    Device(kind="cuda", index=0, name="NVIDIA GeForce RTX 3060", uuid="GPU-30"),
    Device(kind="cuda", index=1, name="NVIDIA GeForce RTX 4090", uuid="GPU-40"),
)


def test_a17_torch_knows_what_a_number_means_where_cards_differ() -> None:
    view = decode(torch_sees(card("NVIDIA GeForce RTX 4090", 23.6, (8, 9), uuid="40")))
    answer = visibility.visible(Accelerators(devices=MIXED), {"CUDA_VISIBLE_DEVICES": "0"}, view)
    assert [device.name for device in answer.devices] == ["NVIDIA GeForce RTX 4090"]
    assert answer.problems == ()


def test_a17_without_torch_the_doubt_about_a_number_is_said() -> None:
    answer = visibility.visible(Accelerators(devices=MIXED), {"CUDA_VISIBLE_DEVICES": "0"})
    assert [device.index for device in answer.devices] == [0]
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in texts(answer.problems)


def test_a17_in_the_order_of_the_bus_there_is_no_doubt() -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    answer = visibility.visible(Accelerators(devices=MIXED), environment)
    assert [device.index for device in answer.devices] == [1]
    assert answer.problems == ()


def test_a19_a_row_that_waits_is_a_warning(tmp_path: Path) -> None:
    double = broken("h100x8_sxm_hgx", nvmlDeviceGetRemappedRows__2=[0, 4, 1, 0])
    answer = facts_of(double, tmp_path)
    assert len(answer.accelerators) == 8
    assert answer.devices[2].readings.remap_pending is True
    (problem,) = [p for p in answer.problems if "row waits" in p.what]
    assert problem.severity == "warning"
    assert "reboot" in problem.fix


def test_a19_a_row_that_could_not_be_replaced_leaves_the_card_out(tmp_path: Path) -> None:
    double = broken("h100x8_sxm_hgx", nvmlDeviceGetRemappedRows__2=[0, 4, 0, 1])
    answer = found(double, tmp_path)
    assert 2 not in [device.index for device in answer.devices]
    (problem,) = answer.problems
    assert problem.where == "device 2"
    assert "exchanged" in problem.fix


def test_a19_an_error_the_kernel_noted_is_said_of_its_card(tmp_path: Path) -> None:
    log = "NVRM: Xid (PCI:0000:18:00): 63, pid='<unknown>', Row Remapper: New row marked\n"
    (problem,) = found(load("h100x8_sxm_hgx"), tmp_path, answering(dmesg=Ran(0, log))).problems
    assert problem.where == "device 0 (00000000:18:00.0)"
    assert "waits to be replaced (Xid 63)" in problem.what


def test_a19_a_card_without_such_rows_is_not_blamed(tmp_path: Path) -> None:
    answer = found(load("v100_16_cloud"), tmp_path)
    assert answer.devices[0].readings.remap_pending is None
    assert answer.problems == ()


def test_a20_a_container_without_utility_has_what_torch_sees(tmp_path: Path) -> None:
    seen = torch_sees(*[card("NVIDIA A100-SXM4-80GB", 79.3, (8, 0))] * 8)
    answer = without_nvml(12, plant({"dev/nvidia0": ""}, tmp_path), answering(torch=seen))
    assert len(answer.devices) == 8
    assert answer.devices[0].memory_total_bytes == int(79.3 * GIB)
    (problem,) = answer.problems
    assert "utility" in problem.fix


def test_a20_what_torch_alone_sees_is_visible_already(tmp_path: Path) -> None:
    seen = torch_sees(*[card("NVIDIA A100-SXM4-80GB", 79.3, (8, 0))] * 2)
    answer = without_nvml(12, plant({"dev/nvidia0": ""}, tmp_path), answering(torch=seen))
    left = visibility.visible(answer, {"CUDA_VISIBLE_DEVICES": "6,7"})
    assert [device.index for device in left.devices] == [0, 1]


def test_a20_a_container_in_which_nothing_answers_is_an_error(tmp_path: Path) -> None:
    (problem,) = without_nvml(12, plant({"dev/nvidia0": ""}, tmp_path), answering()).problems
    assert problem.severity == "error"
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in problem.fix


@pytest.mark.parametrize(
    ("machine", "native"),
    [("v100_16_cloud", False), ("t4_colab", False), ("a40x10", True), ("l40s_single", True)],
)
def test_a22_bf16_is_native_by_capability(machine: str, native: bool, tmp_path: Path) -> None:
    assert all(d.bf16_native is native for d in found(load(machine), tmp_path).devices)


def test_a23_a_torch_without_code_for_the_card_is_an_error() -> None:
    arch = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
    view = decode(torch_sees(card("NVIDIA GeForce RTX 5090", 31.4, (12, 0)), arch_list=arch))
    device = cuda(0, "NVIDIA GeForce RTX 5090", (12, 0))
    problems = checks.check(replace(facts((device,), "2.5.1+cu124"), torch=view))
    (problem,) = [p for p in problems if "no kernels" in p.what]
    assert "12.0" in problem.what
    assert (problem.severity, problem.exit_code) == ("error", 6)


def test_a23_a_card_without_a_name_of_its_own_counts_by_memory_and_capability(
    tmp_path: Path,
) -> None:
    double = broken("l40s_single", nvmlDeviceGetName="NVIDIA Graphics Device")
    (device,) = found(double, tmp_path).devices
    assert device.memory_total_bytes == 46068 * MIB
    assert device.bf16_native is True
    assert device.memory_bandwidth_gbs is None


def test_a25_a_call_the_driver_does_not_know_costs_only_its_own_answer(tmp_path: Path) -> None:
    answer = found(load("v100_16_cloud"), tmp_path)
    (device,) = answer.devices
    assert device.memory_total_bytes == 16160 * MIB
    assert (answer.driver, answer.cuda) == ("418.67", "10.1")
    assert answer.problems == ()


NEW_WHEEL = ("sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120")
OLD_WHEEL = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")


@pytest.mark.parametrize(
    ("arch_list", "capability", "served"),
    [
        (NEW_WHEEL, (6, 0), False),
        (NEW_WHEEL, (6, 1), False),
        (NEW_WHEEL, (7, 0), True),
        (NEW_WHEEL, (12, 1), True),
        (NEW_WHEEL, (10, 3), True),
        (OLD_WHEEL, (6, 1), True),
        (OLD_WHEEL, (8, 9), True),
        (OLD_WHEEL, (12, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("compute_80",), (12, 0), True),
    ],
)
def test_a26_an_arch_list_serves_its_generation_and_ptx_what_comes_later(
    arch_list: tuple[str, ...], capability: tuple[int, int], served: bool
) -> None:
    view = decode(torch_sees(card("card", 16, capability), arch_list=arch_list))
    device = cuda(0, "card", capability)
    problems = checks.check(replace(facts((device,)), torch=view))
    assert ("no kernels" not in texts(problems)) is served


def test_a26_old_and_new_cards_together_have_no_single_build() -> None:
    both = (cuda(0, "Tesla V100-SXM2-16GB", (6, 1)), cuda(1, "NVIDIA GeForce RTX 5090", (12, 0)))
    seen = torch_sees(
        card(both[0].name, 16, (6, 1)), card(both[1].name, 31, (12, 0)), arch_list=OLD_WHEEL
    )
    problems = checks.check(replace(facts(both), torch=decode(seen)))
    assert "no one build serves both" in texts(problems)


def test_a28_little_pinned_memory_in_wsl_is_said() -> None:
    device = cuda(0, "NVIDIA GeForce RTX 4060 Laptop GPU", (8, 9))
    problems = checks.check(facts((device,), wsl=True, memlock_bytes=64 * KIB))
    assert "pin" in texts(problems)


def test_a29_a_full_card_in_wsl_is_said() -> None:
    device = replace(
        cuda(0, "NVIDIA GeForce RTX 3060", (8, 6)),
        memory_total_bytes=12 * GIB,
        memory_used_bytes=int(11.9 * GIB),
        memory_free_bytes=int(0.1 * GIB),
    )
    assert "slower" in texts(checks.check(facts((device,), wsl=True)))


def test_a29_a_counter_that_ran_over_is_unknown(tmp_path: Path) -> None:
    double = load("l40s_single")
    double.cards[0]["nvmlDeviceGetMemoryInfo"] = {
        "total_mib": 46068,
        "used_mib": 17179869184,
        "reserved_mib": 479,
    }
    (device,) = found(double, tmp_path).devices
    assert device.memory_used_bytes is None
    assert "makes no sense" in device.unknown["memory_used_bytes"]
    assert device.memory_total_bytes == 46068 * MIB


@pytest.mark.parametrize(
    ("driver", "cause"),
    [
        ("nouveau", "nouveau holds it"),
        ("vfio-pci", "virtual machine"),
        (None, "module is not loaded"),
        ("nvidia", "module is not loaded"),
    ],
)
def test_a31_a_card_that_no_driver_reaches_is_said_with_its_cause(
    driver: str | None, cause: str, tmp_path: Path
) -> None:
    root = on_the_bus(tmp_path, "0000:3b:00.0", driver=driver)
    answer = without_nvml(9, root, answering(smi=saying.NO_DRIVER))
    (problem,) = answer.problems
    assert answer.devices == ()
    assert "00000000:3B:00.0" in problem.what
    assert cause in problem.what
    assert (problem.severity, problem.exit_code) == ("error", 6)


@pytest.mark.parametrize("code", [9, 12])
def test_a31_a_machine_without_any_card_is_a_machine_for_the_cpu(code: int, tmp_path: Path) -> None:
    answer = without_nvml(code, tmp_path)
    assert (answer.devices, answer.problems) == ((), ())


def test_a31_a_card_without_any_driver_installed_is_said(tmp_path: Path) -> None:
    (problem,) = without_nvml(12, on_the_bus(tmp_path, "0000:3b:00.0")).problems
    assert "a card is on the bus" in problem.what


def test_a32_memory_held_by_processes_of_other_containers_is_said(tmp_path: Path) -> None:
    double = load("container_4090_cgroup90")
    double.cards[0]["nvmlDeviceGetMemoryInfo"]["used_mib"] = 7325
    double.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = []
    answer = facts_of(double, tmp_path)
    assert answer.devices[0].readings.processes == ()
    assert answer.devices[0].memory_free_bytes == (24564 - 7325 - 354) * MIB
    assert "not visible" in texts(answer.problems)


def test_a32_processes_that_are_told_keep_their_names_and_memory(tmp_path: Path) -> None:
    holders = [{"pid": 4242, "usedGpuMemory": 7 * GIB}, {"pid": 5, "usedGpuMemory": None}]
    double = load("l40s_single")
    double.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = holders
    processes = found(double, tmp_path).devices[0].readings.processes
    assert processes is not None
    assert [(one.pid, one.name, one.memory_bytes) for one in processes] == [
        (4242, "process-4242", 7 * GIB),
        (5, "process-5", None),
    ]


def test_a34_nvidia_smi_is_asked_for_whole_names(tmp_path: Path) -> None:
    row = smi_row(0, "NVIDIA RTX 6000 Ada Generation", memory_total="49140")
    root = on_the_bus(tmp_path, "0000:01:00.0", driver="nvidia")
    (device,) = without_nvml(999, root, answering(smi=smi(row))).devices
    assert device.name == "NVIDIA RTX 6000 Ada Generation"
    assert device.memory_bandwidth_gbs == 960
    assert device.source == "nvidia-smi, table"


def test_every_recorded_machine_reads_without_a_problem_of_its_driver(tmp_path: Path) -> None:
    for name in nvml.IDS:
        answer = found(load(name), tmp_path / name)
        assert not [p for p in answer.problems if p.severity != "info"], name
