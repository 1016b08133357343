"""What torch sees: asked in a child, remembered, joined with what the driver tells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.nvml import plant
from tests.probe.nvidia.saying import GIB, card, torch_sees
from wizard.facts import Device
from wizard.probe import torchview
from wizard.probe.running import Ran, Run, run
from wizard.probe.torchview import decode, joined, read_torch

BOOT = "proc/sys/kernel/random/boot_id"


def counted(ran: Ran) -> tuple[Run, list[Sequence[str]]]:
    asked: list[Sequence[str]] = []

    def answer(command: Sequence[str], limit_seconds: float) -> Ran:
        asked.append(command)
        return ran

    return answer, asked


def test_unasked_and_unremembered_it_is_unknown(tmp_path: Path) -> None:
    answer, asked = counted(torch_sees())
    assert read_torch(ask=False, run=answer, root=tmp_path) is None
    assert asked == []


def test_what_it_said_is_remembered(tmp_path: Path) -> None:
    answer, asked = counted(torch_sees(card("NVIDIA L40S", 44.5, (8, 9), uuid="1-2")))
    first = read_torch(ask=True, run=answer, root=tmp_path)
    assert read_torch(ask=True, run=answer, root=tmp_path) == first
    assert read_torch(ask=False, run=answer, root=tmp_path) == first
    assert len(asked) == 1
    assert first is not None
    assert first.devices[0].memory_total_bytes == int(44.5 * GIB)
    assert first.bnb_4bit is True


def test_an_answer_that_is_whole_is_remembered_though_its_end_came_late(tmp_path: Path) -> None:
    answer, asked = counted(Ran(None, torch_sees().out, timed_out=True))
    for _ in range(2):
        assert read_torch(ask=True, run=answer, root=tmp_path) is not None
    assert len(asked) == 1


def test_an_answer_cut_short_is_not_remembered(tmp_path: Path) -> None:
    first_line = torch_sees().out.splitlines()[0] + "\n"
    answer, asked = counted(Ran(None, first_line, timed_out=True))
    for _ in range(2):
        view = read_torch(ask=True, run=answer, root=tmp_path)
        assert view is not None
        assert view.bnb_4bit is None
    assert len(asked) == 2


@pytest.mark.parametrize("change", ["boot", "driver", "environment"])
def test_a_change_of_the_machine_makes_it_ask_again(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, asked = counted(torch_sees())
    root = plant({BOOT: "one", "proc/driver/nvidia/version": "550"}, tmp_path)
    read_torch(ask=True, run=answer, root=root)
    if change == "environment":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    else:
        file = BOOT if change == "boot" else "proc/driver/nvidia/version"
        plant({file: "another"}, root)
    read_torch(ask=True, run=answer, root=root)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("ran", "error"),
    [
        (Ran(None, "", "", timed_out=True), "did not answer"),
        (Ran(-11, ""), "signal 11"),
        (Ran(1, "", "Traceback\nModuleNotFoundError: No module named 'torch'"), "ModuleNotFound"),
        (Ran(0, '{"error": "ImportError: libcudart.so.13"}\n'), "libcudart"),
        (Ran(0, ""), "said nothing"),
    ],
)
def test_a_failure_is_told_and_not_remembered(ran: Ran, error: str, tmp_path: Path) -> None:
    answer, asked = counted(ran)
    for _ in range(2):
        view = read_torch(ask=True, run=answer, root=tmp_path)
        assert view is not None
        assert error in (view.error or "")
    assert len(asked) == 2


def test_bitsandbytes_taking_the_process_along_is_not_torchs_fault() -> None:
    first_line = torch_sees().out.splitlines()[0] + "\n"
    view = decode(Ran(-11, first_line))
    assert view.error is None
    assert view.bnb_4bit is False
    assert "signal 11" in (view.bnb_error or "")


def test_a_read_only_disk_costs_only_time(tmp_path: Path, own_home: Path) -> None:
    (own_home / "cache").write_text("a file where a folder should be")
    answer, _ = counted(torch_sees())
    assert read_torch(ask=True, run=answer, root=tmp_path) is not None


def test_what_the_driver_keeps_to_itself_torch_may_tell() -> None:
    view = decode(torch_sees(card("NVIDIA L40S", 44.5, (8, 9), uuid="aa-1")))
    device = Device(
        kind="cuda",
        index=0,
        name="NVIDIA L40S",
        uuid="GPU-AA-1",
        unknown={"memory_total_bytes": "no permission to ask"},
    )
    other = Device(kind="cuda", index=1, name="NVIDIA L40S", uuid="GPU-bb", memory_total_bytes=7)
    filled, untouched = joined((device, other), view)
    assert filled.memory_total_bytes == int(44.5 * GIB)
    assert filled.compute_capability == (8, 9)
    assert filled.bf16_native is True
    assert filled.sources["memory_total_bytes"] == "torch"
    assert filled.unknown == {}
    assert untouched == other


def test_what_the_driver_told_stays() -> None:
    view = decode(torch_sees(card("NVIDIA L40S", 44.5, (8, 9), uuid="aa")))
    device = Device(kind="cuda", index=0, name="L40S", uuid="GPU-aa", memory_total_bytes=99)
    assert joined((device,), view)[0].memory_total_bytes == 99
    assert joined((device,), None) == (device,)


def test_a_build_for_another_vendor_lists_no_cuda_devices() -> None:
    assert torchview.devices(decode(torch_sees(card("gfx942", 190, (9, 4)), cuda=None))) == ()


@pytest.mark.wide
def test_the_real_torch_of_this_environment_answers(tmp_path: Path) -> None:
    view = decode(run([*torchview.CHILD], torchview.TIME_LIMIT_SECONDS))
    assert view.version
    assert all(device.name for device in view.devices)
