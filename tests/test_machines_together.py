"""Some machines that are alike: what is between them decides whether they are used together."""

from __future__ import annotations

import pytest

from tests.test_paper_cases import QWEN_7B, known
from wizard.answers import Answers
from wizard.machines import bandwidth_gbs, several
from wizard.plan import Plan
from wizard.planner import plans
from wizard.probe.machine import find
from wizard.problem import ProblemError


def planned(network: str | None, **settings: object) -> tuple[Plan, ...]:
    machine = known(find("8xH100-SXM"), QWEN_7B)
    together = several(machine, 2, network_gbs=bandwidth_gbs(network))
    return plans(together, Answers(settings=settings))


@pytest.mark.parametrize(
    ("text", "gbs"), [("100Gbps", 12.5), ("400 gbit/s", 50.0), ("12.5GB/s", 12.5), (None, None)]
)
def test_bandwidth_is_read_in_bits_and_in_bytes(text: str | None, gbs: float | None) -> None:
    assert bandwidth_gbs(text) == gbs


@pytest.mark.parametrize("text", ["", "fast", "100", "0Gbps", "-1Gbps", "100Gbps; rm"])
def test_what_is_no_bandwidth_is_refused(text: str) -> None:
    with pytest.raises(ProblemError, match="no bandwidth of a network"):
        bandwidth_gbs(text)


def test_a_fast_network_joins_the_machines_and_a_slow_one_leaves_one_out() -> None:
    fast, slow = planned("3200Gbps", method="full"), planned("1Gbps", method="full")
    assert fast[0].spec.parallel.num_devices == 16
    assert slow[0].spec.parallel.num_devices == 8
    for plan in (*fast, *slow):
        training, parallel = plan.spec.training, plan.spec.parallel
        rows = training.per_device_train_batch_size * training.gradient_accumulation_steps
        assert rows * parallel.ranks == training.effective_batch_size
        assert parallel.devices_per_rank <= 8
        assert parallel.num_devices <= 8 or parallel.num_devices % 2 == 0


def test_what_a_slow_network_costs_is_in_the_time() -> None:
    def seconds(network: str | None) -> float | None:
        wanted = {"method": "full", "strategy": "zero3", "offload": "none", "num_devices": 16}
        return planned(network, **wanted)[0].step_seconds

    fast, slow = seconds("3200Gbps"), seconds("10Gbps")
    assert fast is not None
    assert slow is not None
    assert slow > 3 * fast
    assert seconds(None) is None
