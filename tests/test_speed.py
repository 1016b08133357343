"""A step's seconds grow with the work and shrink with the device; what is unknown stays unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wizard.facts import Device, Measured
from wizard.planner.speed import Rates, StepTime, rates_of, step_time
from wizard.planner.tape.setup import Block, Setup, Stack

LLAMA = Block(
    hidden=4096, intermediate=14336, layers=32, heads=32, kv_heads=8, head_dim=128, vocab=128256
)
RATES = Rates(
    matrix_flops_per_second=2e14,
    attention_flops_per_second=1.7e14,
    memory_bytes_per_second=1.6e12,
    link_bytes_per_second=2e11,
)
SETUP = Setup(block=LLAMA, method="lora", micro_batch=2, length=2048)


def timed(setup: Setup = SETUP, rates: Rates = RATES, **changes: Any) -> StepTime:
    found = step_time(setup, rates, **changes)
    assert found is not None
    return found


def card(**changes: Any) -> Device:
    known: dict[str, Any] = {
        "bf16_tflops": 312.0,
        "memory_bandwidth_gbs": 2039.0,
        "compute_capability": (8, 0),
    }
    return Device(kind="cuda", index=0, name="card", **(known | changes))


@given(
    micro=st.integers(1, 16),
    length=st.integers(64, 8192),
    rank=st.integers(1, 128),
    method=st.sampled_from(["full", "lora", "qlora"]),
    checkpointing=st.booleans(),
)
def test_more_work_never_takes_less_time(
    micro: int, length: int, rank: int, method: Any, checkpointing: bool
) -> None:
    setup = replace(
        SETUP, micro_batch=micro, length=length, lora_rank=rank, method=method,
        checkpointing=checkpointing,
    )  # fmt: skip
    seconds = timed(setup).seconds
    deeper = replace(LLAMA, layers=33)
    for larger in (
        replace(setup, micro_batch=micro + 1),
        replace(setup, length=length + 64),
        replace(setup, lora_rank=rank + 1),
        replace(setup, checkpointing=True),
        replace(setup, block=deeper),
    ):
        assert timed(larger).seconds >= seconds
    assert timed(setup, micro_steps=2).seconds >= seconds


@given(factor=st.floats(1.01, 10), ranks=st.integers(2, 64), offloaded=st.booleans())
def test_a_faster_device_or_link_is_never_slower(
    factor: float, ranks: int, offloaded: bool
) -> None:
    setup = replace(
        SETUP, method="full", world_size=ranks, strategy="zero3",
        offload="parameters" if offloaded else "none",
    )  # fmt: skip
    seconds = timed(setup).seconds
    for field in (
        "matrix_flops_per_second",
        "memory_bytes_per_second",
        "link_bytes_per_second",
        "host_link_bytes_per_second",
    ):
        faster = replace(RATES, **{field: getattr(RATES, field) * factor})
        # Hiding a collective behind compute ends when the compute does.
        assert timed(setup, faster).seconds <= seconds * (1 + 1e-9)


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_the_terms_sum_to_the_seconds_and_the_largest_limits(method: Any) -> None:
    found = timed(replace(SETUP, method=method), micro_steps=4)
    terms = dict(found.terms)
    assert sum(terms.values()) == pytest.approx(found.seconds)
    assert terms[found.limited_by] == max(terms.values())
    assert found.tokens_per_second == pytest.approx(4 * 2 * 2048 / found.seconds)


def test_four_bit_weights_are_unpacked_and_others_are_not() -> None:
    assert "4-bit unpacking" in dict(timed(replace(SETUP, method="qlora")).terms)
    assert "4-bit unpacking" not in dict(timed().terms)


def test_only_active_experts_count_but_all_travel_when_sharded() -> None:
    routed = replace(LLAMA, experts=8, experts_per_token=2, moe_intermediate=LLAMA.intermediate)
    dense_of_two = replace(LLAMA, intermediate=2 * LLAMA.intermediate)
    long = replace(SETUP, length=8192)
    matrix = dict(timed(replace(long, block=routed)).terms)["matrix products"]
    alike = dict(timed(replace(long, block=dense_of_two)).terms)["matrix products"]
    assert matrix == pytest.approx(alike, rel=0.01)
    slow = replace(RATES, link_bytes_per_second=1e9)
    sharded = replace(long, world_size=8, strategy="fsdp2")
    sends = [
        dict(timed(replace(sharded, block=block), slow).terms)["communication"]
        for block in (routed, dense_of_two)
    ]
    assert sends[0] > sends[1]


def test_sharding_over_a_slow_link_is_limited_by_it_and_a_fast_one_hides_it() -> None:
    sharded = replace(SETUP, method="full", world_size=8, strategy="zero3", length=512)
    slow = replace(RATES, link_bytes_per_second=8e9)
    assert timed(sharded, slow).limited_by == "communication"
    fast = replace(RATES, link_bytes_per_second=4e12)
    assert "communication" not in dict(timed(sharded, fast).terms)


def test_adapters_cost_almost_nothing_to_share_but_a_sharded_base_does() -> None:
    slow = replace(RATES, link_bytes_per_second=8e9)
    shared = replace(SETUP, world_size=2, strategy="ddp")
    sharded = replace(SETUP, world_size=2, strategy="fsdp2")
    assert timed(shared, slow).seconds < timed(sharded, slow).seconds


def test_short_rows_on_a_fast_device_wait_for_the_host() -> None:
    short = replace(SETUP, micro_batch=1, length=64)
    faster = replace(RATES, matrix_flops_per_second=1e15, memory_bytes_per_second=1e13)
    assert timed(short, faster).limited_by == "kernel launches"


def test_optimizer_states_on_the_host_cost_its_transfers_and_its_step() -> None:
    sharded = replace(SETUP, method="full", world_size=4, strategy="zero3")
    offloaded = replace(sharded, offload="optimizer")
    assert "offload" in dict(timed(offloaded).terms)
    assert timed(offloaded).seconds > timed(sharded).seconds


def test_an_unknown_device_or_link_gives_no_time() -> None:
    assert rates_of(card(bf16_tflops=None)) is None
    assert rates_of(card(memory_bandwidth_gbs=None)) is None
    assert step_time(SETUP, None) is None
    unlinked = replace(RATES, link_bytes_per_second=None)
    assert step_time(replace(SETUP, world_size=2, strategy="ddp"), unlinked) is None
    assert step_time(SETUP, unlinked) is not None


def test_measured_rates_replace_the_tables() -> None:
    measured = Measured(when="now", matmul_tflops=100.0, memory_gbs=1000.0)
    found = rates_of(card(), measured=measured)
    assert found is not None
    assert found.matrix_flops_per_second == 100e12
    assert found.memory_bytes_per_second == 1000e9
    known = rates_of(card(bf16_tflops=None, memory_bandwidth_gbs=None), measured=measured)
    assert known is not None


@pytest.mark.parametrize("loss_head", ["chunked", "full", "full_shifted", "fused"])
def test_every_loss_head_has_a_cost(loss_head: Any) -> None:
    stack = Stack(loss_head=loss_head)
    assert dict(timed(replace(SETUP, stack=stack)).terms)["loss head"] > 0
