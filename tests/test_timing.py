"""Plans say how long a step takes where the rates are known, and the fastest comes first."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.test_planner import facts
from wizard.answers import Answers
from wizard.facts import Facts, Link
from wizard.planner import plans
from wizard.planner.ranking import SAME_TIME


def rated(gbs: float | None = 450.0) -> Facts:
    """Eight H100 with their rates, linked with each other."""
    plain = facts("h100x8")
    devices = tuple(
        replace(device, bf16_tflops=989.0, memory_bandwidth_gbs=3350.0, compute_capability=(9, 0))
        if device.kind == "cuda"
        else device
        for device in plain.devices
    )
    places = [place for place, device in enumerate(devices) if device.kind == "cuda"]
    links = tuple(
        Link(devices=(a, b), kind="nvswitch", gbs=gbs) for a in places for b in places if a < b
    )
    return replace(plain, devices=devices, links=links)


def test_the_fastest_goal_puts_the_quickest_step_first() -> None:
    fitting = [plan for plan in plans(rated(), Answers(goal="fastest")) if plan.fits]
    seconds = [plan.step_seconds for plan in fitting]
    assert len(fitting) > 2
    assert all(seconds)
    quickest = min(value for value in seconds if value)
    assert (seconds[0] or 0) <= quickest * (1 + SAME_TIME)
    for earlier, later in itertools.pairwise(value for value in seconds if value):
        assert earlier <= later * (1 + SAME_TIME)
    assert all(plan.limited_by for plan in fitting)


def test_tokens_count_those_of_all_ranks() -> None:
    best = plans(rated(), Answers(goal="fastest"))[0]
    assert best.step_seconds is not None
    assert best.tokens_per_second is not None
    training, ranks = best.spec.training, best.spec.parallel.num_devices
    rows = training.per_device_train_batch_size * training.gradient_accumulation_steps * ranks
    tokens = rows * best.spec.data.max_length
    assert best.tokens_per_second == pytest.approx(tokens / best.step_seconds)


def test_a_slower_link_makes_sharding_slower_and_one_device_no_slower() -> None:
    def times(gbs: float) -> dict[str, float]:
        found = plans(rated(gbs), Answers(settings={"per_device_train_batch_size": 1}))
        return {plan.title: plan.step_seconds for plan in found if plan.step_seconds}

    fast, slow = times(450.0), times(5.0)
    assert any("ZeRO-3" in title and slow[title] > fast[title] for title in fast)
    single = [title for title in fast if "device" not in title]
    assert all(slow[title] == fast[title] for title in single)


@pytest.mark.parametrize("machine", ["h100x8", "cpu"])
def test_where_rates_are_unknown_no_plan_has_a_time(machine: str) -> None:
    name = "HuggingFaceTB/SmolLM2-135M" if machine == "cpu" else "Qwen/Qwen3-8B"
    for plan in plans(facts(machine, name), Answers()):
        assert plan.step_seconds is None
        assert plan.tokens_per_second is None
        assert plan.limited_by == ""


def test_an_unknown_link_leaves_only_single_devices_with_a_time() -> None:
    timed = {
        plan.spec.parallel.num_devices
        for plan in plans(rated(None), Answers())
        if plan.step_seconds is not None
    }
    assert timed <= {1}
