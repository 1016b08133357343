"""What holds for every plan: nothing refused is recommended, and more of a thing never harms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import rules
from engine.spec import Spec
from tests.planning import CARDS, cards, facts, model
from wizard.answers import Answers
from wizard.facts import GIB, Facts
from wizard.plan import Plan
from wizard.planner import plans, sizing
from wizard.planner.budgets import Budget
from wizard.planner.memory import estimate
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.sizing import first_of
from wizard.planner.tape.bounds import at_least
from wizard.planner.tape.sharding import share
from wizard.planner.tape.simulation import simulate
from wizard.planner.tape.states import states

SHARED = ("zero1", "zero2", "zero3", "fsdp")
GOALS = st.sampled_from(["quality", "fastest", "least-memory", "fewest-devices"])


def machine(card: tuple[int, int], host_gib: int = 512) -> Facts:
    known = facts("h100x8")
    host = replace(known.host, memory_available_bytes=host_gib * GIB, disk_free_bytes=10**13)
    return replace(known, devices=cards(*card), host=host)


def changed(spec: Spec, **values: object) -> Spec:
    parallel = spec.parallel.model_copy(update=values)
    return spec.model_copy(update={"parallel": parallel})


def key(plan: Plan) -> tuple[object, ...]:
    parallel = plan.spec.parallel
    return (plan.spec.method.method, parallel.strategy, parallel.offload, parallel.offload_device)


@settings(max_examples=6, deadline=None)
@given(card=CARDS, goal=GOALS, rows=st.sampled_from([40, 5000, 200_000]))
def test_neither_a_plan_nor_a_rung_is_one_that_the_trainer_refuses(
    card: tuple[int, int], goal: str, rows: int
) -> None:
    known = replace(machine(card), dataset=facts(rows=rows).dataset)
    for plan in plans(known, Answers(goal=goal)):  # type: ignore[arg-type]
        assert rules.check(plan.spec) == ()
        assert all(decision.reason for decision in plan.decisions)
        assert plan.fits or plan.memory.over_bytes > 0 or plan.problems
        sizes = {plan.spec.training.effective_batch_size}
        for number, rung in enumerate(plan.rungs):
            assert rules.check(rung) == ()
            sizes.add(rung.training.effective_batch_size)
            exact = rung.parallel == plan.spec.parallel
            exact = exact and rung.training.optim == plan.spec.training.optim
            assert exact == (number < plan.exact_rungs)
        assert len(sizes) == 1


@pytest.mark.parametrize("goal", ["quality", "least-memory"])
def test_sizes_are_searched_for_without_a_look_at_the_schedule(
    goal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without(search: sizing.Sizing, spec: Spec) -> sizing.Sizes:
        for name in sizing.SCHEDULE:
            del spec.training.__dict__[name]  # to read one is an AttributeError
        return search.search(spec)

    known, answers = machine((24, 4)), Answers(goal=goal)  # type: ignore[arg-type]
    found = plans(known, answers)
    monkeypatch.setattr(sizing, "_chosen", without)
    assert plans(known, answers) == found


@settings(max_examples=6, deadline=None)
@given(card=CARDS, more=st.integers(1, 100), host=st.integers(16, 2048))
def test_what_fits_fits_on_a_larger_machine_as_well(
    card: tuple[int, int], more: int, host: int
) -> None:
    for plan in plans(machine(card, host), Answers()):
        if not plan.fits:
            continue
        memory = plan.memory
        assert memory.device_budget_bytes is not None
        assert memory.host_budget_bytes is not None
        larger = Budget(
            device_bytes=memory.device_budget_bytes + more * GIB,
            host_bytes=memory.host_budget_bytes + more * GIB,
        )
        assert estimate(plan.spec, model(), larger).fits


@settings(max_examples=3, deadline=None)
@given(card=CARDS, goal=GOALS)
def test_the_same_question_has_the_same_answer(card: tuple[int, int], goal: str) -> None:
    answers = Answers(goal=goal)  # type: ignore[arg-type]
    first, second = (plans(machine(card), answers) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("strategy", SHARED)
def test_more_ranks_never_hold_more_states_each(method: str, strategy: str) -> None:
    asked = Answers(settings={"method": method, "strategy": strategy})
    spec = plans(machine((80, 8)), asked)[0].spec
    held = []
    for devices in (2, 3, 4, 8, 64):
        shape = shape_of(model())
        assert shape is not None
        setup = setup_of(changed(spec, num_devices=devices), model(), shape)
        assert setup is not None
        one = share(setup, states(setup))
        held.append(one.weights + one.adapter + one.optimizer + one.last + one.step)
    assert held == sorted(held, reverse=True)


@pytest.mark.parametrize("offload", ["none", "parameters"])
@pytest.mark.parametrize("strategy", ["zero3", "fsdp"])
def test_a_bound_is_never_above_the_step_it_bounds(strategy: str, offload: str) -> None:
    asked = Answers(settings={"method": "full", "strategy": strategy, "offload": offload})
    spec = plans(machine((80, 8)), asked)[0].spec
    shape = shape_of(model())
    assert shape is not None
    for devices in (2, 8, 16):
        setup = setup_of(changed(spec, num_devices=devices), model(), shape)
        assert setup is not None
        assert at_least(setup) <= simulate(setup).allocated_peak_bytes


def test_a_way_out_that_is_offered_is_one() -> None:
    """A larger device, as offered, is enough; where a bound was given, it is not too large."""
    for plan in plans(machine((24, 2), host_gib=64), Answers()):
        if plan.fits or plan.memory.at_least or plan.memory.over_where != "per rank":
            continue
        size = next(way for way in plan.would_fit if way.startswith("devices of"))
        gib = int(size.removeprefix("devices of ").removesuffix(" GiB"))
        budget = Budget(device_bytes=round(gib * GIB * 0.92), host_bytes=None)
        assert estimate(plan.spec, model(), budget).fits


def test_splitting_a_model_over_more_devices_leaves_less_on_each() -> None:
    asked = Answers(settings={"method": "qlora", "strategy": "layer_split"})
    spec = plans(machine((24, 4)), asked)[0].spec
    budget = Budget(device_bytes=None, host_bytes=None)
    sizes = [
        estimate(changed(spec, num_devices=n, devices_per_rank=n), model(), budget).device_bytes
        for n in (2, 3, 4, 8)
    ]
    assert sizes == sorted(sizes, reverse=True)


@given(length=st.integers(0, 60), first=st.integers(0, 60))
def test_the_first_size_that_fits_is_found_wherever_it_is(length: int, first: int) -> None:
    sizes = list(range(length))
    assert first_of(sizes, lambda size: size >= first) == min(first, length)
