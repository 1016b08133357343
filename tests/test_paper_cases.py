"""Machines and models everyone knows, each with the decision an expert would expect."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from tests.planning import facts
from wizard.answers import Answers
from wizard.facts import GIB, Disk, Facts, TorchView
from wizard.plan import Plan
from wizard.planner import plans
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.tape import device
from wizard.probe.composed import compose
from wizard.probe.machine import find

LLAMA_8B, LLAMA_70B = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B"
QWEN_7B = "Qwen/Qwen2.5-7B"


def known(machine: Facts, name: str, *, host_gib: int = 512, disk_gib: int = 8000) -> Facts:
    """The machine with a model, rows of about 1,600 tokens, and a host of a known size."""
    base = facts("h100x8", name)
    host = replace(
        machine.host,
        memory_total_bytes=host_gib * GIB,
        memory_available_bytes=host_gib * GIB,
        disk_free_bytes=disk_gib * GIB,
    )
    return replace(machine, model=base.model, dataset=base.dataset, host=host)


def planned(machine: Facts, **settings: Any) -> tuple[Plan, ...]:
    return plans(machine, Answers(settings=settings))


def way(plan: Plan) -> tuple[str, str, str]:
    return plan.spec.method.method, plan.spec.parallel.strategy, plan.spec.parallel.offload


def test_one_card_of_24_gib_tunes_7b_by_lora_and_by_qlora_once_rows_are_long() -> None:
    machine = known(find("1x NVIDIA GeForce RTX 4090"), QWEN_7B, host_gib=64)
    short, long = planned(machine)[0], planned(machine, max_length=16384)[0]
    assert way(short) == ("lora", "single", "none")
    assert way(long) == ("qlora", "single", "none")
    for plan, other, why in (
        (
            short,
            "qlora",
            r"not needed: without it 1\d\.\d GiB of 22\.1 GiB a rank may use",
        ),
        (long, "lora", r"\d\.\d GiB too large per rank"),
    ):
        (method,) = [d for d in plan.decisions if d.setting == "method"]
        (alternative,) = method.alternatives
        assert alternative.value == other
        assert re.fullmatch(why, alternative.why_not)
    full = [plan for plan in planned(machine) if plan.spec.method.method == "full"]
    assert full
    assert not any(plan.fits for plan in full)
    assert all(plan.would_fit for plan in full)


def test_what_others_hold_of_a_card_of_24_gib_makes_8b_of_long_rows_qlora() -> None:
    machine = known(find("1x NVIDIA GeForce RTX 4090"), LLAMA_8B, host_gib=64)
    (card,) = machine.devices
    assert card.memory_total_bytes is not None
    held = replace(card, memory_free_bytes=card.memory_total_bytes - 3 * GIB)
    alone = planned(machine, max_length=8192)[0]
    beside = planned(replace(machine, devices=(held,)), max_length=8192)[0]
    assert (way(alone)[0], way(beside)[0]) == ("lora", "qlora")
    assert alone.fits
    assert beside.fits
    assert beside.memory.device_budget_bytes == held.memory_free_bytes


@pytest.mark.wide
def test_what_is_recommended_on_a_card_of_24_gib_fits_by_the_upper_bound_too() -> None:
    for name in (QWEN_7B, LLAMA_8B):
        machine = known(find("1x NVIDIA GeForce RTX 4090"), name, host_gib=64)
        assert machine.model is not None
        shape, total = shape_of(machine.model), machine.devices[0].memory_total_bytes
        assert shape is not None
        assert total is not None
        for length in (1024, 8192):
            best = planned(machine, max_length=length)[0]
            setup = setup_of(best.spec, machine.model, shape)
            assert setup is not None
            assert device(setup).high < 0.95 * total


def test_8b_on_a_card_of_16_gib_is_qlora() -> None:
    machine = known(find("1x NVIDIA GeForce RTX 4080"), LLAMA_8B, host_gib=64)
    assert way(planned(machine)[0]) == ("qlora", "single", "none")


def test_full_tuning_of_7b_over_a_switch_shares_states_and_moves_nothing_away() -> None:
    best = planned(known(find("8xH100-SXM"), QWEN_7B), method="full")[0]
    assert best.fits
    assert best.spec.parallel.strategy in ("zero2", "fsdp")
    assert best.spec.parallel.offload == "none"


def test_two_cards_without_peer_access_hold_copies_rather_than_gather_over_the_bus() -> None:
    machine = known(find("2x NVIDIA GeForce RTX 4090"), LLAMA_8B, host_gib=128)
    assert all(link.peer_access is False for link in machine.links)
    best = planned(machine)[0]
    assert best.spec.method.method in ("lora", "qlora")
    assert best.spec.parallel.strategy == "ddp"


def test_full_tuning_of_70b_on_eight_of_80_gib_moves_only_the_optimizer_away() -> None:
    machine = known(find("8xH100-SXM"), LLAMA_70B, host_gib=2000)
    found = planned(machine, method="full")
    assert way(found[0]) == ("full", "zero3", "optimizer")
    stays = [plan for plan in found if plan.spec.parallel.offload == "none"]
    assert {"zero2", "zero3", "fsdp"} <= {plan.spec.parallel.strategy for plan in stays}
    assert all(plan.memory.over_where == "per rank" and not plan.fits for plan in stays)
    larger = replace(
        machine,
        devices=tuple(replace(d, memory_total_bytes=192 * GIB) for d in machine.devices),
    )
    best = planned(larger, method="full")[0]
    assert best.spec.parallel.strategy in ("zero3", "fsdp")
    assert best.spec.parallel.offload == "none"


def test_70b_on_four_of_24_gib_splits_layers_because_each_rank_of_fsdp_loads_all_of_it() -> None:
    machine = known(find("4x NVIDIA GeForce RTX 4090"), LLAMA_70B, host_gib=128)
    found = planned(machine)
    assert way(found[0]) == ("qlora", "layer_split", "none")
    sharded = next(plan for plan in found if way(plan) == ("qlora", "fsdp", "none"))
    assert not sharded.fits
    assert sharded.memory.moment == "loading"


def test_70b_on_four_of_48_gib_is_qlora_by_fsdp() -> None:
    machine = known(find("4x NVIDIA L40S"), LLAMA_70B, host_gib=256)
    assert way(planned(machine)[0])[0] == "qlora"
    sharded = next(p for p in planned(machine) if way(p) == ("qlora", "fsdp", "none"))
    assert sharded.fits


def test_two_cards_of_different_kinds_use_the_stronger_and_say_why() -> None:
    strong, weak = compose(1, "NVIDIA GeForce RTX 4090"), compose(1, "NVIDIA GeForce RTX 3060")
    second = replace(weak.devices[0], index=1)
    machine = replace(strong, devices=(strong.devices[0], second), links=())
    best = planned(known(machine, LLAMA_8B))[0]
    assert best.spec.parallel.num_devices == 1
    reason = {d.setting: d.reason for d in best.decisions}["device_kind"]
    assert reason.startswith("1 × NVIDIA GeForce RTX 4090")
    assert "NVIDIA GeForce RTX 3060 (12.0 GiB)" in reason
    assert "wait for the slower one" in reason


def test_one_strong_card_is_taken_before_two_weak_ones() -> None:
    strong, weak = compose(1, "NVIDIA GeForce RTX 4090"), compose(2, "NVIDIA GeForce RTX 3060")
    others = tuple(replace(device, index=n) for n, device in enumerate(weak.devices, start=1))
    machine = replace(strong, devices=(*strong.devices, *others), links=())
    best = planned(known(machine, LLAMA_8B))[0]
    assert {d.value for d in best.decisions if d.setting == "num_devices"} == {1}
    assert "4090" in {d.setting: d.reason for d in best.decisions}["device_kind"]


def test_eight_npus_share_the_rows() -> None:
    best = planned(known(find("8xAscend910B3"), QWEN_7B))[0]
    assert way(best) == ("lora", "ddp", "none")
    assert best.spec.parallel.device_kind == "npu"
    assert best.spec.parallel.num_devices == 8


def test_memory_shared_with_the_host_is_never_offloaded_to_it() -> None:
    machine = find("DGX-Spark")
    base = facts("h100x8")
    here = replace(machine, model=base.model, dataset=base.dataset)
    for goal in ("quality", "least-memory"):
        found = plans(here, Answers(goal=goal))
        assert found[0].fits
        assert all(plan.spec.parallel.offload == "none" for plan in found)
        assert all(rung.parallel.offload == "none" for plan in found for rung in plan.rungs)
        budget = found[0].memory.device_budget_bytes
        assert budget is not None
        assert budget < (machine.host.memory_available_bytes or 0)


def test_without_a_device_the_cpu_trains_a_small_model() -> None:
    best = plans(facts("cpu", "HuggingFaceTB/SmolLM2-135M"), Answers())[0]
    assert best.fits
    assert best.spec.parallel.device_kind == "cpu"


def test_a_small_host_forbids_offload_and_a_large_one_does_not() -> None:
    machine = find("8xH100-SXM")
    small = planned(known(machine, LLAMA_70B, host_gib=256), method="full")
    assert not any(plan.fits for plan in small)
    moved = [plan for plan in small if plan.spec.parallel.offload != "none"]
    assert any(plan.memory.over_where == "in host memory" for plan in moved)
    assert any("of free host memory" in way for plan in moved for way in plan.would_fit)
    large = planned(known(machine, LLAMA_70B, host_gib=2000), method="full")
    assert large[0].fits


def test_what_the_host_would_step_needs_an_optimizer_that_can_be_built_there() -> None:
    machine = known(find("8xH100-SXM"), LLAMA_70B, host_gib=2000)
    without = replace(machine.software, cpu_adam_lacks=("a C++ compiler",))
    best = planned(replace(machine, software=without), method="full")[0]
    assert way(best) == ("full", "fsdp", "parameters")
    refused = planned(replace(machine, software=without), method="full", strategy="zero3")
    moved = [plan for plan in refused if plan.spec.parallel.offload != "none"]
    assert moved
    for plan in moved:
        assert not plan.fits
        assert any("a C++ compiler missing" in problem.what for problem in plan.problems)


def test_where_4_bit_layers_do_not_run_nothing_recommends_them() -> None:
    machine = known(find("1x NVIDIA GeForce RTX 4080"), LLAMA_8B, host_gib=64)
    view = TorchView(version="2.13.0", bnb_4bit=False, bnb_error="no kernel image")
    found = planned(replace(machine, torch=view))
    tried = [plan for plan in found if plan.spec.method.method == "qlora"]
    assert tried
    assert not any(plan.fits for plan in tried)
    assert all("no kernel image" in str(plan.problems[0]) for plan in tried)


def test_a_fast_disk_takes_what_a_small_host_does_not() -> None:
    small = known(find("8xH100-SXM"), LLAMA_70B, host_gib=256)
    disk = Disk(
        path="/", free_bytes=8000 * GIB, total_bytes=9000 * GIB, speed="nvme", used_for=("runs",)
    )
    around = replace(small.host.surroundings, disks=(disk,))
    host = replace(small.host, surroundings=around, disk_path="/runs")
    best = planned(replace(small, host=host), method="full")[0]
    assert best.fits
    assert best.spec.parallel.offload_device == "nvme"
    assert best.spec.parallel.nvme_path == "/runs"
    assert best.memory.host_bytes < 256 * GIB
    assert best.memory.disk_bytes > 3000 * GIB
    assert "against: a disk is far slower than any memory" in best.why
    slow = replace(host, surroundings=replace(around, disks=(replace(disk, speed="hdd"),)))
    assert not any(plan.fits for plan in planned(replace(small, host=slow), method="full"))


def test_checkpoints_that_the_disk_does_not_hold_are_kept_one_by_one_or_refused() -> None:
    machine = find("8xH100-SXM")

    def kept(disk_gib: int) -> tuple[int, bool, str]:
        best = planned(known(machine, LLAMA_8B, disk_gib=disk_gib), method="full")[0]
        return best.spec.training.save_total_limit, best.fits, best.memory.over_where

    assert kept(1000) == (2, True, "per rank")
    assert kept(60)[1:] == (False, "on disk")
    assert any(kept(size)[:2] == (1, True) for size in range(220, 400, 20))


@pytest.mark.parametrize("goal", ["quality", "fastest", "least-memory", "fewest-devices"])
def test_each_goal_puts_first_what_it_asks_for(goal: str) -> None:
    found = plans(known(find("8xH100-SXM"), LLAMA_8B), Answers(goal=goal))  # type: ignore[arg-type]
    fitting = [plan for plan in found if plan.fits]
    best = fitting[0]
    if goal == "fastest":
        quickest = min(plan.step_seconds or 0 for plan in fitting)
        assert (best.step_seconds or 0) <= 1.12 * quickest
    elif goal == "least-memory":
        assert best.memory.device_bytes == min(plan.memory.device_bytes for plan in fitting)
        assert best.memory.device_bytes < 8 * GIB
    elif goal == "fewest-devices":
        assert best.spec.parallel.num_devices == 1
    else:
        assert way(best) == ("lora", "ddp", "none")
        assert best.spec.parallel.num_devices == 8


def test_the_fewest_devices_are_as_many_as_it_takes() -> None:
    machine = known(find("8xH100-SXM"), LLAMA_8B)
    found = plans(machine, Answers(goal="fewest-devices", settings={"strategy": "fsdp"}))
    full = next(plan for plan in found if plan.spec.method.method == "full")
    assert full.fits
    assert full.spec.parallel.num_devices == 2
