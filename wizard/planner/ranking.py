"""The order of plans for a goal, and the words for and against each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Alternative, Decision, Plan, speeds_unknown
from wizard.planner.batch import FEWEST_STEPS
from wizard.planner.candidates import WAYS, Candidate
from wizard.planner.recipe import MANY_ROWS
from wizard.wording import counted, gib, how_to_know_speeds

FEW_ROWS_ORDER = ("lora", "full", "qlora")
MANY_ROWS_ORDER = ("full", "lora", "qlora")
SAME_TIME = 0.12
"""Plans whose predicted times differ by less are as fast as each other: it is the median error of
the predictions, and the simpler plan wins."""


NEARLY_FULL = 0.75
"""Share of a device's budget from which it is said why 4-bit weights are not needed."""
NOTABLY = 1.5
"""Times the quickest plan's time from which a plan says so."""
TOO_SLOW = 3.0
"""Times the quickest plan's time at which a better method is no longer worth its wait."""


def ranked(plans: Sequence[Plan], facts: Facts, answers: Answers) -> tuple[Plan, ...]:
    """Plans that fit by the goal, best first; then the others, nearest first.

    One that fits only if host memory is large enough comes after those that fit for certain.
    """
    order = method_order(facts)
    fitting = [plan for plan in plans if plan.fits]
    quickest = min((_rate(plan) for plan in fitting if plan.step_seconds), default=None)
    fitting = sorted(_by_goal(fitting, answers.goal, order), key=lambda plan: plan.host_unknown)
    others = sorted((p for p in plans if not p.fits), key=lambda p: (p.memory.over_bytes, p.title))
    slower = {id(plan): _slower(plan, fitting, quickest) for plan in fitting}
    guessed = answers.goal == "fastest" and speeds_unknown(fitting)
    told = (_no_order(facts),) if guessed else ()
    return tuple(
        _explained(
            plan,
            plans,
            facts,
            (*slower.get(id(plan), ()), *tied(plan, fitting)),
            told if plan.fits else (),
        )
        for plan in (*fitting, *others)
    )


def _no_order(facts: Facts) -> str:
    how = how_to_know_speeds(facts.machine)
    return f"speeds are unknown here, so this is no order by speed: {how}"


def worth_trying(candidate: Candidate, made: Sequence[Plan], answers: Answers) -> bool:
    """Whether no plan made before, of the same method, is better for certain.

    Where less memory is not the goal, moving something off the devices, or spreading layers over
    them, only makes slower what fits without; ZeRO-1 saves ZeRO-2's exchange of each micro-batch.
    """
    if answers.goal == "least-memory" or {"strategy", "offload"} & set(answers.fixed):
        return True
    same = [plan for plan in made if plan.spec.method.method == candidate.method]
    if candidate.strategy == "layer_split" and answers.goal != "fewest-devices":
        return bool(same) and not any(plan.fits for plan in same)
    if candidate.strategy == "zero1":
        zero2 = [plan for plan in same if plan.spec.parallel.strategy == "zero2"]
        return any(p.spec.training.gradient_accumulation_steps > 1 for p in zero2)
    if candidate.offload == "none":
        return bool(same) or candidate.strategy != "layer_split"
    held = [p for p in same if p.spec.parallel.strategy != "layer_split" and p.fits]
    if candidate.offload_device == "nvme":
        return not held
    return all(plan.spec.parallel.offload != "none" for plan in held)


def best_variant(plans: Sequence[Plan], goal: str) -> Plan:
    """Of the same way on different numbers of devices the one that suits the goal.

    One that fits, before others; then the fastest, or the one with the fewest devices.
    """
    fitting = [plan for plan in plans if plan.fits]
    if not fitting:
        return min(plans, key=lambda plan: (plan.memory.over_bytes, plan.title))
    if goal == "fewest-devices":
        return min(fitting, key=lambda plan: plan.spec.parallel.num_devices)
    if goal == "least-memory":
        return min(fitting, key=lambda plan: (plan.memory.device_bytes, plan.title))
    return _fastest_first(fitting)[0]


def method_order(facts: Facts) -> tuple[str, ...]:
    """Methods from best to worst for the amount of data."""
    rows = facts.dataset.rows if facts.dataset else 0
    return MANY_ROWS_ORDER if rows >= MANY_ROWS else FEW_ROWS_ORDER


def _by_goal(plans: list[Plan], goal: str, order: Sequence[str]) -> list[Plan]:
    if goal == "least-memory":
        return sorted(plans, key=lambda p: (_few_steps(p), p.memory.device_bytes, simplicity(p)))
    if goal == "fastest":
        return _fastest_first(plans)

    quickest = min((_rate(plan) for plan in plans if plan.step_seconds), default=None)

    def worth(plan: Plan) -> tuple[Any, ...]:
        offloads = plan.spec.parallel.offload != "none"
        method = order.index(plan.spec.method.method)
        slow = _times_slower(plan, quickest) > TOO_SLOW
        if goal == "fewest-devices":
            devices = plan.spec.parallel.num_devices
            return (devices, _few_steps(plan), offloads, method, _rounds(plan))
        return (_few_steps(plan), offloads, slow, method, _rounds(plan))

    return [plan for group in _groups(plans, worth) for plan in _fastest_first(group)]


def _times_slower(plan: Plan, quickest: float | None) -> float:
    """Than the quickest plan that fits; 1 where a time is unknown."""
    return _rate(plan) / quickest if plan.step_seconds and quickest else 1.0


def _groups(plans: list[Plan], key: Callable[[Plan], tuple[Any, ...]]) -> list[list[Plan]]:
    """Plans of the same worth together, the best first."""
    found: dict[tuple[Any, ...], list[Plan]] = {}
    for plan in plans:
        found.setdefault(key(plan), []).append(plan)
    return [found[worth] for worth in sorted(found)]


def _fastest_first(plans: Sequence[Plan]) -> list[Plan]:
    """The quickest run first; among those as fast as the quickest left, the simplest.

    Where one time is unknown, more devices are taken to be faster, and then the simpler way.
    """
    if not all(plan.step_seconds for plan in plans):
        return sorted(plans, key=_by_guess)
    left, found = sorted(plans, key=lambda plan: (_rate(plan), plan.title)), []
    while left:
        limit = _rate(left[0]) * (1 + SAME_TIME)
        same = [plan for plan in left if _rate(plan) <= limit]
        found += sorted(same, key=lambda plan: (simplicity(plan), _rate(plan), plan.title))
        left = [plan for plan in left if _rate(plan) > limit]
    return found


def _rate(plan: Plan) -> float:
    """What times are compared by, the smaller the faster: seconds of the run, as they are shown.

    All plans pass the rows equally often, so their batches may differ. Where steps are fixed, or
    not known, a larger batch has more rows: it is the seconds of a row.
    """
    assert plan.step_seconds is not None
    training = plan.spec.training
    if plan.steps is None:
        return plan.step_seconds / training.effective_batch_size
    whole = plan.steps * plan.step_seconds if plan.run_seconds is None else plan.run_seconds
    return whole / training.effective_batch_size if training.max_steps > 0 else whole


def tied(plan: Plan, plans: Sequence[Plan]) -> list[str]:
    """Why it comes before plans that are quicker: times this near are the same.

    Nothing is said of a plan that is far slower than the quickest: other reasons placed it.
    """
    if not plan.fits or plan.step_seconds is None:
        return []
    rates = [(one, _rate(one)) for one in plans if one.fits and one.step_seconds]
    mine = _rate(plan)
    if mine >= NOTABLY * min(rate for _, rate in rates):
        return []
    below = {id(one) for one in plans[plans.index(plan) + 1 :]}
    quicker = [
        100 * (mine / rate - 1)
        for one, rate in rates
        if id(one) in below and rate < mine <= (1 + SAME_TIME) * rate
    ]
    if round(max(quicker, default=0)) < 1:
        return []
    return [
        f"a tie: times within {100 * SAME_TIME:.0f} % are as fast as each other, and the simpler "
        f"way comes first (below: up to {max(quicker):.0f} % quicker)"
    ]


def _by_guess(plan: Plan) -> tuple[Any, ...]:
    parallel, training = plan.spec.parallel, plan.spec.training
    offload = ("none", "optimizer", "parameters").index(parallel.offload)
    return (offload, -parallel.ranks, simplicity(plan), training.gradient_checkpointing, plan.title)


def simplicity(plan: Plan) -> tuple[int, int]:
    """The less moves, the smaller: the place in WAYS, then the devices."""
    parallel = plan.spec.parallel
    way = (parallel.strategy, parallel.offload, parallel.offload_device)
    place = WAYS.index(way) if way in WAYS else len(WAYS)
    return place, parallel.num_devices


def _few_steps(plan: Plan) -> bool:
    return plan.steps is not None and plan.steps < FEWEST_STEPS


def _rounds(plan: Plan) -> int:
    """How much of small updates of all weights is lost: no float32 copy, 8-bit averages."""
    spec = plan.spec
    if spec.method.method != "full" or spec.model.dtype == "float32":
        return 0
    kept = spec.parallel.strategy in ("zero1", "zero2", "zero3", "fsdp")
    return 0 if kept else 1 + (spec.training.optim == "adamw_bnb_8bit")


def _slower(plan: Plan, fitting: Sequence[Plan], quickest: float | None) -> tuple[str, ...]:
    """How much slower it is than the quickest, and where that one's larger batch is why not it."""
    times = _times_slower(plan, quickest)
    if times < NOTABLY:
        return ()
    found = f"against: {times:.1f} × the quickest plan's time"
    first = next(one for one in fitting if one.step_seconds and _rate(one) == quickest)
    if not _few_steps(first) or _few_steps(plan):
        return (found,)
    few, many = counted(first.steps or 0, "step"), counted(plan.steps or 0, "step")
    return (found, f"for: {many}; the quickest, of a larger batch, has only {few}")


def _explained(
    plan: Plan,
    plans: Sequence[Plan],
    facts: Facts,
    compared_by_time: tuple[str, ...],
    told: tuple[str, ...],
) -> Plan:
    same = [one for one in plans if one.spec.method.method == plan.spec.method.method]
    others = tuple(_alternative(one, plan) for one in same if one is not plan)
    narrow = _narrow(plan, plans)

    def compared(decision: Decision) -> Decision:
        if decision.origin != "planner":
            return decision
        if decision.setting == "strategy":
            return replace(decision, alternatives=others)
        if decision.setting == "method" and narrow:
            return replace(decision, alternatives=narrow)
        return decision

    return replace(
        plan,
        decisions=tuple(compared(decision) for decision in plan.decisions),
        why=(
            *told,
            *_for(plan, facts, least=_is_least(plan, plans)),
            *_against(plan),
            *compared_by_time,
        ),
    )


def _narrow(plan: Plan, plans: Sequence[Plan]) -> tuple[Alternative, ...]:
    """Why 16-bit weights and not 4-bit ones, or the other way round, where a device is nearly full.

    The two share the devices in the same way. Nothing is said where there is room for both.
    """
    budget = plan.memory.device_budget_bytes
    instead = {"lora": "qlora", "qlora": "lora"}.get(plan.spec.method.method)
    parallel = plan.spec.parallel
    other = next(
        (p for p in plans if (p.spec.method.method, p.spec.parallel) == (instead, parallel)), None
    )
    if other is None or budget is None or not plan.fits:
        return ()
    if not other.fits:
        return (Alternative(value=other.spec.method.method, why_not=_why_not(other, plan)),)
    needed = plan.memory.device_bytes
    if instead == "lora" or needed < NEARLY_FULL * budget:
        return ()
    why = f"not needed: without it {gib(needed)} of {gib(budget)} a rank may use"
    return (Alternative(value="qlora", why_not=why),)


def _alternative(other: Plan, plan: Plan) -> Alternative:
    """Another way to train by the same method, and what speaks against it."""
    parallel = other.spec.parallel
    offload = f", offload={parallel.offload}" if parallel.offload != "none" else ""
    return Alternative(
        value=f"{parallel.strategy}{offload} ({counted(parallel.num_devices, 'device')})",
        why_not=_why_not(other, plan),
    )


def _why_not(other: Plan, plan: Plan) -> str:
    memory = other.memory
    if memory.over_bytes > 0:
        least = "at least " if memory.at_least else ""
        return f"{least}{gib(memory.over_bytes)} too large {memory.over_where}"
    errors = [problem.what for problem in other.problems if problem.severity == "error"]
    if errors:
        return errors[0]
    if _rounds(other) > _rounds(plan):
        return "no float32 copy of the weights"
    if other.step_seconds is None or plan.step_seconds is None:
        if other.spec.parallel.ranks < plan.spec.parallel.ranks:
            return "fewer ranks share the rows"
        return "fits as well" if simplicity(other) < simplicity(plan) else "moves more"
    times = _rate(other) / _rate(plan)
    if times > 1 + SAME_TIME:
        return f"{times:.1f} × the time"
    return "fits as well" if simplicity(other) < simplicity(plan) else "no faster, and moves more"


def _is_least(plan: Plan, plans: Sequence[Plan]) -> bool:
    """Whether no other plan needs less of a device."""
    return all(plan.memory.device_bytes <= one.memory.device_bytes for one in plans)


def _for(plan: Plan, facts: Facts, *, least: bool) -> list[str]:
    rows = facts.dataset.rows if facts.dataset else 0
    method, parallel = plan.spec.method.method, plan.spec.parallel
    lines = {
        "full": f"for: with {rows:,} rows there is something for all weights to learn"
        if rows >= MANY_ROWS
        else "for: nothing limits what it can learn",
        "lora": "for: keeps what the model knows, and the result is a small file",
        "qlora": "for: the least device memory"
        if least
        else "for: weights of 4 bits, and the result is a small file",
    }
    found = [lines[method]]
    if parallel.strategy == "ddp":
        found.append(f"for: {parallel.num_devices} ranks share the rows")
    if method == "full" and not _rounds(plan) and plan.spec.model.dtype != "float32":
        found.append("for: a float32 copy of the weights keeps small updates")
    return found


def _against(plan: Plan) -> list[str]:
    spec = plan.spec
    strategy = spec.parallel.strategy
    found = []
    if spec.method.method == "full":
        found.append("against: the result is as large as the model; few rows are learnt by heart")
    if _rounds(plan):
        found.append("against: weights without a float32 copy lose updates too small for bfloat16")
    if spec.method.method == "qlora":
        found.append("against: 4-bit weights are less exact, and unpacking them costs time")
    if strategy in ("zero3", "fsdp"):
        found.append("against: every layer's weights travel between the devices at each use")
    if strategy == "layer_split":
        found.append("against: one device works at a time")
    if spec.parallel.offload_device == "nvme":
        found.append("against: a disk is far slower than any memory")
    elif spec.parallel.offload != "none":
        found.append("against: host memory is far slower than device memory")
    if plan.memory.over_bytes > 0:
        least = "at least " if plan.memory.at_least else ""
        over = f"{gib(plan.memory.over_bytes)} too large {plan.memory.over_where}"
        found.append(f"against: {least}{over}")
    return found
