"""One candidate → a Plan with every value decided, or why it is refused."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from engine import rules
from engine.spec import Spec
from wizard.answers import Answers
from wizard.facts import Device, Facts
from wizard.plan import Plan
from wizard.planner import defaults, stage
from wizard.planner.batch import FEWEST_STEPS, Batch, BatchError, solve
from wizard.planner.candidates import ADAPTER_SETTINGS, Candidate
from wizard.planner.ledger import Ledger
from wizard.planner.memory import DEVICE_SHARE, HOST_SHARE, Budget, estimate, fits
from wizard.planner.pool import Pool
from wizard.planner.timing import timed
from wizard.planner.wording import describe, sharing_reason, title
from wizard.problem import Problem
from wizard.wording import counted

CPU_MICRO_BATCH = 4
"""A cap by judgement, not by measurement: larger ones cost memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why a candidate became no plan."""

    problem: Problem
    weight: int
    """How close it came: contradictions found later say more."""


def make(candidate: Candidate, facts: Facts, answers: Answers, pool: Pool) -> Plan | Refusal:
    """The plan of a candidate, or its refusal."""
    ledger = Ledger(answers=answers)
    try:
        batch = _batch(candidate, facts, answers, pool)
    except BatchError as error:
        return _refused(str(error), "effective_batch_size", 2)
    assert facts.dataset is not None
    if facts.dataset.rows < batch.effective:
        rows = facts.dataset.rows
        fill = f"{counted(rows, 'row')} {'does' if rows == 1 else 'do'} not fill"
        what = f"{fill} one step of {batch.effective}"
        return _refused(what, facts.dataset.path, 1, exit_code=4)
    if candidate.strategy == "ddp" and batch.devices == 1:
        return _refused("this batch leaves one device only", "effective_batch_size", 0)
    batch = _for_cpu(batch) if pool.kind == "cpu" else batch
    batch = stage.suits(batch, stage.stage_of(facts, answers), answers.fixed)
    _decide(ledger, replace(candidate, devices=batch.devices), facts, pool, batch)
    try:
        spec = _sized(ledger, facts, pool, batch)
    except ValidationError as error:
        first = error.errors()[0]
        where = str(first["loc"][-1]) if len(first["loc"]) > 1 else "settings"
        return _refused(first["msg"].removeprefix("Value error, "), where, 3)
    broken = rules.check(spec)
    if broken:
        return _refused(broken[0].why, broken[0].setting, 4, fix=f"set {broken[0].nearest}")
    unused = _unused(spec, answers.settings)
    if unused:
        return _refused("method=full has no adapter", ", ".join(unused), 5)
    return _plan(ledger, spec, facts, pool, batch)


def _unused(spec: Spec, settings: Mapping[str, Any]) -> list[str]:
    return sorted(ADAPTER_SETTINGS & set(settings)) if spec.method.method == "full" else []


def _for_cpu(batch: Batch) -> Batch:
    """Without the large micro-batches: they keep no CPU busier, and each costs memory."""
    small = tuple(micro for micro in batch.micros if micro <= CPU_MICRO_BATCH)
    return replace(batch, micros=small or batch.micros[-1:])


def _batch(candidate: Candidate, facts: Facts, answers: Answers, pool: Pool) -> Batch:
    assert facts.dataset is not None
    epochs = answers.fixed.get("num_train_epochs", 3.0)
    steps = answers.fixed.get("max_steps", -1)
    return solve(
        answers.fixed,
        devices=candidate.devices,
        devices_fixed=pool.fixed or candidate.strategy == "single",
        rows=math.inf if steps and steps > 0 else facts.dataset.rows * epochs,
    )


def _decide(ledger: Ledger, candidate: Candidate, facts: Facts, pool: Pool, batch: Batch) -> None:
    """Everything but the micro-batch, checkpointing and what follows from the steps."""
    learnt = stage.stage_of(facts, ledger.answers)
    plain = learnt == "pretrain"
    method, strategy = candidate.method, candidate.strategy
    defaults.decide_model(ledger, facts, method, strategy, pool.smallest, plain=plain)
    defaults.decide_data(ledger, facts)
    ledger.decide("method", candidate.method, describe(candidate.method))
    defaults.decide_method(ledger, candidate.method)
    stage.decide_stage(ledger, learnt)
    stage.decide_adapter_options(ledger, full=candidate.method == "full")
    stage.decide_evaluation(ledger)
    ledger.decide("strategy", candidate.strategy, sharing_reason(candidate, pool))
    ledger.decide("device_kind", pool.kind, pool.reason)
    ledger.decide("num_devices", candidate.devices, _count_reason(candidate, pool))
    ledger.decide("devices_per_rank", 1, "each rank has a device of its own")
    ledger.decide("devices", *_names(candidate, pool))
    ledger.decide("offload", candidate.offload, _offload_reason(candidate.offload))
    ledger.decide("offload_device", "cpu", "host memory is faster than any disk")
    ledger.decide("nvme_path", None, "nothing goes to a disk")
    defaults.decide_optimizer(ledger, pool.kind, candidate.strategy)
    defaults.decide_schedule(ledger, facts, candidate.method, stage.RATES[learnt])
    note = _rest_note(facts, batch)
    ledger.decide("effective_batch_size", batch.effective, batch.reason, note=note)


def _rest_note(facts: Facts, batch: Batch) -> str:
    """The rows of a pass need not divide into whole steps."""
    assert facts.dataset is not None
    rest = facts.dataset.rows % batch.effective
    own = counted(rest, "row")
    return f"the last step of a pass has only {own} of its own" if rest else ""


def _count_reason(candidate: Candidate, pool: Pool) -> str:
    if candidate.devices < pool.count and candidate.strategy != "single":
        return f"{pool.count} do not share the effective batch evenly, {candidate.devices} do"
    return "one device" if candidate.devices == 1 else pool.reason


def _offload_reason(offload: str) -> str:
    return {
        "none": "everything stays on the devices, which is fastest",
        "optimizer": "optimizer states move to host memory, their step to the CPU",
        "parameters": "weights and optimizer states wait in host memory: least memory, slowest",
    }[offload]


def _names(candidate: Candidate, pool: Pool) -> tuple[tuple[str, ...], str]:
    """(names of the devices for the engine, why these)."""
    used = pool.devices[: candidate.devices]
    if used[0].kind in ("rocm", "npu"):
        return tuple(str(d.index) for d in used), "numbered: their runtime takes no UUID"
    if all(d.uuid for d in used):
        return tuple(d.uuid for d in used if d.uuid), "named by UUID, which outlives a reboot"
    return (), "CPU ranks have no names" if used[0].kind == "cpu" else "these have no UUID"


def budget_of(pool: Pool, facts: Facts, ranks: int) -> Budget:
    """Bytes the ranks may use; what others hold on a device is theirs."""
    host = facts.host.memory_available_bytes
    host_bytes = None if host is None else round(host * HOST_SHARE)
    if pool.kind == "cpu":
        each = None if host_bytes is None else host_bytes // ranks
        return Budget(device_bytes=each, host_bytes=host_bytes)
    sizes = [_usable_bytes(d, d.memory_total_bytes) for d in pool.devices if d.memory_total_bytes]
    return Budget(device_bytes=round(min(sizes)) if sizes else None, host_bytes=host_bytes)


def _usable_bytes(device: Device, total_bytes: int) -> float:
    free_bytes = total_bytes if device.memory_free_bytes is None else device.memory_free_bytes
    return min(total_bytes * DEVICE_SHARE, free_bytes)


def _sized(ledger: Ledger, facts: Facts, pool: Pool, batch: Batch) -> Spec:
    """The largest micro-batch that fits with checkpointing; without it where that fits as well."""
    model = facts.model
    assert model is not None
    defaults.decide_rhythm(ledger, _steps(ledger, facts, batch))
    stage.decide_evaluation_rhythm(ledger)
    budget = budget_of(pool, facts, batch.devices)

    def fitting(micro: int, *, checkpointing: bool) -> bool:
        spec = _with(ledger, batch, micro, checkpointing=checkpointing)
        return fits(spec, model, budget)

    largest = batch.micros[0]
    if fitting(largest, checkpointing=False):
        return _with(ledger, batch, largest, checkpointing=False)
    micro = _largest(batch, lambda size: fitting(size, checkpointing=True))
    if micro is None:
        return _with(ledger, batch, batch.micros[-1], checkpointing=True)
    checkpoints = not fitting(micro, checkpointing=False)
    return _with(ledger, batch, micro, checkpointing=checkpoints)


def _largest(batch: Batch, fitting: Callable[[int], bool]) -> int | None:
    """The largest micro-batch that fits, found by halves: a smaller one never needs more.

    One without accumulation stands apart: no gradients wait while it runs.
    """
    whole = [size for size in batch.micros if batch.accumulation(size) == 1]
    if whole and fitting(whole[0]):
        return whole[0]
    sizes = [size for size in batch.micros if size not in whole]
    at = bisect_left(sizes, True, key=fitting)
    return sizes[at] if at < len(sizes) else None


def _with(ledger: Ledger, batch: Batch, micro: int, *, checkpointing: bool) -> Spec:
    ledger.decide("per_device_train_batch_size", micro, *_micro_reason(batch, micro))
    ledger.decide(
        "gradient_accumulation_steps",
        batch.accumulation(micro),
        f"{batch.effective} / ({micro} × {batch.devices}), exactly",
    )
    ledger.decide(
        "gradient_checkpointing",
        checkpointing,
        "activations are computed again in the backward pass: slower, far less memory"
        if checkpointing
        else "all activations fit, so nothing is computed twice",
        {False: "its activations do not fit at this micro-batch"} if checkpointing else {},
    )
    return ledger.spec()


def _micro_reason(batch: Batch, micro: int) -> tuple[str, dict[int, str]]:
    larger = [size for size in batch.micros if size > micro]
    if larger:
        return "the largest part that fits at once", {larger[-1]: "does not fit in memory"}
    if micro * batch.devices == batch.effective:
        return "a device's whole share fits at once", {}
    return "capped on a CPU: more rows at once cost memory", {}


def _steps(ledger: Ledger, facts: Facts, batch: Batch) -> int:
    """Optimizer steps as the trainer counts them: the last, smaller batch of a pass is a step."""
    fixed = ledger.decisions["max_steps"].value
    if fixed and fixed > 0:
        return int(fixed)
    assert facts.dataset is not None
    per_pass = math.ceil(facts.dataset.rows / batch.effective)
    return math.ceil(per_pass * float(ledger.decisions["num_train_epochs"].value))


def _plan(ledger: Ledger, spec: Spec, facts: Facts, pool: Pool, batch: Batch) -> Plan:
    assert facts.model is not None
    steps = _steps(ledger, facts, batch)
    most_tokens = defaults.most_tokens(spec, facts)
    plan = Plan(
        title=title(spec),
        spec=spec,
        decisions=ledger.in_order(),
        memory=estimate(spec, facts.model, budget_of(pool, facts, batch.devices)),
        steps=steps,
        rungs=tuple(rungs(spec, ledger.answers.fixed, batch)),
        problems=tuple(_problems(spec, facts, steps, ledger.answers, most_tokens)),
    )
    return timed(plan, facts, pool)


def rungs(spec: Spec, fixed: Mapping[str, Any], batch: Batch) -> list[Spec]:
    """The fallback ladder: micro-batches of half or less, then checkpointing; one batch size."""
    ladder: list[Spec] = []
    last = spec
    for micro in batch.micros:
        if 2 * micro > last.training.per_device_train_batch_size:
            continue
        last = _resized(last, micro, batch.accumulation(micro))
        ladder.append(last)
    if not last.training.gradient_checkpointing and "gradient_checkpointing" not in fixed:
        ladder.append(_changed(last, gradient_checkpointing=True))
    return ladder


def _resized(spec: Spec, micro: int, accumulation: int) -> Spec:
    return _changed(
        spec, per_device_train_batch_size=micro, gradient_accumulation_steps=accumulation
    )


def _changed(spec: Spec, **values: object) -> Spec:
    return spec.model_copy(update={"training": spec.training.model_copy(update=values)})


def _problems(
    spec: Spec, facts: Facts, steps: int, answers: Answers, most_tokens: int
) -> list[Problem]:
    found = _absent_packages(spec, facts)
    unused = _unused(spec, answers.preset_settings)
    if unused:
        found.append(_not_carried(unused, answers))
    if steps < FEWEST_STEPS:
        found.append(_few(steps))
    if most_tokens > spec.data.max_length:
        found.append(_may_be_cut(spec.data.max_length, most_tokens))
    # A broken driver must not turn into a CPU run that nobody asked for.
    if spec.parallel.device_kind == "cpu" and answers.fixed.get("device_kind") != "cpu":
        found += [p for p in facts.problems if p.severity == "error" and p.exit_code == 6]
    return found


def _absent_packages(spec: Spec, facts: Facts) -> list[Problem]:
    return [
        Problem(
            what=f"{package} is not installed, and {why}",
            where=package,
            fix=f"pip install {package}",
        )
        for package, why in rules.packages(spec).items()
        if facts.software.versions.get(package, "") is None
    ]


def _not_carried(unused: list[str], answers: Answers) -> Problem:
    return Problem(
        what="unused: method=full has no adapter",
        where=f"{', '.join(unused)} of the preset {answers.preset}",
        severity="warning",
    )


def _few(steps: int) -> Problem:
    return Problem(
        what=f"only {counted(steps, 'optimizer step')}: little will be learnt",
        where="effective_batch_size",
        fix="more rows, more epochs or a smaller effective_batch_size",
        severity="warning",
    )


def _may_be_cut(max_length: int, most_tokens: int) -> Problem:
    return Problem(
        what=f"the longest row is estimated at up to {most_tokens:,} tokens: what is over "
        f"{max_length:,} is cut, and a cut answer does not teach to stop",
        where="max_length",
        fix="a larger max_length keeps it whole; the run says how many rows were cut",
        severity="warning",
    )


def _refused(what: str, where: str, weight: int, *, fix: str = "", exit_code: int = 2) -> Refusal:
    problem = Problem(what=what, where=where, fix=fix, exit_code=exit_code)
    return Refusal(problem=problem, weight=weight)
