"""The commands for a machine that is not this one: probe, plan and run --dry-run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wizard.cli import main
from wizard.probe import composed
from wizard.probe.machine import find, shipped
from wizard.problem import ProblemError
from wizard.screens.machines import offered
from wizard.screens.verbs import Machines

MODEL = "Qwen/Qwen2.5-0.5B"
ROW = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(ROW) + "\n" for _ in range(64)))
    return str(path)


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_probe_shows_a_shipped_machine_and_says_that_it_is_not_this_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["probe", "--machine", "8xH100-SXM"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Machine 8xH100-SXM, not this one\n")
    assert "0-7: NVSwitch, 450 GB/s" in out
    assert "free     unknown" not in out.split("Host")[0]


def test_what_probe_saves_is_what_machine_reads(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "server.json"
    assert main(["probe", "--machine", "2x NVIDIA L40S", "-o", str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads(path.read_text()) == printed
    assert printed["schema"] == 1
    assert main(["probe", "--machine", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == printed


def test_a_plan_for_another_machine_uses_its_devices(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--all", "--machine", "4xL40S", "--model", MODEL, "--data", data]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Machine 4x NVIDIA L40S, not this one\n")
    assert "4 × NVIDIA L40S" in out


def test_a_script_for_another_machine_can_be_read_and_written_but_not_started(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["run", "--machine", "8xMI300X", "--model", MODEL, "--data", data]
    assert main([*common, "--dry-run"]) == 0
    assert "torchrun" in capsys.readouterr().out
    assert main([*common, "--write-only", "--output", str(tmp_path / "runs"), "--name", "r"]) == 0
    assert (tmp_path / "runs/r/run.sh").is_file()
    capsys.readouterr()
    said = refused(capsys, *common, "--yes", "--output", str(tmp_path / "other"))
    assert "is not started here" in said
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("option", ["--torch", "--bench", "--test-links"])
def test_what_asks_the_machine_itself_does_not_go_with_another_one(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert option in refused(capsys, "probe", "--machine", "L40S", option)


def test_a_name_that_is_not_known_gets_the_nearest_offered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "8xH100-SXM" in refused(capsys, "probe", "--machine", "8xH10O-SXM")


def test_devices_that_are_not_trained_on_are_said_in_one_sentence(
    data: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["plan", "--machine", "1x Apple M3 Max", "--model", MODEL, "--data", data])
    assert code == 6
    assert "recognised but not yet trained on" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["4x24", "4x24 GB", "4×24GB", "4 x 24 GiB", "4 24gb"])
def test_a_machine_is_found_by_a_count_and_a_memory(typed: str) -> None:
    machines = Machines(
        snapshots=tuple(shipped()),
        devices=composed.names(),
        sold_with=composed.sold_with,
        find=find,
    )
    found = [choice.value for choice in offered(machines, typed)]
    assert "4x NVIDIA GeForce RTX 4090" in found
    assert "4x NVIDIA L40S" not in found
    assert [one.memory_total_bytes for one in find(found[-1]).devices]


def test_a_memory_alone_names_no_machine_and_what_has_it_is_offered() -> None:
    with pytest.raises(ProblemError, match="sold with so much memory") as refused:
        find("4x24GB")
    assert "name one: " in refused.value.problem.fix
    assert composed.sold_with("nothing") == ()
