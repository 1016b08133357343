"""Plans: exact batches, a reason for everything, honest memory, and the right order."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.fakes import machines
from tests.planning import (
    CARDS,
    GOLDEN,
    MODELS,
    cards,
    check_ladder,
    check_whole,
    facts,
    fixed,
    model,
    plans_or_problem,
    product,
    refusal,
)
from tests.plans import FOLDER, as_text
from tests.plans import machines as shipped_pairs
from tests.tiers import spread
from wizard.answers import Answers
from wizard.facts import GIB, Link, Model
from wizard.planner import plans
from wizard.planner.batch import BatchError, solve
from wizard.planner.budgets import Budget
from wizard.planner.memory import estimate
from wizard.problem import Problem, ProblemError


@pytest.mark.parametrize(
    ("machine", "name"), spread(itertools.product(machines.NAMES, MODELS), every=5)
)
def test_every_plan_on_every_machine_is_whole(machine: str, name: str) -> None:
    for plan in plans(facts(machine, name), Answers()):
        check_whole(plan)
        check_ladder(plan)
        assert product(plan) == plan.spec.training.effective_batch_size


def test_plans_that_fit_come_first_and_the_others_by_how_much_they_lack() -> None:
    found = plans(facts("laptop8"), Answers())
    fits = [plan.fits for plan in found]
    assert fits == sorted(fits, reverse=True)
    over = [plan.memory.over_bytes for plan in found if not plan.fits]
    assert over
    assert over == sorted(over)
    assert over[0] > 0


@pytest.mark.parametrize("machine", spread(machines.NAMES, every=3))
def test_the_least_memory_goal_sorts_by_memory(machine: str) -> None:
    found = plans(facts(machine), Answers(goal="least-memory"))
    fitting = [plan.memory.device_bytes for plan in found if plan.fits]
    assert fitting == sorted(fitting)


def test_few_rows_prefer_an_adapter_and_many_all_weights() -> None:
    few = plans(facts("h100x8", "Qwen/Qwen2.5-1.5B", rows=2000), Answers())[0]
    many = plans(facts("h100x8", "Qwen/Qwen2.5-1.5B", rows=200_000), Answers())[0]
    assert (few.spec.method.method, many.spec.method.method) == ("lora", "full")


def test_forty_rows_do_not_get_a_batch_that_ends_in_a_few_steps() -> None:
    for machine in machines.NAMES:
        best = plans(facts(machine, rows=40), Answers())[0]
        assert best.steps is not None
        assert best.steps >= 20


def test_too_few_steps_are_told() -> None:
    best = plans(facts(rows=40), fixed(effective_batch_size=32))[0]
    assert best.steps == 6
    assert any("only 6 optimizer steps" in problem.what for problem in best.problems)


def test_fewer_rows_than_one_step_are_refused() -> None:
    problem = refusal(facts(rows=12), fixed(effective_batch_size=16))
    assert problem.exit_code == 4
    assert "12 rows do not fill one step of 16" in problem.what


def test_without_model_or_data_there_is_nothing_to_plan() -> None:
    assert refusal(replace(facts(), model=None), Answers()).exit_code == 2
    assert refusal(replace(facts(), dataset=None), Answers()).exit_code == 2


def test_a_quantised_checkpoint_is_refused() -> None:
    quantised = replace(facts(), model=replace(model(), quantized="gptq"))
    assert "already quantised (gptq)" in refusal(quantised, Answers()).what


def test_an_effective_batch_that_the_devices_do_not_share_uses_fewer_devices() -> None:
    found = plans(facts("h100x8"), fixed(effective_batch_size=12, strategy="ddp"))
    assert {plan.spec.parallel.num_devices for plan in found} == {6}
    (reason,) = {d.reason for d in found[0].decisions if d.setting == "num_devices"}
    assert reason == "8 do not share the effective batch evenly, 6 do"
    (offered,) = {d.reason for d in found[0].decisions if d.setting == "effective_batch_size"}
    assert "8 ranks would share 8 or 16 evenly" in offered


def test_an_effective_batch_that_fixed_devices_do_not_share_names_the_nearest() -> None:
    problem = refusal(facts("h100x8"), fixed(effective_batch_size=12, num_devices=8))
    assert "the nearest are 8 or 16" in problem.what


def test_fixed_sizes_that_contradict_each_other_are_refused() -> None:
    answers = fixed(
        effective_batch_size=16, per_device_train_batch_size=3, gradient_accumulation_steps=2
    )
    assert refusal(facts(), answers).exit_code == 2


def test_a_fixed_value_is_in_every_plan_and_says_whose_it_is() -> None:
    answers = fixed(learning_rate=3e-4, per_device_train_batch_size=2, lora_rank=64)
    for plan in plans(facts("h100x8"), answers):
        assert plan.spec.training.learning_rate == 3e-4
        assert plan.spec.training.per_device_train_batch_size == 2
        assert plan.spec.method.lora_rank == 64
        origins = {d.setting for d in plan.decisions if d.origin == "user"}
        assert origins == set(answers.settings)


def test_a_fixed_micro_batch_is_not_made_smaller_by_the_ladder() -> None:
    for plan in plans(facts(), fixed(per_device_train_batch_size=4)):
        assert {rung.training.per_device_train_batch_size for rung in plan.rungs} <= {4}


def test_an_adapter_setting_beside_full_tuning_is_refused() -> None:
    problem = refusal(facts("h100x8"), fixed(method="full", lora_rank=8))
    assert problem.where == "lora_rank"


def test_a_fixed_combination_that_a_rule_forbids_names_the_way_out() -> None:
    problem = refusal(facts("h100x8"), fixed(optim="adamw_bnb_8bit", strategy="zero3"))
    assert problem.fix == "set optim=adamw_torch"


def test_zero3_shares_4bit_weights_once_each_rank_has_loaded_them() -> None:
    found = {
        strategy: plans(facts("h100x8"), fixed(method="qlora", strategy=strategy))[0].memory
        for strategy in ("zero3", "zero2", "fsdp")
    }
    assert found["zero3"].device_bytes < found["zero2"].device_bytes
    assert found["zero3"].fits


def test_a_combination_no_machine_allows_is_refused() -> None:
    assert refusal(facts(), fixed(strategy="single", offload="optimizer")).exit_code == 2


def test_an_offload_the_user_fixed_is_planned_even_where_it_saves_little() -> None:
    found = plans(facts("h100x8"), fixed(method="lora", offload="optimizer"))
    ways = {(p.spec.parallel.strategy, p.spec.parallel.offload) for p in found}
    assert ways == {("zero2", "optimizer"), ("zero3", "optimizer")}


def test_sharding_on_cpu_ranks_is_planned_only_when_asked_for() -> None:
    machine = facts("cpu", "HuggingFaceTB/SmolLM2-135M")
    unasked = {plan.spec.parallel.strategy for plan in plans(machine, Answers())}
    asked = {plan.spec.parallel.strategy for plan in plans(machine, fixed(strategy="zero3"))}
    assert (unasked, asked) == ({"single", "ddp"}, {"zero3"})


def test_a_device_that_is_not_there_is_named_with_those_that_are() -> None:
    problem = refusal(facts("t4x2"), Answers(devices=(0, 5)))
    assert (problem.exit_code, problem.what) == (6, "there is no device 5")
    assert refusal(facts("t4x2"), fixed(num_devices=4)).exit_code == 6
    assert refusal(facts("cpu", "Qwen/Qwen3-0.6B"), fixed(device_kind="cuda")).exit_code == 6


def test_the_named_devices_are_used_in_their_order_by_uuid() -> None:
    found = plans(facts("a10gx4"), Answers(devices=(3, 1)))
    for plan in found:
        assert [uuid[-1] for uuid in plan.spec.parallel.devices] == ["3", "1"]


def test_a_mixed_machine_uses_its_largest_group_and_says_what_is_left() -> None:
    best = plans(facts("mixed"), Answers())[0]
    reason = {d.setting: d.reason for d in best.decisions}["device_kind"]
    assert "3 × NVIDIA GeForce RTX 4090" in reason
    assert "2 other left out" in reason


def test_a_card_without_bfloat16_gets_a_format_it_can_train() -> None:
    for plan in plans(facts("t4x2", "Qwen/Qwen2.5-1.5B"), Answers()):
        sharded = plan.spec.parallel.strategy in ("zero1", "zero2", "zero3", "fsdp")
        exact = plan.spec.method.method == "full" and not sharded
        assert plan.spec.model.dtype == ("float32" if exact else "float16")


def test_a_broken_driver_never_turns_into_a_cpu_run_unasked() -> None:
    broken = Problem(what="the driver does not answer", exit_code=6)
    machine = replace(facts("cpu", "HuggingFaceTB/SmolLM2-135M"), problems=(broken,))
    assert not any(plan.fits for plan in plans(machine, Answers()))
    assert plans(machine, fixed(device_kind="cpu"))[0].fits


def test_a_package_that_is_absent_is_a_problem_of_the_plans_that_need_it() -> None:
    machine = facts("h100x8")
    without = replace(machine, software=replace(machine.software, versions={"deepspeed": None}))
    for plan in plans(without, Answers()):
        needs = plan.spec.parallel.strategy.startswith("zero")
        assert any("deepspeed is not installed" in p.what for p in plan.problems) == needs


def test_what_others_hold_on_a_device_is_not_ours() -> None:
    machine = facts("rtx4090")
    busy = replace(machine.devices[0], memory_free_bytes=9 * GIB)
    (free, full) = (plans(m, Answers())[0] for m in (machine, replace(machine, devices=(busy,))))
    assert free.spec.method.method == "lora"
    assert full.spec.method.method == "qlora"
    assert full.memory.device_budget_bytes == 9 * GIB


def test_a_device_that_others_have_filled_fits_nothing() -> None:
    machine = facts("rtx4090")
    full = replace(machine.devices[0], memory_free_bytes=0)
    assert not any(plan.fits for plan in plans(replace(machine, devices=(full,)), Answers()))


def test_experts_are_not_counted_as_4_bit() -> None:
    """Experts are single three-dimensional tensors, which the 4-bit loader leaves alone."""
    found = plans(facts("h100x8", "Qwen/Qwen3-30B-A3B"), fixed(method="qlora"))
    weights = next(part for part in found[0].memory.parts if part.name == "weights")
    assert weights.bytes > 50 * GIB


def test_a_model_without_dimensions_counts_its_weights_and_says_so() -> None:
    odd = Model(name="odd", path="/m", parameters=10**9)
    memory = plans(replace(facts(), model=odd), Answers())[0].memory
    assert memory.device_bytes == 2 * 10**9
    assert "dimensions are unknown" in memory.left_out[0]


def test_a_model_without_chat_template_gets_one() -> None:
    bare = replace(facts(), model=replace(model(), has_chat_template=False))
    assert plans(bare, Answers())[0].spec.model.template == "chatml"


def test_short_rows_get_a_short_length_and_long_ones_the_limit() -> None:
    lengths = [
        plans(facts(chars=chars), Answers())[0].spec.data.max_length
        for chars in (10, 1000, 100_000)
    ]
    assert lengths == [128, 640, 2048]


def test_the_least_memory_goal_does_not_depend_on_the_order_of_devices() -> None:
    machine = facts("mixed")
    turned = replace(machine, devices=machine.devices[::-1])
    titles = [[p.title for p in plans(m, Answers())] for m in (machine, turned)]
    assert titles[0] == titles[1]


@pytest.mark.wide
@settings(max_examples=12, deadline=None)
@given(
    card=CARDS,
    rows=st.integers(1, 100_000),
    chars=st.integers(1, 50_000),
    effective=st.none() | st.integers(1, 300),
    micro=st.none() | st.integers(1, 8),
)
def test_the_batch_is_exact_or_refused(
    card: tuple[int, int], rows: int, chars: int, effective: int | None, micro: int | None
) -> None:
    machine = replace(facts("h100x8", rows=rows, chars=chars), devices=cards(*card))
    asked = {"effective_batch_size": effective, "per_device_train_batch_size": micro}
    answers = Answers(settings={k: v for k, v in asked.items() if v is not None})
    found = plans_or_problem(machine, answers)
    if isinstance(found, Problem):
        assert found.exit_code in (2, 4)
        return
    for plan in found:
        check_whole(plan)
        check_ladder(plan)
        assert product(plan) == plan.spec.training.effective_batch_size
        assert effective in (None, plan.spec.training.effective_batch_size)
        assert micro in (None, plan.spec.training.per_device_train_batch_size)


@given(
    devices=st.integers(1, 16),
    rows=st.integers(1, 10**6),
    sizes=st.dictionaries(
        st.sampled_from(
            [
                "effective_batch_size",
                "per_device_train_batch_size",
                "gradient_accumulation_steps",
            ]
        ),
        st.integers(1, 64),
    ),
    exact=st.booleans(),
)
def test_solved_sizes_multiply_to_the_effective_batch(
    devices: int, rows: int, sizes: dict[str, int], exact: bool
) -> None:
    try:
        batch = solve(sizes, devices=devices, devices_fixed=exact, rows=rows)
    except BatchError:
        assume(False)
    for micro in batch.micros:
        assert micro * batch.accumulation(micro) * batch.devices == batch.effective
    assert not exact or batch.devices == devices


def test_memory_grows_with_the_longest_row_and_shrinks_with_checkpointing() -> None:
    spec = plans(facts("h100x8"), fixed(method="lora", strategy="single"))[0].spec
    budget = Budget(device_bytes=None, host_bytes=None)

    def size(length: int, *, checkpointing: bool) -> int:
        changed = spec.model_copy(
            update={
                "data": spec.data.model_copy(update={"max_length": length}),
                "training": spec.training.model_copy(
                    update={"gradient_checkpointing": checkpointing}
                ),
            }
        )
        return estimate(changed, model(), budget).device_bytes

    assert size(512, checkpointing=True) < size(1024, checkpointing=True)
    assert size(1024, checkpointing=True) < size(1024, checkpointing=False)


@pytest.mark.parametrize(("machine", "name"), GOLDEN)
def test_golden_plans(machine: str, name: str) -> None:
    """To accept a change: `python -m tests.plans.write`, then read the difference."""
    golden = FOLDER / f"{machine}-{name.rsplit('/', 1)[1]}.txt"
    assert as_text(plans(facts(machine, name), Answers())) == golden.read_text(encoding="utf-8")


def test_golden_tables_of_pairs_of_machine_and_model() -> None:
    """To accept a change: `python -m tests.plans.write`, then read the difference."""
    assert shipped_pairs.text(facts()) == shipped_pairs.FILE.read_text(encoding="utf-8")


def test_more_bad_rows_than_allowed_end_before_anything_is_fetched() -> None:
    known = facts("rtx4090", "Qwen/Qwen3-4B")
    assert known.dataset is not None
    bad = Problem(what="not valid JSON", where="line 7")
    data = replace(known.dataset, rows=50, dropped_rows=50, problems=(bad,))
    with pytest.raises(ProblemError) as raised:
        plans(replace(known, dataset=data), Answers())
    assert raised.value.problem.exit_code == 4
    assert "50 of 100 rows" in str(raised.value)
    assert "line 7" in str(raised.value)
    assert plans(replace(known, dataset=data), Answers(settings={"max_dropped_percent": 60.0}))


def test_two_of_four_are_those_that_a_bridge_joins() -> None:
    known = facts("a10gx4", "Qwen/Qwen2.5-1.5B")
    bridge = Link(devices=(1, 3), kind="nvlink", gbs=56.0, peer_access=True)
    for plan in plans(replace(known, links=(bridge,)), fixed(num_devices=2, strategy="ddp")):
        assert plan.spec.parallel.devices == (known.devices[1].uuid, known.devices[3].uuid)
