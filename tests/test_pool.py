"""Which devices a plan may use, and what it says of those it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import machines
from wizard.answers import Answers
from wizard.facts import Dataset, Device, Facts
from wizard.planner import plans
from wizard.probe.model import read_model
from wizard.problem import ProblemError

DATA = Dataset(path="/d.jsonl", format="messages", rows=400, longest_row_chars=2000)


def with_devices(kind: str, count: int, **values: object) -> Facts:
    device = Device(kind=kind, index=0, memory_total_bytes=64 << 30, bf16_native=True, **values)  # type: ignore[arg-type]
    return replace(
        machines.machine("cpu"),
        devices=tuple(replace(device, index=index) for index in range(count)),
        model=read_model("Qwen/Qwen2.5-0.5B"),
        dataset=DATA,
    )


@pytest.mark.parametrize("kind", ["xpu", "mps"])
def test_devices_the_engine_cannot_drive_are_said_never_a_silent_cpu_plan(kind: str) -> None:
    facts = with_devices(kind, 1, name="Some card")
    with pytest.raises(ProblemError) as raised:
        plans(facts, Answers())
    problem = raised.value.problem
    assert "Some card is recognised but not yet trained on" in problem.what
    assert "device_kind=cpu" in problem.fix
    assert problem.exit_code == 6


def test_beside_such_devices_the_cpu_trains_when_it_is_asked_to() -> None:
    found = plans(with_devices("mps", 1, name="Apple M3"), Answers(settings={"device_kind": "cpu"}))
    assert found[0].spec.parallel.device_kind == "cpu"


def test_rocm_devices_train_through_the_interface_of_cuda_and_are_numbered() -> None:
    facts = with_devices("rocm", 2, name="AMD Instinct MI300X", uuid="GPU-9a3c51f0b7d24e00")
    best = plans(facts, Answers())[0]
    assert best.spec.parallel.device_kind == "cuda"
    assert best.spec.parallel.devices == ("0", "1")


def test_the_npus_that_were_named_are_the_ones_the_run_asks_for() -> None:
    best = plans(with_devices("npu", 4, name="Ascend910B3"), Answers(devices=(2, 3)))[0]
    assert best.spec.parallel.device_kind == "npu"
    assert best.spec.parallel.devices == ("2", "3")
