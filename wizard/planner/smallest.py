"""Machines + what is to be trained → the smallest of them that tunes all weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner import plans
from wizard.problem import ProblemError

OF_THIS_MACHINE = frozenset(
    {
        "device_kind",
        "devices",
        "devices_per_rank",
        "num_devices",
        "nvme_path",
        "offload",
        "offload_device",
        "strategy",
    }
)
"""Settings that say how to train here, and nothing about another machine."""


def smallest_for_full(
    machines: Mapping[str, Facts], facts: Facts, answers: Answers
) -> tuple[str, Plan] | None:
    """Name and plan of the machine with the least device memory that tunes all weights.

    Without moving anything off the devices; None where none of the machines can.
    """
    asked = _elsewhere(answers)
    for name, machine in sorted(machines.items(), key=lambda item: _size(item[1])):
        known = replace(machine, model=facts.model, dataset=facts.dataset)
        try:
            best = plans(known, asked)[0]
        except ProblemError:
            continue
        if best.fits:
            return name, best
    return None


def _elsewhere(answers: Answers) -> Answers:
    def kept(settings: Mapping[str, object]) -> dict[str, object]:
        return {k: v for k, v in settings.items() if k not in OF_THIS_MACHINE}

    return replace(
        answers,
        goal="quality",
        devices=None,
        num_devices=None,
        settings={**kept(answers.settings), "method": "full", "offload": "none"},
        preset_settings=kept(answers.preset_settings),
    )


def _size(machine: Facts) -> tuple[int, int]:
    """Memory of all devices together, then their number; machines without devices come last."""
    memory = [device.memory_total_bytes or 0 for device in machine.accelerators]
    return (sum(memory) if all(memory) and memory else 2**63, len(memory))
