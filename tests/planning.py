"""Facts, answers and checks for tests of plans."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import strategies as st

from engine import rules
from engine.spec import SETTINGS, dumps, loads
from tests.fakes import machines
from wizard.answers import Answers
from wizard.facts import GIB, Dataset, Device, Facts, Model
from wizard.plan import Plan
from wizard.planner import plans
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
