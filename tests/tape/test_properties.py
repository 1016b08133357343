"""What holds for every step: parts sum up, more of anything never needs less, same in same out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.tape import traced
from wizard.planner.tape import device, reserve, simulate
from wizard.planner.tape import step as steps
from wizard.planner.tape.bounds import at_least
from wizard.planner.tape.setup import MATRICES, Block, Setup, Stack, UnknownStepError
from wizard.planner.tape.sharding import share
from wizard.planner.tape.states import states

SHARINGS = ("single", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2")


@st.composite
def blocks(draw: st.DrawFn) -> Block:
    family = draw(st.sampled_from(["llama", "llama", "phi3", "gemma2", "gemma3"]))
    kv_heads, head_dim = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([16, 64, 128]))
    return Block(
        hidden=draw(st.sampled_from([64, 256, 1024])),
        intermediate=draw(st.sampled_from([128, 700, 4096])),
        layers=draw(st.integers(1, 12)),
        heads=kv_heads * draw(st.integers(1, 4)),
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab=draw(st.sampled_from([300, 32000, 151936])),
        tied=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        qk_norm=draw(st.booleans()),
        window=draw(st.sampled_from([0, 100])),
        full_every=draw(st.sampled_from([0, 2, 3])),
        family=family,  # type: ignore[arg-type]
        **(draw(experts()) if family == "llama" and draw(st.booleans()) else {}),
    )


@st.composite
def experts(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "experts": 8,
        "experts_per_token": draw(st.sampled_from([1, 4])),
        "moe_intermediate": draw(st.sampled_from([64, 512])),
        "shared_intermediate": draw(st.sampled_from([0, 256])),
        "float32_scores": draw(st.booleans()),
        "adapts_experts": draw(st.booleans()),
    }


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    anything: Any = lambda *values: draw(st.sampled_from(values))  # noqa: E731
    stack = Stack(
        loss_head=anything("chunked", "full", "full_shifted", "fused"),
        optimizer=anything("adamw_fused", "adamw_foreach", "adamw_8bit", "sgd", "adafactor"),
        autocast=anything(True, False),
        adapter_dtype=anything("float32", "bfloat16"),
        fused_norm=anything(False, True),
        fused_rope=anything(False, True),
        fused_mlp=anything(False, True),
    )
    strategy = anything(*SHARINGS)
    return Setup(
        block=draw(blocks()),
        stack=stack,
        method=anything("full", "lora", "qlora"),
        weight_dtype=anything("bfloat16", "float32"),
        micro_batch=draw(st.integers(1, 4)),
        length=draw(st.sampled_from([16, 128, 600, 2048])),
        checkpointing=anything(True, False),
        attention=anything("sdpa", "flash", "eager"),
        padded=anything(True, False),
        accumulates=anything(True, False),
        lora_rank=draw(st.integers(1, 64)),
        lora_targets=anything(MATRICES, ("o", "down")),
        world_size=1 if strategy == "single" else anything(2, 8),
        strategy=strategy,
    )


@given(setups())
@settings(max_examples=60, deadline=None)
def test_components_sum_to_the_peak(setup: Setup) -> None:
    memory = simulate(setup)
    assert sum(size for _, size in memory.components) == memory.allocated_peak_bytes
    assert all(size > 0 for _, size in memory.components)
    assert dict(memory.moments)[memory.moment] == memory.allocated_peak_bytes
    assert max(size for _, size in memory.moments) == memory.allocated_peak_bytes


@given(setups())
@settings(max_examples=60, deadline=None)
def test_the_bound_is_never_above_the_peak(setup: Setup) -> None:
    assert at_least(setup) <= simulate(setup).allocated_peak_bytes


def test_the_bound_of_experts_counts_those_a_token_meets_and_no_wider_layer() -> None:
    few = Block(
        hidden=64,
        intermediate=4096,
        layers=12,
        heads=1,
        kv_heads=1,
        head_dim=16,
        vocab=300,
        experts=8,
        experts_per_token=1,
        moe_intermediate=64,
    )
    setup = Setup(
        block=few,
        method="full",
        weight_dtype="bfloat16",
        micro_batch=1,
        length=600,
        checkpointing=False,
    )
    assert at_least(setup) <= simulate(setup).allocated_peak_bytes


@given(setups(), st.sampled_from(["length", "micro_batch", "lora_rank"]), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_more_tokens_rows_or_rank_never_need_less(setup: Setup, what: str, more: int) -> None:
    larger = replace(setup, **{what: getattr(setup, what) + more})
    assert simulate(larger).allocated_peak_bytes >= simulate(setup).allocated_peak_bytes


@given(setups(), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_more_layers_never_need_less(setup: Setup, more: int) -> None:
    deeper = replace(setup, block=replace(setup.block, layers=setup.block.layers + more))
    assert simulate(deeper).allocated_peak_bytes >= simulate(setup).allocated_peak_bytes


@given(setups())
@settings(max_examples=60, deadline=None)
def test_more_devices_never_hold_more_states_each(setup: Setup) -> None:
    assume(setup.strategy != "single")
    found = states(setup)
    few, many = share(setup, found), share(replace(setup, world_size=2 * setup.world_size), found)
    for name in ("weights", "adapter", "optimizer", "reference", "buckets", "early", "late"):
        assert getattr(many, name) <= getattr(few, name)


@given(setups(), st.sampled_from(["none", "adapter", "model", "precomputed"]))
@settings(max_examples=30, deadline=None)
def test_the_depth_is_extrapolated_exactly(setup: Setup, preference: Any) -> None:
    """A shallow recording says what recording every layer says, of each kind of bytes."""
    setup = replace(setup, preference=preference)
    own = steps.own_recording(setup)
    assume(own.block.layers > steps.SHALLOW)
    assert steps.record(setup).by_kind == tuple(steps.run(own).at_peaks())


@given(setups())
@settings(max_examples=20, deadline=None)
def test_the_same_setup_gives_the_same_answer(setup: Setup) -> None:
    first = simulate(setup)
    simulate.cache_clear()
    steps.forget()
    assert simulate(setup) == first


@given(setups())
@settings(max_examples=15, deadline=None)
def test_the_allocator_holds_at_least_what_is_live_and_the_device_more(setup: Setup) -> None:
    assume(setup.strategy in ("single", "ddp"))
    held = reserve(setup)
    assert simulate(setup).allocated_peak_bytes <= held.low <= held.high
    seen = device(setup)
    assert held.low < seen.low < seen.high


def test_an_adapter_on_nothing_is_refused() -> None:
    adapted = next(step.setup for step in traced("grid") if step.setup.method == "lora")
    with pytest.raises(UnknownStepError, match="no matrix"):
        simulate(replace(adapted, lora_targets=("lm_head",)))
