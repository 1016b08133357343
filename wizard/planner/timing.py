"""Spec + machine → seconds of a step and of the run, what limits them, energy and cost."""

from __future__ import annotations

import math
from dataclasses import replace

from engine.spec import Spec
from wizard.facts import Dataset, Device, Facts, Link, Measured
from wizard.islands import FAST
from wizard.plan import Plan
from wizard.planner.pool import Pool
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.speed import Rates, StepTime, rates_of, step_time

FAST_SHARE = 0.78
"""Of a link's bandwidth that collectives reach: 350 of 450 GB/s through NVSwitch (nccl #986)."""
BUS_SHARE = 0.63
"""The same over PCIe between devices that read each other's memory: 20 of 31.5 GB/s."""
STAGED_SHARE = 0.32
"""The same where every byte goes through host memory: 8 to 12 of 31.5 GB/s."""
NETWORK_SHARE = 0.88
"""The same over a network between machines: 11 of the 12.5 GB/s of 100 Gbps, 45 of 50 of 400."""
MESHED = ("nvlink", "xgmi", "hccs")
"""Links that go from one device to one other."""
MIDDLE = 2 ** (-1 / 16)
"""Rows of up to so many characters have this share of them: the length before is 2^(1/8) less."""
SECONDS_PER_HOUR = 3600
RELATIVE = Rates(
    matrix_flops_per_second=200e12,
    attention_flops_per_second=170e12,
    memory_bytes_per_second=1600e9,
    link_bytes_per_second=100e9,
)
"""Rates from the middle of the table: to compare two sizes on a device that is unknown."""


class Clock:
    """Times specs of one model on one machine."""

    def __init__(self, facts: Facts, pool: Pool) -> None:
        assert facts.model is not None
        self.facts = facts
        self.pool = pool
        self.model = facts.model
        self.shape = shape_of(facts.model)
        self._rates: dict[int, Rates | None] = {}

    def step(
        self, spec: Spec, *, relative: bool = False, length: int | None = None
    ) -> StepTime | None:
        """Seconds of an optimizer step; None where a rate or the layers are unknown.

        Every row counts as `length` tokens, or as `max_length`. `relative` has other rates where
        these are unknown: good for nothing but comparing two specs.
        """
        if self.shape is None:
            return None
        setup = setup_of(spec, self.model, self.shape, whole=True)
        if setup is None:
            return None
        if length is not None:
            setup = replace(setup, length=length)
        rates = self.rates(spec.parallel.num_devices)
        nvme = spec.parallel.offload_device == "nvme"
        steps = spec.training.gradient_accumulation_steps
        found = step_time(setup, rates, micro_steps=steps, to_disk=nvme)
        if found is None and relative:
            found = step_time(setup, RELATIVE, micro_steps=steps, to_disk=nvme)
        return found

    def rates(self, devices: int) -> Rates | None:
        """Rates of the slowest device among those used, and of the slowest link between two."""
        if devices not in self._rates:
            self._rates[devices] = self._rates_of(devices)
        return self._rates[devices]

    def _rates_of(self, count: int) -> Rates | None:
        used = self.pool.take(count, self.facts)
        link_gbs = _slowest_link_gbs(self.facts, used)
        measured = self.facts.measured
        disk = measured.disk_write_gbs if measured else None
        each = [rates_of(d, measured=_of_this(measured, d), link_gbs=link_gbs) for d in used]
        known = [rates for rates in each if rates is not None]
        if not known or len(known) < len(each):
            return None
        slowest = min(known, key=lambda rates: rates.matrix_flops_per_second)
        return replace(slowest, disk_bytes_per_second=disk * 1e9) if disk else slowest

    def timed(self, plan: Plan, price_per_hour: float | None) -> Plan:
        """The plan with its times; unchanged where the device, its links or layers are unknown."""
        found = self.step(plan.spec)
        data = self.facts.dataset
        assert data is not None
        if found is None:
            return plan
        usual = self.step(plan.spec, length=usual_length(plan.spec, data)) or found
        seconds = None if plan.steps is None else plan.steps * usual.seconds
        used = self.pool.take(plan.spec.parallel.num_devices, self.facts)
        return replace(
            plan,
            step_seconds=found.seconds,
            step_terms=found.terms,
            tokens_per_second=found.tokens_per_second * plan.spec.parallel.ranks,
            limited_by=found.limited_by,
            run_seconds=seconds,
            energy_kwh=_energy_kwh(used, seconds),
            cost=_cost(len(used), seconds, price_per_hour),
        )


def _of_this(measured: Measured | None, device: Device) -> Measured | None:
    """What was measured, without the rates of another device than this one."""
    if measured is None or measured.device in ("", device.name):
        return measured
    return replace(measured, matmul_tflops=None, memory_gbs=None)


def usual_length(spec: Spec, data: Dataset) -> int:
    """Tokens a row of a micro-batch has on average, padding included: never more than max_length.

    Together rows have the length of the longest of them, which is what as many rows drawn at random
    have at most, on average over all draws. Where the lengths of rows are not known, it is taken to
    grow from the average to the longest of all as rows are added: half of the way for two.
    """
    longest = spec.data.max_length
    if spec.data.packing or spec.method.stage == "pretrain":  # filled, however short its rows
        return longest
    if not (data.rows and data.total_chars and data.longest_row_chars):
        return longest
    together = spec.training.per_device_train_batch_size * spec.method.sequences_per_row
    most = max(data.longest_row_tokens, 1) / data.longest_row_chars
    if data.length_counts:
        return min(longest, math.ceil(_longest_of(together, data, longest / most) * most))
    alone = min(longest, math.ceil(data.total_chars / data.rows * most))
    return min(longest, math.ceil(longest - (longest - alone) / together))


def _longest_of(draws: int, data: Dataset, cut_chars: float) -> float:
    """Characters of the longest of so many rows drawn at random, each cut at `cut_chars`."""
    total = sum(rows for _, rows in data.length_counts)
    expected, below = 0.0, 0
    for chars, rows in data.length_counts:
        share = ((below + rows) / total) ** draws - (below / total) ** draws
        expected += share * min(chars * MIDDLE, cut_chars)
        below += rows
    return expected


def _energy_kwh(devices: tuple[Device, ...], seconds: float | None) -> float | None:
    """At the devices' power limit, which training reaches and does not pass."""
    limits = [device.readings.power_cap_w for device in devices]
    known = [limit for limit in limits if limit]
    if seconds is None or len(known) < len(devices) or not known:
        return None
    return sum(known) * seconds / SECONDS_PER_HOUR / 1000


def _cost(devices: int, seconds: float | None, price_per_hour: float | None) -> float | None:
    if seconds is None or price_per_hour is None:
        return None
    return price_per_hour * devices * seconds / SECONDS_PER_HOUR


def _slowest_link_gbs(facts: Facts, used: tuple[Device, ...]) -> float | None:
    """What collectives reach among these devices; None when one of the links is unknown.

    A switch, or a bus, gives a device its link's rate; a mesh of links of their own gives it all
    of them at once, because each goes to another device.
    """
    places = {place for place, device in enumerate(facts.devices) if device in used}
    inside = _slowest_inside_gbs(facts, places)
    each = len(facts.devices) // facts.machines or 1
    spanned = {place // each for place in places}
    if len(spanned) < 2:
        return inside
    # A ring of ranks leaves each machine once, over its network.
    network = None if facts.network_gbs is None else facts.network_gbs * NETWORK_SHARE
    alone = len(places) == len(spanned)
    if network is None or (inside is None and not alone):
        return None
    return network if inside is None else min(inside, network)


def _slowest_inside_gbs(facts: Facts, places: set[int]) -> float | None:
    """The same over the links that devices of one machine have."""
    between = [link for link in facts.links if set(link.devices) <= places]
    rates = [(link, _attained(link)) for link in between]
    known = [(link, gbs) for link, gbs in rates if gbs is not None]
    if not known or len(known) < len(rates):
        return None
    if all(link.kind in MESHED for link in between):
        of_each = [sum(gbs for link, gbs in known if place in link.devices) for place in places]
        return min(of_each)
    return min(gbs for _, gbs in known)


def _attained(link: Link) -> float | None:
    if link.gbs is None:
        return None
    if link.kind in FAST:
        return link.gbs * FAST_SHARE
    return link.gbs * (STAGED_SHARE if link.peer_access is False else BUS_SHARE)
