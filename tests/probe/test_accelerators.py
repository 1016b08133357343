"""The NVML child's answers become devices and problems; visibility is CUDA's."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.fakes.probes import answer
from wizard.probe import accelerators
from wizard.probe.accelerators import (
    Accelerators,
    ask_child,
    read_accelerators,
    understand,
    visible,
)


def understood(name: str, *, driver_traces: bool = True) -> Accelerators:
    return understand(answer(name), finished=True, driver_traces=driver_traces)


def indices(wanted: str, name: str = "four_cards") -> list[int]:
    found = visible(understood(name), {"CUDA_VISIBLE_DEVICES": wanted})
    return [device.index for device in found.devices]


def test_a_card_has_its_own_numbers_and_those_of_the_table() -> None:
    (card,) = understood("rtx4090").devices
    assert card.memory_total_bytes == 24564 * 1024**2
    assert card.compute_capability == (8, 9)
    assert card.bf16_native is True
    assert card.memory_bandwidth_gbs == 1010
    assert card.bf16_tflops == 165.2
    assert card.source == "nvml, table"


def test_the_driver_says_its_version_and_the_highest_cuda() -> None:
    found = understood("rtx4090")
    assert (found.driver, found.cuda) == ("550.127.05", "12.4")


def test_a_memory_query_that_is_not_supported_is_unknown_not_zero() -> None:
    (card,) = understood("unified_memory").devices
    assert card.memory_total_bytes is None
    assert card.memory_bandwidth_gbs == 273


def test_mig_slices_are_devices_without_the_numbers_of_their_parent() -> None:
    found = understood("mig_slices").devices
    assert [device.uuid and device.uuid[:8] for device in found] == ["MIG-c788", "MIG-d888"]
    assert found[0].memory_bandwidth_gbs is None
    assert found[0].bf16_native is True


def test_a_lost_card_is_named_and_the_others_stay() -> None:
    found = understood("lost_card")
    assert [device.index for device in found.devices] == [0]
    (problem,) = found.problems
    assert problem.where == "device 1"
    assert "fallen off the bus" in problem.what


def test_a_driver_mismatch_is_an_error_with_a_remedy() -> None:
    found = understood("version_mismatch")
    assert found.devices == ()
    (problem,) = found.problems
    assert problem.severity == "error"
    assert problem.exit_code == 6
    assert "reboot" in problem.fix


def test_a_machine_without_any_trace_of_a_driver_has_no_problem() -> None:
    assert understood("no_library", driver_traces=False).problems == ()


def test_a_driver_without_its_library_is_a_problem() -> None:
    (problem,) = understood("no_library", driver_traces=True).problems
    assert "libnvidia-ml" in problem.what


def test_an_answer_cut_off_by_a_hang_keeps_its_whole_lines() -> None:
    cut = answer("four_cards")[:-200]
    found = understand(cut, finished=False, driver_traces=True)
    assert 1 <= len(found.devices) < 4
    assert "did not answer" in found.problems[-1].what


def test_a_child_that_dies_on_a_machine_with_a_driver_is_a_problem() -> None:
    (problem,) = understand("", finished=True, driver_traces=True).problems
    assert "ended without an answer" in problem.what


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ("2,0", [2, 0]),
        ("GPU-cc000000-0000-4000-8000-000000000000", [2]),
        ("GPU-cc,GPU-dd", [2, 3]),
        (" 1 , 3 ", [1, 3]),
        ("", []),
        ("-1", []),
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("1,1", [1]),
        ("GPU-a", []),
    ],
)
def test_visible_devices_follow_cuda(wanted: str, left: list[int]) -> None:
    assert indices(wanted) == left


def test_without_the_variable_every_card_is_visible() -> None:
    assert len(visible(understood("four_cards"), {}).devices) == 4


def test_an_entry_that_names_no_card_is_told() -> None:
    found = visible(understood("four_cards"), {"CUDA_VISIBLE_DEVICES": "0,9"})
    assert any("`9` names no device" in problem.what for problem in found.problems)


def test_hiding_every_card_is_told() -> None:
    found = visible(understood("four_cards"), {"CUDA_VISIBLE_DEVICES": ""})
    assert any("hidden" in problem.what for problem in found.problems)


def test_a_child_that_hangs_is_left_after_the_limit_and_what_it_said_is_kept() -> None:
    code = "import time; print('said', flush=True); time.sleep(600)"
    begun = time.monotonic()
    text, finished = ask_child([sys.executable, "-c", code], 0.6)
    assert time.monotonic() - begun < 5
    assert not finished
    assert text == "said\n"


def test_the_real_child_answers_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerators, "DRIVER_TRACES", ())
    text, finished = ask_child([sys.executable, "-m", "wizard.probe.nvidia"], 20)
    assert finished
    assert '"kind"' in text


def test_reading_this_machine_never_raises(tmp_path: Path) -> None:
    found = read_accelerators(root=tmp_path)
    assert isinstance(found.devices, tuple)
