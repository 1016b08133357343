"""The simulated step inside a plan: what it is told, how it is shown, and where it stands aside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.spec import Spec
from tests.planning import facts, fixed, model
from wizard.facts import GIB
from wizard.plan import Memory
from wizard.planner import plans
from wizard.planner.budgets import Budget
from wizard.planner.memory import estimate, fits
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.tape import reserve, simulate

ANY = Budget(device_bytes=None, host_bytes=None)


def spec(method: str = "lora", strategy: str = "single", **training: Any) -> Spec:
    made = plans(facts("h100x8"), fixed(method=method, strategy=strategy))[0].spec
    table = made.training.model_copy(update=training)
    return made.model_copy(update={"training": table})


def part(memory: Memory, name: str) -> int:
    return next(part.bytes for part in memory.parts if part.name == name)


@pytest.mark.parametrize(
    ("method", "strategy"),
    [("full", "single"), ("lora", "ddp"), ("qlora", "single"), ("full", "zero3")],
)
def test_every_part_has_a_formula_and_they_sum_to_the_whole(method: str, strategy: str) -> None:
    made = spec(method, strategy)
    memory = estimate(made, model(), ANY)
    setup = setup_of(made, model(), shape_of(model()) or pytest.fail("no shape"))
    assert setup is not None
    live = [p for p in memory.parts if p.name not in ("allocator", "context", "communication")]
    assert sum(p.bytes for p in live) == simulate(setup).allocated_peak_bytes
    assert sum(p.bytes for p in memory.parts) == memory.device_bytes
    assert all(p.formula for p in memory.parts)
    assert memory.moment == simulate(setup).moment


def test_the_moment_of_the_peak_is_said() -> None:
    whole = estimate(spec("full", per_device_train_batch_size=1), model(), ANY)
    assert whole.moment in ("loss", "backward", "embedding gradient", "optimizer step")
    large = spec(per_device_train_batch_size=8, gradient_checkpointing=True)
    assert estimate(large, model(), ANY).moment in ("loss", "backward")


def test_a_mask_is_counted_where_rows_of_different_length_meet() -> None:
    shape = shape_of(model())
    assert shape is not None
    setup = setup_of(spec(per_device_train_batch_size=2), model(), shape)
    assert setup is not None
    assert setup.padded
    equal = simulate(replace(setup, padded=False)).allocated_peak_bytes
    assert simulate(setup).allocated_peak_bytes - equal >= setup.rows * setup.length**2


def test_a_single_key_head_is_repeated_without_a_copy() -> None:
    shape = shape_of(model())
    assert shape is not None
    setup = setup_of(spec(per_device_train_batch_size=2), model(), shape)
    assert setup is not None
    several = replace(setup, checkpointing=False, block=replace(setup.block, kv_heads=2))
    one = replace(several, block=replace(several.block, kv_heads=1))
    heads, block = setup.block.heads, setup.block
    copies = 2 * block.layers * setup.tokens * heads * block.head_dim * 2
    gap = simulate(several).allocated_peak_bytes - simulate(one).allocated_peak_bytes
    assert gap > 0.9 * copies


@pytest.mark.wide
def test_rows_of_different_length_leave_more_behind_than_equal_ones() -> None:
    shape = shape_of(model())
    assert shape is not None
    setup = setup_of(spec(per_device_train_batch_size=1), model(), shape)
    assert setup is not None
    plain = replace(setup, stack=replace(setup.stack, loss_head="full"), checkpointing=False)
    longest = plain.length
    varied = tuple(longest * n // 16 for n in (5, 9, 6, 12, 7, 14, 10, 16))
    equal, mixed = reserve(plain), reserve(plain, varied)
    assert mixed.high > equal.high
    assert mixed.low < 1.05 * equal.low, "expandable segments lose little"


def test_an_adapter_on_fewer_matrices_needs_less() -> None:
    whole = spec()
    few = whole.model_copy(
        update={"method": whole.method.model_copy(update={"target_modules": "q_proj,v_proj"})}
    )
    assert part(estimate(few, model(), ANY), "adapter") < part(
        estimate(whole, model(), ANY), "adapter"
    )
    assert estimate(few, model(), ANY).device_bytes < estimate(whole, model(), ANY).device_bytes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"architecture": "olmo2"}, "olmo2"),
        ({"architecture": None}, "architecture is unknown"),
        ({"parameters": 9 * 10**9}, "of this qwen3"),
    ],
)
def test_what_is_not_simulated_has_formulas_and_says_so(change: dict[str, Any], said: str) -> None:
    memory = estimate(spec(), replace(model(), **change), ANY)
    assert any(said in line for line in memory.left_out)
    assert memory.moment == ""
    assert sum(p.bytes for p in memory.parts) == memory.device_bytes


def test_a_simulated_step_leaves_no_attention_or_dropout_out() -> None:
    made = spec()
    dropping = made.model_copy(
        update={"method": made.method.model_copy(update={"lora_dropout": 0.1})}
    )
    memory = estimate(dropping, model(), ANY)
    assert not any("attention" in line or "dropout" in line for line in memory.left_out)
    assert memory.device_bytes > estimate(made, model(), ANY).device_bytes


@given(
    st.sampled_from([("full", "single"), ("lora", "single"), ("full", "zero3"), ("qlora", "ddp")]),
    st.sampled_from([1, 2, 8, 16]),
    st.booleans(),
    st.floats(1, 200),
)
@settings(max_examples=40, deadline=None)
def test_a_bound_refuses_only_what_does_not_fit(
    way: tuple[str, str], micro: int, checkpointing: bool, budget_gib: float
) -> None:
    made = spec(*way, per_device_train_batch_size=micro, gradient_checkpointing=checkpointing)
    budget = Budget(device_bytes=round(budget_gib * GIB), host_bytes=None)
    assert fits(made, model(), budget) == estimate(made, model(), budget).fits
