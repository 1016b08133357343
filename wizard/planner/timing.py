"""Plan + machine → the plan with the seconds of its step, its tokens per second, its limit."""

from __future__ import annotations

from dataclasses import replace

from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner.pool import Pool
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.speed import Rates, rates_of, step_time

COLLECTIVE_SHARE = 0.78
"""Of a link's bandwidth that collectives reach: 350 of 450 GB/s through NVSwitch."""


def timed(plan: Plan, facts: Facts, pool: Pool) -> Plan:
    """The plan with its times; unchanged where the device, its links or the layers are unknown.

    Every row counts as `max_length` tokens, so that rows that are shorter come out faster.
    Preferences are not timed: the reference model's own pass is none of the step that is known.
    """
    assert facts.model is not None
    if plan.spec.method.stage not in ("sft", "pretrain"):
        return plan
    shape = shape_of(facts.model)
    setup = None if shape is None else setup_of(plan.spec, facts.model, shape)
    if setup is None:
        return plan
    steps = plan.spec.training.gradient_accumulation_steps
    found = step_time(setup, _rates(facts, pool, setup.world_size), micro_steps=steps)
    if found is None:
        return plan
    return replace(
        plan,
        step_seconds=found.seconds,
        tokens_per_second=found.tokens_per_second * setup.world_size,
        limited_by=found.limited_by,
    )


def _rates(facts: Facts, pool: Pool, ranks: int) -> Rates | None:
    """Rates of the slowest device among the ranks, and of the slowest link between two."""
    link_gbs = _slowest_link_gbs(facts, pool, ranks)
    used = pool.devices[:ranks]
    each = [rates_of(device, measured=facts.measured, link_gbs=link_gbs) for device in used]
    known = [rates for rates in each if rates is not None]
    if not known or len(known) < len(each):
        return None
    return min(known, key=lambda rates: rates.matrix_flops_per_second)


def _slowest_link_gbs(facts: Facts, pool: Pool, ranks: int) -> float | None:
    """What collectives reach over the slowest link; None when one of the links is unknown."""
    used = pool.devices[:ranks]
    places = {place for place, device in enumerate(facts.devices) if device in used}
    between = [link.gbs for link in facts.links if set(link.devices) <= places]
    known = [gbs for gbs in between if gbs is not None]
    if not known or len(known) < len(between):
        return None
    return min(known) * COLLECTIVE_SHARE
