"""Presets on machines: each fits what it is made for, and fits or explains itself elsewhere."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from engine.methods import STAGE_FORMAT
from engine.spec import SETTINGS
from tests.fakes import machines
from tests.planning import (
    check_ladder,
    check_whole,
    facts,
    model,
    plans_or_problem,
    product,
)
from tests.plans import machines as shipped_pairs
from tests.tiers import spread
from wizard import api, presets
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.planner import plans
from wizard.probe.machine import find, load, shipped
from wizard.problem import Problem

PRESETS = tuple(preset.name for preset in presets.shipped_and_saved())
EVERY = list(itertools.product(machines.NAMES, PRESETS))
THIRTY = [
    (machines.NAMES[n % len(machines.NAMES)], PRESETS[(n + n // len(PRESETS)) % len(PRESETS)])
    for n in range(30)
]
"""Every machine and every preset at least once."""


@pytest.mark.parametrize(
    ("machine", "preset"),
    [
        *spread(THIRTY, every=3),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in EVERY if pair not in THIRTY),
    ],
)
def test_every_preset_on_every_machine_fits_or_explains(machine: str, preset: str) -> None:
    loaded = presets.load(preset)
    known, answers = with_preset(machine, preset)
    found = plans_or_problem(known, answers)
    if isinstance(found, Problem):
        assert found.what
        assert found.fix or found.where
        return
    for plan in found:
        assert plan.fits or plan.memory.over_bytes > 0 or plan.problems
        for setting, value in loaded.settings.items():
            table = getattr(plan.spec, SETTINGS[setting])
            assert getattr(table, setting) == value, setting


def test_the_thirty_have_every_machine_and_every_preset() -> None:
    assert len(THIRTY) == len(set(THIRTY))
    assert {machine for machine, _ in THIRTY} == set(machines.NAMES)
    assert {preset for _, preset in THIRTY} == set(PRESETS)


def with_preset(machine: str, preset: str) -> tuple[Facts, Answers]:
    """Facts and answers of a preset, for its own model where it names one."""
    loaded = presets.load(preset)
    answers = api.with_preset(Answers(), loaded)
    known = facts(machine, answers.model or "Qwen/Qwen3-8B")
    assert known.dataset is not None
    stage = loaded.settings.get("stage", "sft")
    form = STAGE_FORMAT.get(stage, "messages")
    rows = replace(known.dataset, format=form, total_chars=5000 * 3000)
    return replace(known, dataset=rows), answers


@pytest.mark.parametrize(
    ("preset", "machine"),
    [
        ("sft-qlora-4b-8gb", "RTX4060-Laptop-WSL"),
        ("sft-qlora-8b-12gb", "1x NVIDIA GeForce RTX 3060"),
        ("sft-qlora-14b-16gb", "1x NVIDIA GeForce RTX 4080"),
        ("sft-qlora-14b-16gb", "T4-Colab"),
        ("sft-lora-8b-24gb", "1x NVIDIA GeForce RTX 3090"),
        ("sft-qlora-14b-24gb", "1x NVIDIA GeForce RTX 4090"),
        ("sft-lora-14b-48gb", "L40S"),
        ("sft-qlora-32b-48gb", "L40S"),
        ("sft-full-8b-80gb", "1x NVIDIA A100 80GB PCIe"),
        ("sft-qlora-72b-80gb", "1x NVIDIA H100 80GB HBM3"),
        ("sft-lora-8b-2x24gb", "2xRTX3090-NVLink"),
        ("sft-lora-14b-2x24gb", "2xRTX3090-NVLink"),
        ("sft-full-8b-4x24gb", "4xA10G"),
        ("sft-lora-32b-4x48gb", "4x NVIDIA L40S"),
        ("sft-full-8b-8x40gb", "8xA100-SXM-40GB"),
        ("sft-full-32b-8x80gb", "8xH100-SXM"),
        ("sft-lora-72b-8x80gb", "8xH100-SXM"),
        ("first-try", "RTX4060-Laptop-WSL"),
        ("sft-long-rows", "8xH100-SXM"),
        ("dpo-qlora-8b-24gb", "1x NVIDIA GeForce RTX 4090"),
        ("dpo-qlora-14b-4x24gb", "4xA10G"),
        ("dpo-full-8b-8x80gb", "8xH100-SXM"),
        ("kto-lora-8b-48gb", "L40S"),
        ("pretrain-small-24gb", "1x NVIDIA GeForce RTX 3090"),
        ("pretrain-full-8b-4x48gb", "8xRTX6000-Ada"),
        ("pretrain-full-32b-8x80gb", "8xH100-SXM"),
    ],
)
def test_a_preset_fits_the_machine_it_is_named_for(preset: str, machine: str) -> None:
    known, answers = with_preset("cpu", preset)
    there = find(machine)
    versions = {**machines.VERSIONS}
    known = replace(
        known,
        devices=there.devices,
        links=there.links,
        host=there.host,
        software=replace(there.software, versions=versions),
    )
    assert plans(known, answers)[0].fits


@pytest.mark.parametrize(
    ("preset", "machine", "name"),
    [
        ("lora-sft-small-card", "rtx4090", "Qwen/Qwen3-8B"),
        ("lora-sft-small-card", "laptop8", "Qwen/Qwen2.5-1.5B"),
        ("qlora-sft-large-model", "laptop8", "Qwen/Qwen3-4B"),
        ("qlora-sft-large-model", "t4x2", "Qwen/Qwen3-8B"),
        ("qlora-sft-large-model", "rtx4090", "Qwen/Qwen3-14B"),
        ("qlora-sft-large-model", "h100x8", "meta-llama/Llama-3.1-70B"),
        ("full-sft-small-model", "rtx4090", "Qwen/Qwen3-0.6B"),
    ],
)
def test_what_a_presets_description_says_fits_does(preset: str, machine: str, name: str) -> None:
    loaded = presets.load(preset)
    answers = Answers(settings=loaded.settings, preset=loaded.name)
    assert plans(facts(machine, name), answers)[0].fits


@pytest.mark.slow
@pytest.mark.parametrize("preset", [None, *(p.name for p in presets.shipped_and_saved())])
@pytest.mark.parametrize("machine", sorted(shipped()))
def test_every_preset_on_every_shipped_machine_is_whole(machine: str, preset: str | None) -> None:
    values = presets.load(preset).settings if preset else {}
    for name in shipped_pairs.MODELS:
        rows = facts().dataset
        assert rows is not None
        form = STAGE_FORMAT.get(str(values.get("stage")), "messages")
        suiting = replace(rows, format=form, total_chars=rows.rows * rows.longest_row_chars)
        known = replace(load(shipped()[machine]), model=model(name), dataset=suiting)
        found = plans_or_problem(known, Answers(preset=preset, preset_settings=values))
        if isinstance(found, Problem):
            assert re.search("not yet trained on|allows no way to train on these", found.what)
            continue
        for plan in found:
            check_whole(plan)
            check_ladder(plan)
            assert product(plan) == plan.spec.training.effective_batch_size


def test_a_presets_values_are_named_as_its_own_and_the_users_win() -> None:
    answers = Answers(
        preset="small",
        preset_settings={"lora_rank": 8, "max_length": 256},
        settings={"max_length": 128},
    )
    for plan in plans(facts("rtx4090", "Qwen/Qwen3-4B"), answers):
        decided = {decision.setting: decision for decision in plan.decisions}
        assert (decided["lora_rank"].value, decided["lora_rank"].origin) == (8, "preset")
        assert "small" in decided["lora_rank"].reason
        assert (decided["max_length"].value, decided["max_length"].origin) == (128, "user")


def test_what_a_preset_fixes_but_a_plan_cannot_use_is_said() -> None:
    answers = Answers(preset="small", preset_settings={"lora_rank": 8}, settings={"method": "full"})
    for plan in plans(facts("h100x8", "Qwen/Qwen3-4B"), answers):
        assert any("lora_rank of the preset small" in p.where for p in plan.problems)
