"""Plans at the edges: the longest row, contradictions, huge sizes, one of a thing."""

from __future__ import annotations

import itertools
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.planning import facts, fixed, plans_or_problem, refusal
from wizard import api
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner import plans
from wizard.planner.budgets import Budget
from wizard.planner.memory import estimate
from wizard.planner.ranking import SAME_TIME
from wizard.probe.machine import find
from wizard.problem import ProblemError


def reason(plan: Plan, setting: str) -> str:
    return next(d.reason for d in plan.decisions if d.setting == setting)


def test_the_length_is_called_an_estimate_and_a_row_that_may_be_longer_is_told() -> None:
    assert reason(plans(facts(chars=1000), Answers())[0], "max_length").startswith("estimated to")
    (told,) = plans(facts(chars=9000), Answers())[0].problems
    assert (told.where, told.severity) == ("max_length", "warning")
    assert "what is over 2,048 is cut" in told.what


def test_few_steps_that_the_user_fixed_are_not_blamed_on_the_data() -> None:
    plan = plans(facts(chars=1000), fixed(max_steps=10))[0]
    (told,) = [one for one in plan.problems if one.what.startswith("only 10 optimizer steps")]
    assert told.where == "max_steps"
    assert told.fix is not None
    assert "a larger max_steps" in told.fix


@pytest.mark.parametrize("rows", [20, 60, 5000])
def test_the_batch_is_the_same_however_many_steps_are_made(rows: int) -> None:
    batches = {
        (training.effective_batch_size, reason(plan, "effective_batch_size"))
        for steps in (-1, 5, 5000)
        for plan in plans(facts(rows=rows), fixed(max_steps=steps))[:1]
        for training in (plan.spec.training,)
    }
    assert len(batches) == 1


def test_more_passes_do_not_change_the_batch() -> None:
    batches = {
        plans(facts(rows=60), fixed(num_train_epochs=epochs))[0].spec.training.effective_batch_size
        for epochs in (3.0, 5.0, 50.0)
    }
    assert len(batches) == 1


def known(machine: str, **changes: Any) -> Facts:
    """Facts of a machine whose devices have known rates."""
    given = facts(**changes)
    return replace(find(machine), model=given.model, dataset=given.dataset)


@pytest.mark.parametrize("machine", ["2x RTX 4090", "8 H100", "4xL4"])
def test_the_fastest_plan_has_the_shortest_time_or_says_that_it_is_a_tie(machine: str) -> None:
    answers = Answers(goal="fastest", settings={"max_length": 512})
    found = plans(known(machine, rows=80, chars=1000), answers)
    sure = [plan for plan in found if plan.fits and not plan.host_unknown]
    assert all(plan.run_seconds for plan in sure)
    times = [plan.run_seconds or 0.0 for plan in sure]
    for plan, mine in zip(sure, times, strict=True):
        quicker = [one for one in times[sure.index(plan) :] if mine > one]
        assert all(mine <= (1 + SAME_TIME) * one for one in quicker), plan.title
        if any(round(100 * (mine / one - 1)) >= 1 for one in quicker) and mine < 1.5 * min(times):
            assert any(why.startswith("a tie:") for why in plan.why), plan.title


def test_a_tie_is_claimed_of_no_plan_that_is_far_slower_than_the_quickest() -> None:
    for goal in ("quality", "fastest"):
        for plan in plans(known("8 H100", rows=60), Answers(goal=goal)):
            said = " ".join(plan.why)
            assert not ("a tie:" in said and "the quickest plan's time" in said)


def test_only_the_plan_that_needs_least_is_said_to() -> None:
    found = plans(facts("h100x8"), Answers())
    least = min(plan.memory.device_bytes for plan in found)
    for plan in found:
        if "for: the least device memory" in plan.why:
            assert plan.memory.device_bytes == least


def test_what_does_not_fit_while_loading_says_so_and_advises_nothing_that_is_set() -> None:
    found = plans(
        known("2x RTX 4090", name="meta-llama/Llama-3.1-70B", chars=400),
        fixed(method="qlora", strategy="fsdp"),
    )
    with pytest.raises(ProblemError) as caught:
        api.best(found)
    problem = caught.value.problem
    assert "nothing can be loaded" in problem.what
    assert "method=qlora" not in problem.fix
    assert "max_length" not in problem.fix


def test_room_is_left_for_system_text_and_for_a_template_that_is_spelt_out() -> None:
    def length(known: Facts, **settings: Any) -> int:
        return plans(known, fixed(**settings))[0].spec.data.max_length

    plain = facts(chars=1000)
    assert plain.dataset is not None
    talk = replace(plain, dataset=replace(plain.dataset, most_turns=20))
    assert length(plain, system="x" * 640) == length(plain) + 640
    assert length(talk, template="chatml") >= 500 + 20 * 24


def test_a_model_or_data_other_than_what_was_read_is_refused() -> None:
    for setting in ("model", "data"):
        problem = refusal(facts(), fixed(**{setting: "other"}))
        assert (problem.exit_code, problem.where) == (2, setting)
        assert "other is fixed" in problem.what
    same = fixed(model="Qwen/Qwen3-8B", data="/data/rows.jsonl")
    assert plans(facts(), same)[0].spec.model.model == "Qwen/Qwen3-8B"


def test_a_presets_model_never_replaces_the_one_that_was_read() -> None:
    answers = Answers(preset="p", preset_settings={"model": "other/model", "data": "other.jsonl"})
    for plan in plans(facts(), answers):
        assert (plan.spec.model.model, plan.spec.data.data) == ("Qwen/Qwen3-8B", "/data/rows.jsonl")


@pytest.mark.parametrize(
    "sizes",
    [
        {"effective_batch_size": 2**31 - 1},
        {"effective_batch_size": 1_396_755_360},  # as many divisors as a number of its size has
        {"num_devices": 65_536, "device_kind": "cpu"},
        {"per_device_train_batch_size": 2**31 - 1, "num_devices": 8},
    ],
)
def test_huge_sizes_are_answered_and_do_not_hang(sizes: dict[str, Any]) -> None:
    known = facts("h100x8", rows=2**31)
    begun = time.monotonic()
    plans_or_problem(known, fixed(**sizes))
    # Not a measurement: to go through all sizes would take hours.
    assert time.monotonic() - begun < 60


def test_each_rung_of_a_long_ladder_is_half_of_the_one_before_or_less() -> None:
    known = facts("h100x8", "HuggingFaceTB/SmolLM2-135M", rows=10**6, chars=10)
    best = plans(known, fixed(effective_batch_size=8 * 720))[0]
    sizes = [s.training.per_device_train_batch_size for s in (best.spec, *best.rungs)]
    changed = list(dict.fromkeys(sizes))
    assert changed[-1] == 1
    assert all(2 * small <= large for large, small in itertools.pairwise(changed))


def test_the_largest_micro_batch_that_fits_is_taken() -> None:
    known = facts("rtx4090", "Qwen/Qwen3-8B")
    assert known.model is not None
    plan = plans(known, fixed(method="lora", effective_batch_size=12))[0]
    micro = plan.spec.training.per_device_train_batch_size
    larger = min(n for n in (1, 2, 3, 4, 6, 12) if n > micro)
    sizes = {"per_device_train_batch_size": larger, "gradient_accumulation_steps": 12 // larger}
    training = plan.spec.training.model_copy(update=sizes)
    budget = Budget(device_bytes=plan.memory.device_budget_bytes, host_bytes=None)
    spec = plan.spec.model_copy(update={"training": training})
    assert plan.fits
    assert not estimate(spec, known.model, budget).fits


def test_a_last_step_that_is_smaller_is_told_with_the_batch() -> None:
    for answers in (Answers(), fixed(effective_batch_size=16)):
        told = reason(plans(facts(rows=1003), answers)[0], "effective_batch_size")
        assert "the last step of a pass has only 11 rows of its own" in told
    assert "last step" not in reason(plans(facts(rows=1600), Answers())[0], "effective_batch_size")


def test_devices_named_by_uuid_are_missed_on_a_machine_without_any() -> None:
    problem = refusal(facts("cpu", "Qwen/Qwen3-0.6B"), fixed(devices=("GPU-1",)))
    assert (problem.exit_code, problem.what) == (6, "there is no device GPU-1")


def test_one_of_a_thing_is_not_called_many() -> None:
    texts = [str(refusal(facts("rtx4090"), fixed(num_devices=4)))]
    texts += [str(refusal(facts(rows=1), fixed(effective_batch_size=2)))]
    for machine in ("rtx4090", "cpu"):
        for plan in plans(facts(machine, rows=40), fixed(strategy="zero3", max_steps=1)):
            texts += [d.reason for d in plan.decisions] + [p.formula for p in plan.memory.parts]
            texts += [str(problem) for problem in plan.problems]
    for text in texts:
        assert not re.search(r"\b1 (\w+ )?(devices|ranks|shards|steps|rows|cores)\b", text), text
