"""One candidate → a Plan with every value decided, or why it is refused."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from engine import rules
from engine.spec import Spec
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import ON_DISK, Memory, Plan
from wizard.planner import defaults, levers, recipe, stage
from wizard.planner.batch import FEWEST_STEPS, Batch, BatchError, nearest, solve
from wizard.planner.budgets import Budget, budget_of
from wizard.planner.candidates import ADAPTER_SETTINGS, Candidate
from wizard.planner.ledger import Ledger
from wizard.planner.memory import estimate
from wizard.planner.pool import Pool
from wizard.planner.rungs import rungs
from wizard.planner.sizing import LEAST, Sizes, Sizing
from wizard.planner.timing import Clock
from wizard.planner.warnings import problems
from wizard.planner.wording import describe, sharing_reason, title
from wizard.problem import Problem
from wizard.wording import counted

USUAL_EPOCHS = 3.0
CPU_MICRO_BATCH = 4
"""A cap by judgement, not by measurement: larger ones cost memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a candidate became no plan."""

    problem: Problem
    weight: int
    """How close it came: contradictions found later say more."""


def make(
    candidate: Candidate, facts: Facts, answers: Answers, pool: Pool, clock: Clock
) -> Plan | Refusal:
    """The plan of a candidate, or its refusal."""
    ledger = Ledger(answers=answers)
    try:
        batch = _batch(candidate, facts, answers, pool)
    except BatchError as error:
        return _refused(str(error), "effective_batch_size", 2)
    assert facts.dataset is not None
    if facts.dataset.rows < batch.effective:
        return _too_few_rows(facts, answers, batch)
    layers = facts.model.num_layers if facts.model else None
    if layers is not None and candidate.devices_per_rank > layers:
        return _refused(f"{layers} layers are fewer than the devices", "devices_per_rank", 0)
    if candidate.strategy != "single" and batch.devices == 1 and candidate.ranks > 1:
        return _refused("this batch leaves one device only", "effective_batch_size", 0)
    batch = _for_cpu(batch) if pool.kind == "cpu" else batch
    batch = stage.suits(batch, stage.stage_of(facts, answers), answers.fixed)
    candidate = replace(candidate, devices=batch.devices * candidate.devices_per_rank)
    _decide(ledger, candidate, facts, pool, batch)
    try:
        spec = ledger.spec()
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][-1]) if len(first["loc"]) > 1 else "settings"
        return _refused(first["msg"].removeprefix("Value error, "), where, 3)
    alike = rules.not_alike(spec, facts.model.architecture if facts.model else None)
    if alike is not None:
        setting = "packing" if spec.data.packing else "padding_free"
        return _refused(alike, setting, 4)
    broken = rules.check(spec)
    if broken:
        return _refused(broken[0].why, broken[0].setting, 4, fix=f"set {broken[0].nearest}")
    unused = _unused(spec, answers.settings)
    if unused:
        return _refused("method=full has no adapter", ", ".join(unused), 5)
    return _plan(ledger, spec, facts, pool, batch, clock)


def _too_few_rows(facts: Facts, answers: Answers, batch: Batch) -> Refusal:
    data = facts.dataset
    assert data is not None
    packs = bool(answers.fixed.get("packing"))
    unit = "pack" if packs else stage.unit_of(stage.stage_of(facts, answers))
    packed = "" if unit == "row" else ", into which its rows of text are packed,"
    packed = ", into which its rows are put," if packs else packed
    fill = f"{counted(data.rows, unit)}{packed} {'does' if data.rows == 1 else 'do'} not fill"
    fix = "packing=false, or a shorter max_length, makes more" if packs else ""
    if not packs:
        fix = f"on fewer devices, effective_batch_size={data.rows} or less fits"
        if unit == "block":
            fix += "; a shorter max_length makes more blocks"
    return _refused(f"{fill} one step of {batch.effective}", data.path, 1, fix=fix, exit_code=4)


def _unused(spec: Spec, settings: Mapping[str, Any]) -> list[str]:
    return sorted(ADAPTER_SETTINGS & set(settings)) if spec.method.method == "full" else []


def _for_cpu(batch: Batch) -> Batch:
    """Without the large micro-batches: they keep no CPU busier, and each costs memory."""
    small = tuple(micro for micro in batch.micros if micro <= CPU_MICRO_BATCH)
    return replace(batch, micros=small or batch.micros[-1:])


def _batch(candidate: Candidate, facts: Facts, answers: Answers, pool: Pool) -> Batch:
    assert facts.dataset is not None
    # More passes over the same rows are no reason for a larger batch, nor are steps for a try.
    epochs = min(answers.fixed.get("num_train_epochs", USUAL_EPOCHS), USUAL_EPOCHS)
    return solve(
        answers.fixed,
        devices=candidate.ranks,
        devices_fixed=pool.fixed or candidate.strategy == "single",
        rows=facts.dataset.rows * epochs,
    )


def _decide(ledger: Ledger, candidate: Candidate, facts: Facts, pool: Pool, batch: Batch) -> None:
    """Everything, with the smallest micro-batch: sizes and rhythm are decided again later."""
    learnt = stage.stage_of(facts, ledger.answers)
    plain = learnt == "pretrain"
    method, strategy = candidate.method, candidate.strategy
    defaults.decide_model(ledger, facts, method, strategy, pool.smallest, plain=plain)
    defaults.decide_data(ledger, facts, plain=plain)
    ledger.decide("method", candidate.method, describe(candidate.method))
    recipe.decide_method(ledger, candidate.method, facts)
    stage.decide_stage(ledger, learnt)
    stage.decide_adapter_options(ledger, full=candidate.method == "full")
    stage.decide_evaluation(ledger)
    _decide_parallel(ledger, candidate, facts, pool)
    defaults.decide_optimizer(ledger, pool.kind, candidate.strategy)
    recipe.decide_schedule(ledger, facts, candidate.method, learnt)
    packs = "counted in packs of rows" if ledger.answers.fixed.get("packing") else ""
    notes = (packs, _left_out_note(batch, candidate, pool), _rest_note(facts, batch))
    ledger.decide(
        "effective_batch_size",
        batch.effective,
        batch.reason,
        note="; ".join(filter(None, notes)),
        changes_with=f"fewer rows: smaller, so that {FEWEST_STEPS} steps are left",
    )
    _decide_sizes(ledger, batch, batch.micros[-1], "", None)
    recipe.decide_rhythm(ledger, _steps(ledger, facts, batch), None)
    stage.decide_evaluation_rhythm(ledger)
    levers.decide_levers(ledger)


def _decide_parallel(ledger: Ledger, candidate: Candidate, facts: Facts, pool: Pool) -> None:
    ledger.decide("strategy", candidate.strategy, sharing_reason(candidate))
    ledger.decide("device_kind", pool.kind, pool.reason)
    ledger.decide("num_devices", candidate.devices, _count_reason(candidate, pool))
    each = candidate.devices_per_rank
    spread = f"the layers of each copy are spread over {each}"
    alone = "each rank has a device of its own"
    ledger.decide("devices_per_rank", each, spread if each > 1 else alone)
    ledger.decide("devices", *_names(candidate, pool, facts))
    ledger.decide("offload", candidate.offload, _offload_reason(candidate.offload))
    to_disk = candidate.offload_device == "nvme"
    ledger.decide(
        "offload_device",
        candidate.offload_device,
        "host memory is too small for it" if to_disk else "host memory is faster than any disk",
    )
    place = pool.nvme_path if to_disk else None
    ledger.decide(
        "nvme_path",
        place,
        "the runs' folder, on a fast disk" if to_disk else "nothing goes to a disk",
    )


def _left_out_note(batch: Batch, candidate: Candidate, pool: Pool) -> str:
    """The nearest sizes that all ranks would share evenly, where this one leaves some out."""
    ranks = pool.count // candidate.devices_per_rank
    if candidate.strategy == "single" or batch.effective % ranks == 0:
        return ""
    below, above = nearest(batch.effective, ranks)
    sizes = " or ".join(str(size) for size in (below, above) if size)
    return f"{counted(ranks, 'rank')} would share {sizes} evenly"


def _rest_note(facts: Facts, batch: Batch) -> str:
    """The rows of a pass need not divide into whole steps."""
    assert facts.dataset is not None
    rest = facts.dataset.rows % batch.effective
    own = counted(rest, "row")
    return f"the last step of a pass has only {own} of its own" if rest else ""


def _count_reason(candidate: Candidate, pool: Pool) -> str:
    if candidate.strategy == "single":
        return "one device"
    if candidate.devices == pool.island and candidate.devices < pool.count:
        return f"{candidate.devices} of {pool.count}: these reach each other best"
    if candidate.devices < pool.count:
        return f"{pool.count} do not share the effective batch evenly, {candidate.devices} do"
    return "one device" if candidate.devices == 1 else pool.reason


def _offload_reason(offload: str) -> str:
    return {
        "none": "everything stays on the devices, which is fastest",
        "optimizer": "optimizer states move to host memory, their step to the CPU",
        "parameters": "weights and optimizer states wait in host memory: least memory, slowest",
    }[offload]


def _names(candidate: Candidate, pool: Pool, facts: Facts) -> tuple[tuple[str, ...], str]:
    """(names of the devices for the engine, why these)."""
    used = pool.take(candidate.devices, facts)
    if used[0].kind in ("rocm", "npu"):
        return tuple(str(d.index) for d in used), "numbered: their runtime takes no UUID"
    if all(d.uuid for d in used):
        return tuple(d.uuid for d in used if d.uuid), "named by UUID, which outlives a reboot"
    return (), "CPU ranks have no names" if used[0].kind == "cpu" else "these have no UUID"


def _decide_sizes(
    ledger: Ledger, batch: Batch, micro: int, recompute_why: str, larger: int | None
) -> None:
    least = recompute_why == LEAST
    how = "" if recompute_why else " without computing anything twice"
    alternatives = {larger: f"does not fit in memory{how}"} if larger and not least else {}
    reason = "the smallest part: least memory"
    if not least:
        reason = _micro_reason(batch, micro, how if larger else None)
    ledger.decide("per_device_train_batch_size", micro, reason, alternatives)
    ledger.decide(
        "gradient_accumulation_steps",
        batch.accumulation(micro),
        f"{batch.effective} / ({micro} × {batch.devices}), exactly",
    )
    ledger.decide(
        "gradient_checkpointing",
        bool(recompute_why),
        "activations are computed again in the backward pass: slower, far less memory"
        if recompute_why
        else "all activations fit, so nothing is computed twice",
        {False: recompute_why} if recompute_why else {},
    )


def _micro_reason(batch: Batch, micro: int, how: str | None) -> str:
    if how is not None:
        return f"the largest part that fits at once{how}"
    if micro * batch.devices == batch.effective:
        return "a device's whole share fits at once"
    return "capped on a CPU: more rows at once cost memory"


def _steps(ledger: Ledger, facts: Facts, batch: Batch) -> int:
    """Optimizer steps as the trainer counts them: the last, smaller batch of a pass is a step."""
    fixed = ledger.decisions["max_steps"].value
    if fixed and fixed > 0:
        return int(fixed)
    assert facts.dataset is not None
    per_pass = math.ceil(facts.dataset.rows / batch.effective)
    return math.ceil(per_pass * float(ledger.decisions["num_train_epochs"].value))


def _plan(ledger: Ledger, spec: Spec, facts: Facts, pool: Pool, batch: Batch, clock: Clock) -> Plan:
    assert facts.model is not None
    model, answers = facts.model, ledger.answers
    budget = budget_of(pool, facts, batch.devices)
    sizing = Sizing(
        model=model,
        # Sizes do not change what is written to disk.
        budget=replace(budget, disk_bytes=None),
        batch=batch,
        clock=clock,
        rates=clock.rates(spec.parallel.num_devices),
        least_memory=answers.goal == "least-memory",
        checkpointing=answers.fixed.get("gradient_checkpointing"),
        keeps_optimizer="optim" in answers.fixed,
    )
    spec, memory = _final(ledger, sizing.choose(spec), facts, batch, budget, clock)
    steps = _steps(ledger, facts, batch)
    plan = Plan(
        title=title(spec),
        spec=spec,
        decisions=ledger.in_order(),
        memory=memory,
        steps=steps,
        rungs=tuple(
            rungs(
                spec,
                answers.fixed,
                batch,
                model=model,
                budget=budget,
                software=facts.software,
                unified=pool.unified,
            )
        ),
        problems=tuple(problems(spec, facts, steps, answers, memory.host_bytes)),
    )
    return clock.timed(plan, answers.price_per_hour)


def _final(
    ledger: Ledger, sizes: Sizes, facts: Facts, batch: Batch, budget: Budget, clock: Clock
) -> tuple[Spec, Memory]:
    """(spec, memory): with its sizes, and the rhythm that follows from how long a step takes."""
    assert facts.model is not None
    training = sizes.spec.training
    micro = training.per_device_train_batch_size
    _decide_sizes(ledger, batch, micro, sizes.recompute_why, sizes.larger)
    if sizes.states_why:
        ledger.decide(
            "optim",
            training.optim,
            "8-bit states: a quarter of the memory, slightly less exact",
            {"adamw_torch_fused": sizes.states_why},
        )
    seconds = clock.step(sizes.spec)
    recipe.decide_rhythm(
        ledger, _steps(ledger, facts, batch), None if seconds is None else seconds.seconds
    )
    stage.decide_evaluation_rhythm(ledger)
    spec = ledger.spec()
    memory = estimate(spec, facts.model, budget)
    if memory.over_where == ON_DISK:
        ledger.decide("save_total_limit", 1, "the disk has room for the newest only")
        spec = ledger.spec()
        memory = estimate(spec, facts.model, budget)
    return spec, memory


def _refused(what: str, where: str, weight: int, *, fix: str = "", exit_code: int = 2) -> Refusal:
    problem = Problem(what=what, where=where, fix=fix, exit_code=exit_code)
    return Refusal(problem=problem, weight=weight)
