"""Measured rates stand in place of the table's, and are remembered for this machine only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import bench
from tests.probe.links.said import A100, RTX3090, cards, facts
from wizard import paths
from wizard.facts import Device, Facts, Link, Measured
from wizard.probe import rates
from wizard.probe.running import Ran
from wizard.problem import ProblemError

MEASURED = Measured(
    when="2026-01-02T03:04:05+00:00", device=A100, matmul_tflops=251.3, memory_gbs=1402.0
)


def child(*lines: dict[str, Any], err: str = "") -> Any:
    def run(_command: Sequence[str], _limit: float) -> Ran:
        return Ran(0 if lines else 1, "".join(json.dumps(line) + "\n" for line in lines), err)

    return run


def rate(name: str, value: object, what: str = "bf16") -> dict[str, Any]:
    return {"kind": "rate", "name": name, "value": value, "what": what}


def machine(**host: Any) -> Facts:
    return facts(cards(2, A100, (8, 0)), cpu_name="EPYC", cpu_cores=64, **host)


def test_results_are_told_one_by_one_and_returned_together() -> None:
    said: list[str] = []
    run = child(
        {"kind": "device", "device_kind": "cuda", "name": A100},
        rate("matmul_tflops", 251.3, "bf16, 8192 × 8192"),
        rate("cpu_adam_parameters_per_second", 4e9, "deepspeed"),
        {"kind": "failed", "name": "disk_write_gbs", "text": "too little space is free"},
    )
    measured = rates.measure(said.append, run=run)
    assert (measured.device, measured.matmul_tflops) == (A100, 251.3)
    assert (measured.cpu_adam, measured.disk_write_gbs) == ("deepspeed", None)
    assert said == [
        "matrix product: 251.3 TFLOP/s (bf16, 8192 × 8192)",
        "Adam on the CPU: 4e+09 parameters/s (deepspeed)",
        "disk write: not measured: too little space is free",
    ]


def test_nonsense_is_no_rate_and_nothing_measured_is_a_problem() -> None:
    run = child(rate("matmul_tflops", "fast"), rate("memory_gbs", -1), rate("unheard", 1.0))
    with pytest.raises(ProblemError) as caught:
        rates.measure(run=run)
    assert caught.value.problem.exit_code == 6
    with pytest.raises(ProblemError, match="No module named 'torch'"):
        rates.measure(run=child(err="Traceback\nNo module named 'torch'\n"))


def test_what_was_remembered_comes_back_in_the_facts() -> None:
    assert rates.with_remembered(machine()) == machine()
    rates.remember(rates.machine_key(machine()), MEASURED)
    found = rates.with_remembered(machine())
    assert found.measured == MEASURED
    for device in found.devices:
        assert (device.memory_bandwidth_gbs, device.bf16_tflops) == (1402.0, 251.3)
        assert device.sources == {"memory_bandwidth_gbs": "measured", "bf16_tflops": "measured"}


def test_what_a_test_of_the_links_has_shown_is_known_to_later_plans() -> None:
    devices = machine().devices
    link = Link(devices=(0, 1), kind="pcie-switch", gbs=31.5, peer_access=True, source="nvml")
    hangs = replace(link, gbs=11.0, peer_access=False, why="hangs", source="measured")
    rates.remember_links(rates.machine_key(machine()), devices, (hangs,))
    found = rates.with_remembered(replace(machine(), links=(link,)))
    assert found.links == (hangs,)
    turned = replace(machine(), devices=devices[::-1], links=(link,))
    assert rates.with_remembered(turned).links == (hangs,)
    others = cards(4, A100, (8, 0))[2:]
    assert rates.with_remembered(replace(machine(), devices=others, links=(link,))).links == (link,)


def test_links_that_nobody_tested_are_not_kept() -> None:
    link = Link(devices=(0, 1), kind="pcie-switch", gbs=31.5, source="nvml")
    path = rates.remember_links("here", machine().devices, (link,))
    assert json.loads(path.read_text()) == {"schema": 1, "links": []}


@pytest.mark.parametrize("links", [None, 3, [3], [{}], [{"devices": ["a", "b"], "gbs": "fast"}]])
def test_kept_links_that_make_no_sense_are_nothing_kept(links: object) -> None:
    path = rates.remember_links(rates.machine_key(machine()), machine().devices, ())
    path.write_text(json.dumps({"schema": 1, "links": links}))
    link = Link(devices=(0, 1), kind="nvlink", gbs=300.0)
    assert rates.with_remembered(replace(machine(), links=(link,))).links == (link,)


def test_another_machine_remembers_nothing() -> None:
    rates.remember(rates.machine_key(machine()), MEASURED)
    others = (
        replace(machine(), host=replace(machine().host, hostname="../other")),
        replace(machine(), host=replace(machine().host, cpu_cores=8)),
        replace(machine(), devices=cards(2, RTX3090, (8, 6))),
    )
    assert [rates.with_remembered(other).measured for other in others] == [None, None, None]
    keys = {rates.machine_key(other) for other in others}
    assert all("/" not in key and not key.startswith(".") for key in keys)


def test_hiding_one_of_equal_devices_changes_nothing() -> None:
    one = replace(machine(), devices=machine().devices[:1])
    assert rates.machine_key(one) == rates.machine_key(machine())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"schema": 2, "when": "x", "device": "d"}',
        '{"schema": 1, "when": 3, "device": "d"}',
        '{"schema": 1, "when": "x", "device": "d", "memory_gbs": "fast"}',
        '{"schema": 1, "when": "x", "device": "d", "memory_gbs": 0}',
        '{"schema": 1, "when": "x", "device": "d", "memory_gbs": NaN}',
    ],
)
def test_a_file_that_makes_no_sense_is_nothing_remembered(text: str) -> None:
    path = rates.remember("here", MEASURED)
    assert rates.remembered("here") == MEASURED
    path.write_text(text)
    assert rates.remembered("here") is None


def test_remembering_replaces_the_file_whole() -> None:
    first = rates.remember("here", MEASURED)
    second = rates.remember("here", replace(MEASURED, memory_gbs=1500.0))
    assert first == second == paths.home() / "measured" / "here.json"
    assert [path.name for path in first.parent.iterdir()] == ["here.json"]
    assert rates.remembered("here") == replace(MEASURED, memory_gbs=1500.0)


def test_a_home_that_cannot_be_written_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(tmp_path / "file"))
    with pytest.raises(ProblemError, match="cannot be kept"):
        rates.remember("here", MEASURED)


def test_rates_of_one_device_are_not_taken_for_those_of_another() -> None:
    mixed = facts((*cards(1, A100, (8, 0)), *cards(1, RTX3090, (8, 6))))
    first, second = rates.with_measured(mixed, MEASURED).devices
    assert first.bf16_tflops == 251.3
    assert second.bf16_tflops is None


def test_rates_of_the_processor_are_not_those_of_a_card_that_torch_does_not_see() -> None:
    measured = replace(MEASURED, device="cpu")
    assert rates.with_measured(machine(), measured).devices == machine().devices
    cpu = facts((Device(kind="cpu", index=0, name="EPYC"),))
    assert rates.with_measured(cpu, measured).devices[0].bf16_tflops == 251.3


def test_writing_is_measured_on_the_named_disk_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "PART_SECONDS", 0.05)
    monkeypatch.setattr(bench, "BLOCK_BYTES", 1024**2)
    rate, what = bench.disk_write(tmp_path)
    assert rate > 0
    assert what.endswith("MiB, synchronised")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.engine
def test_this_machine_is_measured_for_real_in_twenty_seconds() -> None:
    said: list[str] = []
    measured = rates.measure(said.append)
    assert measured.device == "cpu"
    assert measured.matmul_tflops is not None
    assert measured.host_to_device_gbs is None
    # On a busy machine the last ones may find no time; then that is said.
    of_name = {"memory": measured.memory_gbs, "disk write": measured.disk_write_gbs}
    for name, value in of_name.items():
        assert value is not None or any(f"{name}: not measured" in text for text in said)
