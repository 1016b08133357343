"""Plans say how long a step takes where the rates are known, and the fastest comes first."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.planning import facts
from wizard.answers import Answers
from wizard.facts import Facts, Link, Measured
from wizard.planner import plans
from wizard.planner.ranking import SAME_TIME
from wizard.planner.timing import usual_length


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


def with_lengths(known: Facts, average_chars: int, longest_chars: int) -> Facts:
    """Rows whose average and longest length are known."""
    assert known.dataset is not None
    data = replace(
        known.dataset,
        total_chars=average_chars * known.dataset.rows,
        longest_row_chars=longest_chars,
    )
    return replace(known, dataset=data)


def test_a_run_of_short_rows_takes_less_than_its_steps_of_the_longest() -> None:
    short, long = (plans(with_lengths(rated(), n, 3000), Answers())[0] for n in (300, 3000))
    assert short.step_seconds == long.step_seconds
    assert short.run_seconds is not None
    assert long.run_seconds is not None
    assert long.steps is not None
    assert short.run_seconds < long.run_seconds
    assert long.run_seconds == pytest.approx(long.steps * (long.step_seconds or 0), rel=0.1)


def test_rows_that_meet_in_a_micro_batch_are_padded_towards_the_longest() -> None:
    known = with_lengths(rated(), 300, 3000)
    assert known.dataset is not None
    spec = plans(known, Answers(settings={"per_device_train_batch_size": 1}))[0].spec
    sizes = []
    for micro in (1, 2, 4):
        training = spec.training.model_copy(update={"per_device_train_batch_size": micro})
        changed = spec.model_copy(update={"training": training})
        sizes.append(usual_length(changed, known.dataset))
    assert sizes == sorted(set(sizes))
    assert sizes[-1] <= spec.data.max_length


def test_terms_sum_to_the_step_and_the_largest_limits_it() -> None:
    for plan in plans(rated(), Answers()):
        if plan.step_seconds is not None:
            assert sum(value for _, value in plan.step_terms) == pytest.approx(plan.step_seconds)
            assert dict(plan.step_terms)[plan.limited_by] == max(dict(plan.step_terms).values())


def test_energy_and_cost_follow_from_the_time_and_the_devices() -> None:
    capped = rated()
    devices = tuple(
        replace(device, readings=replace(device.readings, power_cap_w=700.0))
        for device in capped.devices
    )
    best = plans(replace(capped, devices=devices), Answers(price_per_hour=2.5))[0]
    assert best.run_seconds is not None
    hours = best.run_seconds / 3600 * best.spec.parallel.num_devices
    assert best.energy_kwh == pytest.approx(hours * 0.7)
    assert best.cost == pytest.approx(hours * 2.5)
    unknown = plans(capped, Answers())[0]
    assert (unknown.energy_kwh, unknown.cost) == (None, None)


def test_measured_rates_replace_the_tables_for_the_device_they_are_of() -> None:
    plain = plans(rated(), Answers())[0]
    slow = Measured(when="now", device="NVIDIA H100 80GB HBM3", matmul_tflops=50.0, memory_gbs=500)
    other = replace(slow, device="NVIDIA GeForce RTX 3060")
    assert plain.step_seconds is not None
    measured = plans(replace(rated(), measured=slow), Answers())[0]
    assert (measured.step_seconds or 0) > 2 * plain.step_seconds
    assert plans(replace(rated(), measured=other), Answers())[0] == plain


def test_without_peer_access_a_collective_takes_longer() -> None:
    def sharded(peer: bool) -> float:
        links = tuple(
            replace(link, peer_access=peer, kind="host-bridge") for link in rated(20.0).links
        )
        asked = Answers(settings={"strategy": "zero3", "method": "full"})
        return plans(replace(rated(20.0), links=links), asked)[0].step_seconds or 0

    assert sharded(peer=False) > sharded(peer=True) > 0


def test_a_mesh_of_links_carries_more_than_one_of_them() -> None:
    def seconds(kind: str) -> float:
        links = tuple(replace(link, kind=kind, gbs=20.0) for link in rated().links)  # type: ignore[arg-type]
        asked = Answers(settings={"strategy": "zero3", "method": "full"})
        return plans(replace(rated(), links=links), asked)[0].step_seconds or 0

    assert 0 < seconds("xgmi") < seconds("nvswitch")


def two_islands(across_gbs: float) -> Facts:
    """Eight H100 in two islands of four, with a slow bus between them."""
    known = rated()
    places = [place for place, device in enumerate(known.devices) if device.kind == "cuda"]
    links = []
    for first in places:
        for second in places[first + 1 :]:
            near = first // 4 == second // 4
            kind, gbs = ("nvswitch", 450.0) if near else ("host-bridge", across_gbs)
            links.append(Link(devices=(first, second), kind=kind, gbs=gbs))  # type: ignore[arg-type]
    return replace(known, links=tuple(links))


@pytest.mark.parametrize(("across_gbs", "devices"), [(2.0, 4), (400.0, 8)])
def test_a_slow_bus_between_islands_keeps_what_travels_inside_one(
    across_gbs: float, devices: int
) -> None:
    asked = {"method": "full", "strategy": "fsdp"}
    known = two_islands(across_gbs)
    best = plans(known, Answers(settings=asked))[0]
    assert best.spec.parallel.num_devices == devices
    uuids = [device.uuid for device in known.devices]
    places = {uuids.index(uuid) // 4 for uuid in best.spec.parallel.devices}
    assert len(places) == devices // 4
    for count in (4, 8):
        fixed = plans(known, Answers(settings={**asked, "num_devices": count}))[0]
        assert (best.step_seconds or 0) <= (fixed.step_seconds or 0) * (1 + SAME_TIME)
