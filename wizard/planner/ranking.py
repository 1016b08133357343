"""The order of plans for a goal, and the words for and against each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner.batch import FEWEST_STEPS
from wizard.planner.defaults import MANY_ROWS

OFFLOADS = ("none", "optimizer", "parameters")
STRATEGIES = ("ddp", "zero3", "single")
FEW_ROWS_ORDER = ("lora", "full", "qlora")
MANY_ROWS_ORDER = ("full", "lora", "qlora")
FASTEST_ORDER = ("lora", "qlora", "full")


def ranked(plans: Sequence[Plan], facts: Facts, answers: Answers) -> tuple[Plan, ...]:
    """Plans that fit by the goal, best first; then the others, nearest first."""
    order = method_order(facts, answers)
    fitting = [plan for plan in plans if plan.fits]
    if answers.goal == "fastest" and all(plan.step_seconds for plan in fitting):
        fitting.sort(key=lambda plan: (plan.step_seconds, _key(plan, answers.goal, order)))
    else:
        fitting.sort(key=lambda plan: _key(plan, answers.goal, order))
    others = sorted((p for p in plans if not p.fits), key=lambda p: (p.memory.over_bytes, p.title))
    return tuple(_explained(plan, facts) for plan in (*fitting, *others))


def method_order(facts: Facts, answers: Answers) -> tuple[str, ...]:
    """Methods from best to worst for the goal and the amount of data."""
    if answers.goal == "fastest":
        return FASTEST_ORDER
    rows = facts.dataset.rows if facts.dataset else 0
    return MANY_ROWS_ORDER if rows >= MANY_ROWS else FEW_ROWS_ORDER


def _key(plan: Plan, goal: str, order: Sequence[str]) -> tuple[Any, ...]:
    spec = plan.spec
    few_steps = plan.steps is not None and plan.steps < FEWEST_STEPS
    offload = OFFLOADS.index(spec.parallel.offload)
    method = order.index(spec.method.method)
    strategy = STRATEGIES.index(spec.parallel.strategy)
    if goal == "least-memory":
        return (few_steps, plan.memory.device_bytes)
    if goal == "fastest":
        return (offload, strategy, method, spec.training.gradient_checkpointing)
    return (few_steps, offload > 0, method, offload, strategy)


def _explained(plan: Plan, facts: Facts) -> Plan:
    return replace(plan, why=(*_for(plan, facts), *_against(plan)))


def _for(plan: Plan, facts: Facts) -> list[str]:
    rows = facts.dataset.rows if facts.dataset else 0
    method = plan.spec.method.method
    lines = {
        "full": f"for: with {rows:,} rows there is something for all weights to learn"
        if rows >= MANY_ROWS
        else "for: nothing limits what it can learn",
        "lora": "for: keeps what the model knows, and the result is a small file",
        "qlora": "for: the least device memory",
    }
    found = [lines[method]]
    if plan.spec.parallel.strategy == "ddp":
        found.append(f"for: {plan.spec.parallel.num_devices} ranks share the rows")
    return found


def _against(plan: Plan) -> list[str]:
    spec = plan.spec
    found = []
    if spec.method.method == "full":
        found.append("against: the result is as large as the model; few rows are learnt by heart")
    if spec.method.method == "qlora":
        found.append("against: 4-bit weights are less exact, and unpacking them costs time")
    if spec.parallel.strategy == "zero3":
        found.append("against: every layer's weights travel between the devices at each use")
    if spec.parallel.offload != "none":
        found.append("against: host memory is far slower than device memory")
    if plan.memory.over_bytes > 0:
        found.append(f"against: {plan.memory.over_bytes / 1024**3:.1f} GiB too large")
    return found
