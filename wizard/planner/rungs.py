"""Spec → the further rungs of a run's fallback ladder: the same effective batch in less memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engine import rules
from engine.spec import Spec
from wizard.facts import Model, Software
from wizard.planner.batch import Batch
from wizard.planner.budgets import Budget
from wizard.planner.memory import could_fit
from wizard.planner.sizing import smaller_states
from wizard.planner.warnings import steps_on_host

SHARED: Mapping[str, Mapping[str, tuple[tuple[str, str], ...]]] = {
    "full": {
        "single": (("zero2", "optimizer"), ("zero3", "parameters")),
        "ddp": (("zero2", "none"), ("zero3", "none"), ("zero3", "optimizer")),
        "zero1": (("zero2", "none"), ("zero3", "none"), ("zero3", "optimizer")),
        "zero2": (("zero3", "none"), ("zero3", "optimizer"), ("zero3", "parameters")),
        "zero3": (("zero3", "optimizer"), ("zero3", "parameters")),
        "fsdp": (("fsdp", "parameters"),),
    },
    "lora": {
        "single": (("zero3", "parameters"),),
        "ddp": (("fsdp", "none"), ("fsdp", "parameters")),
        "fsdp": (("fsdp", "parameters"),),
        "zero3": (("zero3", "parameters"),),
    },
}
"""Method and strategy → what shares or moves away more, in the order to try."""


def rungs(
    spec: Spec,
    fixed: Mapping[str, Any],
    batch: Batch,
    *,
    model: Model,
    budget: Budget,
    software: Software,
    unified: bool,
) -> list[Spec]:
    """Exact rungs first: smaller parts, then recomputing; then 8-bit states, sharing, offload.

    The later ones change what a checkpoint holds of the optimizer, so its states start anew.
    None is a spec the trainer refuses, or one whose packages or host memory are missing.
    """
    ladder = list(_exact(spec, fixed, batch))
    last = ladder[-1] if ladder else spec
    smaller = None if "optim" in fixed else smaller_states(last)
    if smaller is not None and last.training.optim != smaller.training.optim:
        ladder.append(smaller)
    if spec.parallel.device_kind != "cpu":
        for shared in _shared(last, fixed, unified=unified):
            if _can_run(shared, model, budget, software):
                ladder.append(shared)
    return ladder


def _exact(spec: Spec, fixed: Mapping[str, Any], batch: Batch) -> Iterator[Spec]:
    """Micro-batches of half or less, then checkpointing."""
    last = spec
    for micro in batch.micros:
        if 2 * micro > last.training.per_device_train_batch_size:
            continue
        last = _training(
            last,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=batch.accumulation(micro),
        )
        yield last
    if not last.training.gradient_checkpointing and "gradient_checkpointing" not in fixed:
        yield _training(last, gradient_checkpointing=True)


def _shared(spec: Spec, fixed: Mapping[str, Any], *, unified: bool) -> Iterator[Spec]:
    ways = SHARED.get(spec.method.method, {}).get(spec.parallel.strategy, ())
    for strategy, offload in ways:
        held = spec.parallel.offload
        if offload == held and strategy == spec.parallel.strategy:
            continue
        if (offload != "none" and unified) or (held == "parameters"):
            continue
        values = {"strategy": strategy, "offload": offload}
        if any(fixed.get(setting, value) != value for setting, value in values.items()):
            continue
        optim = "adamw_torch" if strategy.startswith("zero") else spec.training.optim
        if fixed.get("optim", optim) != optim:
            continue
        parallel = spec.parallel.model_copy(update=values)
        yield _training(spec.model_copy(update={"parallel": parallel}), optim=optim)


def _can_run(spec: Spec, model: Model, budget: Budget, software: Software) -> bool:
    """Whether the trainer takes it, its packages are there, and the host and disk hold it."""
    if rules.check(spec):
        return False
    if any(software.versions.get(name, "") is None for name in rules.packages(spec)):
        return False
    if software.cpu_adam_lacks and steps_on_host(spec):
        return False
    return could_fit(spec, model, budget)


def _training(spec: Spec, **values: object) -> Spec:
    return spec.model_copy(update={"training": spec.training.model_copy(update=values)})
