"""Ascend: what `npu-smi` prints, whole, in part, and not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes import recordings
from tests.fakes.recordings import Recording, parse
from wizard.probe import ascend
from wizard.probe.accelerators import Accelerators

MIB = 1024**2
TABLE = (
    "| {npu:<6}910B4               | {health:<14}| 86.6        36                0    / 0  |\n"
    "| 0                         | 0000:{bus}:00.0  | 0           0    / 0          {hbm}     |\n"
)


def read(name: str, root: Path, environment: dict[str, str] | None = None) -> Accelerators:
    return ascend.read(recordings.plant(name, root), recordings.session(name), environment or {})


def listed(*rows: tuple[int, str, str, str]) -> str:
    return "npu-smi 24.1  Version: 24.1\n" + "".join(
        TABLE.format(npu=npu, bus=bus, hbm=hbm, health=health) for npu, bus, hbm, health in rows
    )


def test_c02_amounts_without_a_space_and_truncated_process_names_are_read(tmp_path: Path) -> None:
    found = read("ascend_a3_16", tmp_path)
    assert len(found.devices) == 16
    busy = found.devices[4]
    assert busy.memory_used_bytes == 31877 * MIB
    assert busy.readings.processes is not None
    assert [(p.pid, p.name, p.memory_bytes) for p in busy.readings.processes] == [
        (3381027, "python3.1", 28512 * MIB)
    ]
    assert found.devices[5].readings.processes == ()


def test_c03_a_subset_in_a_container_is_numbered_from_0_as_torch_does(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci_manager").touch()
    text = listed(
        *((npu, f"C{npu}", "2890 / 32768", "OK") for npu in (0, 3, 4, 7)),
    )
    found = ascend.read(tmp_path, Recording(parse(f"$ npu-smi info\n{text}")), {})
    assert [device.index for device in found.devices] == [0, 1, 2, 3]
    assert {device.memory_total_bytes for device in found.devices} == {32768 * MIB}
    assert {device.name for device in found.devices} == {"Ascend910B4"}


def test_a3_second_chips_have_no_power_of_their_own_and_say_why(tmp_path: Path) -> None:
    first, second = read("ascend_a3_16", tmp_path).devices[:2]
    assert first.readings.power_w == 178.5
    assert second.readings.power_w is None
    assert "first chip" in second.unknown["power_w"]


def test_the_board_names_what_a3_calls_by_one_name(tmp_path: Path) -> None:
    run = recordings.session("ascend_a3_16")
    board = parse("$ npu-smi info -t board -i 0 -c 0\n\tChip Name : Ascend910\n\tNPU Name : 9362\n")
    found = ascend.read(
        recordings.plant("ascend_a3_16", tmp_path), Recording({**run.answers, **board}), {}
    )
    assert {device.name for device in found.devices} == {"Ascend910_9362"}
    assert found.devices[0].bf16_native is True


@pytest.mark.parametrize(
    ("wanted", "indices", "said"),
    [
        ("2,3", [2, 3], []),
        ("3,0", [3, 0], []),
        ("0,9,1", [0], ["`9` names no device"]),
        ("1,1", [1], ["`1` names no device"]),
        ("", [], ["every accelerator"]),
        ("-1", [], ["every accelerator"]),
    ],
)
def test_the_variable_keeps_its_order_and_ends_at_a_wrong_entry(
    wanted: str, indices: list[int], said: list[str], tmp_path: Path
) -> None:
    found = read("ascend910b3_x8", tmp_path, {"ASCEND_RT_VISIBLE_DEVICES": wanted})
    assert [device.index for device in found.devices] == indices
    assert len(found.problems) == len(said)
    for problem, text in zip(found.problems, said, strict=True):
        assert problem.what.startswith(text)
    for link in found.known_links:
        assert max(link.devices) < len(indices)


def test_links_follow_the_devices_that_are_left(tmp_path: Path) -> None:
    found = read("ascend910b3_x8", tmp_path, {"ASCEND_RT_VISIBLE_DEVICES": "6,2"})
    assert [(link.devices, link.kind) for link in found.known_links] == [((0, 1), "hccs")]


def test_a_chip_that_is_not_well_is_kept_and_said(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci0").touch()
    text = listed((0, "C1", "2890 / 32768", "OK"), (1, "C2", "2890 / 32768", "Alarm"))
    found = ascend.read(tmp_path, Recording(parse(f"$ npu-smi info\n{text}")), {})
    assert len(found.devices) == 2
    assert [(p.where, p.severity) for p in found.problems] == [("NPU 1, chip 0", "warning")]


@pytest.mark.parametrize(
    ("session", "said"),
    [
        ("", "npu-smi is not found"),
        ("$ npu-smi info\nwaiting\n[hangs]", "did not answer within"),
        ("$ npu-smi info\ndcmi model initialized failed\n[exit 255]", "exit code 255: “dcmi"),
        ("$ npu-smi info\nnothing here", "lists no NPU"),
    ],
)
def test_a_driver_without_an_answer_is_said_never_silently_the_cpu(
    session: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/davinci_manager").touch()
    found = ascend.read(tmp_path, Recording(parse(session)), {})
    assert found.devices == ()
    assert said in found.problems[0].what
    assert found.problems[0].exit_code == 6


def test_without_the_driver_nothing_is_asked(tmp_path: Path) -> None:
    def run(command: object, limit_seconds: float) -> None:
        raise AssertionError(f"asked {command}")

    assert ascend.read(tmp_path, run, {}) == Accelerators()  # type: ignore[arg-type]


WHOLE = recordings.session("ascend_a3_16").answers["npu-smi info"].out


@given(st.data())
def test_any_part_of_the_table_and_any_nonsense_in_it_is_read_without_failing(
    data: st.DataObject,
) -> None:
    lines = WHOLE.splitlines()
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=30))
    junk = data.draw(st.lists(st.text(alphabet="|0123456789 -/:.ABabc", max_size=60), max_size=5))
    mixed = data.draw(st.permutations(kept + junk))
    for chip in ascend.parse_chips("\n".join(mixed)):
        assert chip.total_bytes is None or chip.total_bytes > 0


@pytest.mark.parametrize(
    "line", ["0:||0", "0x1|1|0", f"{'9' * 5000}|1|0"], ids=["colon", "hex", "long"]
)
def test_what_only_begins_like_a_number_is_no_chip(line: str) -> None:
    assert ascend.parse_chips(f"{line}\n{line}:\n") == []
