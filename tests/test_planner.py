"""Plans: exact batches, a reason for everything, honest memory, and the right order."""

from __future__ import annotations

import functools
import itertools
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from engine import rules
from engine.methods import STAGE_FORMAT
from engine.spec import SETTINGS, dumps, loads
from tests.fakes import machines
from tests.plans import FOLDER, as_text
from tests.plans import machines as shipped_pairs
from tests.tiers import spread
from wizard import api, presets
from wizard.answers import Answers
from wizard.facts import GIB, Dataset, Device, Facts, Link, Model
from wizard.plan import Plan
from wizard.planner import plans
from wizard.planner.batch import BatchError, solve
from wizard.planner.budgets import Budget
from wizard.planner.memory import estimate
from wizard.probe.machine import find, load, shipped
from wizard.probe.model import read_model
from wizard.problem import Problem, ProblemError

MODELS = ("HuggingFaceTB/SmolLM2-135M", "Qwen/Qwen2.5-1.5B", "Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B")
GOLDEN = (
    ("rtx4090", "Qwen/Qwen3-8B"),
    ("h100x8", "Qwen/Qwen3-8B"),
    ("t4x2", "Qwen/Qwen2.5-1.5B"),
    ("laptop8", "Qwen/Qwen3-4B"),
    ("cpu", "HuggingFaceTB/SmolLM2-135M"),
)


@functools.cache
def model(name: str = "Qwen/Qwen3-8B") -> Model:
    return read_model(name)


def facts(
    machine: str = "rtx4090", name: str = "Qwen/Qwen3-8B", rows: int = 5000, chars: int = 3000
) -> Facts:
    data = Dataset(
        path="/data/rows.jsonl",
        format="messages",
        rows=rows,
        longest_row_chars=chars,
        longest_row_bytes=chars,
        longest_row_tokens=chars // 2,
        most_turns=2,
    )
    return replace(machines.machine(machine), model=model(name), dataset=data)


def fixed(**values: Any) -> Answers:
    return Answers(settings=values)


def refusal(given_facts: Facts, answers: Answers) -> Problem:
    with pytest.raises(ProblemError) as caught:
        plans(given_facts, answers)
    return caught.value.problem


def plans_or_problem(given_facts: Facts, answers: Answers) -> tuple[Plan, ...] | Problem:
    try:
        return plans(given_facts, answers)
    except ProblemError as error:
        return error.problem


def product(plan: Plan) -> int:
    training = plan.spec.training
    micro = training.per_device_train_batch_size * training.gradient_accumulation_steps
    return micro * plan.spec.parallel.ranks


def check_whole(plan: Plan) -> None:
    """What is true of every plan."""
    assert [decision.setting for decision in plan.decisions] == list(SETTINGS)
    for decision in plan.decisions:
        assert decision.reason.strip()
        table = getattr(plan.spec, SETTINGS[decision.setting])
        assert getattr(table, decision.setting) == decision.value
    assert sum(part.bytes for part in plan.memory.parts) == plan.memory.device_bytes
    assert all(part.bytes > 0 and part.formula for part in plan.memory.parts)
    assert plan.memory.left_out
    assert rules.check(plan.spec) == ()
    assert loads(dumps(plan.spec, plan.reasons)) == plan.spec
    assert plan.why


def check_ladder(plan: Plan) -> None:
    """Each rung is the same batch in no more memory."""
    sizes = [plan.spec.training.per_device_train_batch_size]
    for rung in plan.rungs:
        assert rung.training.effective_batch_size == plan.spec.training.effective_batch_size
        sizes.append(rung.training.per_device_train_batch_size)
        assert loads(dumps(rung)) == rung
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize(
    ("machine", "name"), spread(itertools.product(machines.NAMES, MODELS), every=5)
)
def test_every_plan_on_every_machine_is_whole(machine: str, name: str) -> None:
    for plan in plans(facts(machine, name), Answers()):
        check_whole(plan)
        check_ladder(plan)
        assert product(plan) == plan.spec.training.effective_batch_size


PRESETS = tuple(preset.name for preset in presets.shipped_and_saved())
EVERY = list(itertools.product(machines.NAMES, PRESETS))
THIRTY = [
    (machines.NAMES[n % len(machines.NAMES)], PRESETS[(n + n // len(PRESETS)) % len(PRESETS)])
    for n in range(30)
]
"""Every machine and every preset at least once."""


@pytest.mark.parametrize(
    ("machine", "preset"),
    [
        *spread(THIRTY, every=3),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in EVERY if pair not in THIRTY),
    ],
)
def test_every_preset_on_every_machine_fits_or_explains(machine: str, preset: str) -> None:
    loaded = presets.load(preset)
    known, answers = with_preset(machine, preset)
    found = plans_or_problem(known, answers)
    if isinstance(found, Problem):
        assert found.what
        assert found.fix or found.where
        return
    for plan in found:
        assert plan.fits or plan.memory.over_bytes > 0 or plan.problems
        for setting, value in loaded.settings.items():
            table = getattr(plan.spec, SETTINGS[setting])
            assert getattr(table, setting) == value, setting


def test_the_thirty_have_every_machine_and_every_preset() -> None:
    assert len(THIRTY) == len(set(THIRTY))
    assert {machine for machine, _ in THIRTY} == set(machines.NAMES)
    assert {preset for _, preset in THIRTY} == set(PRESETS)


def with_preset(machine: str, preset: str) -> tuple[Facts, Answers]:
    """Facts and answers of a preset, for its own model where it names one."""
    loaded = presets.load(preset)
    answers = api.with_preset(Answers(), loaded)
    known = facts(machine, answers.model or "Qwen/Qwen3-8B")
    assert known.dataset is not None
    stage = loaded.settings.get("stage", "sft")
    form = STAGE_FORMAT.get(stage, "messages")
    rows = replace(known.dataset, format=form, total_chars=5000 * 3000)
    return replace(known, dataset=rows), answers


@pytest.mark.parametrize(
    ("preset", "machine"),
    [
        ("sft-qlora-4b-8gb", "RTX4060-Laptop-WSL"),
        ("sft-qlora-8b-12gb", "1x NVIDIA GeForce RTX 3060"),
        ("sft-qlora-14b-16gb", "1x NVIDIA GeForce RTX 4080"),
        ("sft-qlora-14b-16gb", "T4-Colab"),
        ("sft-lora-8b-24gb", "1x NVIDIA GeForce RTX 3090"),
        ("sft-qlora-14b-24gb", "1x NVIDIA GeForce RTX 4090"),
        ("sft-lora-14b-48gb", "L40S"),
        ("sft-qlora-32b-48gb", "L40S"),
        ("sft-full-8b-80gb", "1x NVIDIA A100 80GB PCIe"),
        ("sft-qlora-72b-80gb", "1x NVIDIA H100 80GB HBM3"),
        ("sft-lora-8b-2x24gb", "2xRTX3090-NVLink"),
        ("sft-lora-14b-2x24gb", "2xRTX3090-NVLink"),
        ("sft-full-8b-4x24gb", "4xA10G"),
        ("sft-lora-32b-4x48gb", "4x NVIDIA L40S"),
        ("sft-full-8b-8x40gb", "8xA100-SXM-40GB"),
        ("sft-full-32b-8x80gb", "8xH100-SXM"),
        ("sft-lora-72b-8x80gb", "8xH100-SXM"),
        ("first-try", "RTX4060-Laptop-WSL"),
        ("sft-long-rows", "8xH100-SXM"),
        ("dpo-qlora-8b-24gb", "1x NVIDIA GeForce RTX 4090"),
        ("dpo-qlora-14b-4x24gb", "4xA10G"),
        ("dpo-full-8b-8x80gb", "8xH100-SXM"),
        ("kto-lora-8b-48gb", "L40S"),
        ("pretrain-small-24gb", "1x NVIDIA GeForce RTX 3090"),
        ("pretrain-full-8b-4x48gb", "8xRTX6000-Ada"),
        ("pretrain-full-32b-8x80gb", "8xH100-SXM"),
    ],
)
def test_a_preset_fits_the_machine_it_is_named_for(preset: str, machine: str) -> None:
    known, answers = with_preset("cpu", preset)
    there = find(machine)
    versions = {**machines.VERSIONS}
    known = replace(
        known,
        devices=there.devices,
        links=there.links,
        host=there.host,
        software=replace(there.software, versions=versions),
    )
    assert plans(known, answers)[0].fits


@pytest.mark.parametrize(
    ("preset", "machine", "name"),
    [
        ("lora-sft-small-card", "rtx4090", "Qwen/Qwen3-8B"),
        ("lora-sft-small-card", "laptop8", "Qwen/Qwen2.5-1.5B"),
        ("qlora-sft-large-model", "laptop8", "Qwen/Qwen3-4B"),
        ("qlora-sft-large-model", "t4x2", "Qwen/Qwen3-8B"),
        ("qlora-sft-large-model", "rtx4090", "Qwen/Qwen3-14B"),
        ("qlora-sft-large-model", "h100x8", "meta-llama/Llama-3.1-70B"),
        ("full-sft-small-model", "rtx4090", "Qwen/Qwen3-0.6B"),
    ],
)
def test_what_a_presets_description_says_fits_does(preset: str, machine: str, name: str) -> None:
    loaded = presets.load(preset)
    answers = Answers(settings=loaded.settings, preset=loaded.name)
    assert plans(facts(machine, name), answers)[0].fits


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


CARDS = st.builds(
    lambda gib, count: (gib, count), st.integers(6, 200), st.sampled_from([1, 2, 3, 4, 8])
)


def cards(memory_gib: float, count: int) -> tuple[Device, ...]:
    return tuple(
        Device(
            kind="cuda",
            index=index,
            name="Card",
            uuid=f"GPU-{index}",
            memory_total_bytes=round(memory_gib * GIB),
            compute_capability=(9, 0),
            bf16_native=True,
        )
        for index in range(count)
    )


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


@pytest.mark.slow
@pytest.mark.parametrize("preset", [None, *(p.name for p in presets.shipped_and_saved())])
@pytest.mark.parametrize("machine", sorted(shipped()))
def test_every_preset_on_every_shipped_machine_is_whole(machine: str, preset: str | None) -> None:
    values = presets.load(preset).settings if preset else {}
    for name in shipped_pairs.MODELS:
        rows = facts().dataset
        assert rows is not None
        form = STAGE_FORMAT.get(str(values.get("stage")), "messages")
        suiting = replace(rows, format=form, total_chars=rows.rows * rows.longest_row_chars)
        known = replace(load(shipped()[machine]), model=model(name), dataset=suiting)
        found = plans_or_problem(known, Answers(preset=preset, preset_settings=values))
        if isinstance(found, Problem):
            assert re.search("not yet trained on|allows no way to train on these", found.what)
            continue
        for plan in found:
            check_whole(plan)
            check_ladder(plan)
            assert product(plan) == plan.spec.training.effective_batch_size


def test_a_presets_values_are_named_as_its_own_and_the_users_win() -> None:
    answers = Answers(
        preset="small",
        preset_settings={"lora_rank": 8, "max_length": 256},
        settings={"max_length": 128},
    )
    for plan in plans(facts("rtx4090", "Qwen/Qwen3-4B"), answers):
        decided = {decision.setting: decision for decision in plan.decisions}
        assert (decided["lora_rank"].value, decided["lora_rank"].origin) == (8, "preset")
        assert "small" in decided["lora_rank"].reason
        assert (decided["max_length"].value, decided["max_length"].origin) == (128, "user")


def test_what_a_preset_fixes_but_a_plan_cannot_use_is_said() -> None:
    answers = Answers(preset="small", preset_settings={"lora_rank": 8}, settings={"method": "full"})
    for plan in plans(facts("h100x8", "Qwen/Qwen3-4B"), answers):
        assert any("lora_rank of the preset small" in p.where for p in plan.problems)


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
