"""Thirty pairs of machine, model, goal and preset, as a table of plans to review in diffs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from engine.methods import STAGE_FORMAT
from tests.plans import FOLDER, table
from wizard import presets
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.planner import plans
from wizard.probe.machine import load, shipped
from wizard.problem import ProblemError

FILE = FOLDER / "machines.txt"
MODELS = (
    "Qwen/Qwen3-8B",
    "meta-llama/Llama-3.1-70B",
    "Qwen/Qwen2.5-1.5B",
    "Qwen/Qwen3-30B-A3B",
    "mistralai/Mistral-7B-v0.3",
)
GOALS = ("quality", "fastest", "least-memory", "fewest-devices")
PAIRS = 30
SHOWN = 4
"""Plans of each pair; the nearest one that does not fit comes after them."""


def pairs() -> Iterator[tuple[str, str, str, str | None]]:
    """Machine, model, goal and preset: each machine in turn, the others at strides of their own."""
    machines = list(shipped())
    named = (
        None,
        *(preset.name for preset in presets.shipped_and_saved() if preset.origin == "shipped"),
    )
    for n in range(PAIRS):
        machine = machines[n % len(machines)]
        yield machine, MODELS[n % len(MODELS)], GOALS[n % len(GOALS)], named[n % len(named)]


def text(of_model: Facts) -> str:
    """All pairs; the model of `of_model` is replaced, its data is what every plan is for."""
    lines = []
    for machine, model, goal, preset in pairs():
        lines += [f"## {machine}, {model}, {goal}, preset {preset or 'none'}"]
        lines += [*_table(machine, model, goal, preset, of_model), ""]
    return "\n".join(lines)


def _table(machine: str, model: str, goal: str, preset: str | None, known: Facts) -> list[str]:
    from wizard.probe.model import read_model

    facts = replace(load(shipped()[machine]), model=read_model(model), dataset=known.dataset)
    settings = dict(presets.load(preset).settings) if preset else {}
    settings.pop("model", None)  # the pair names its own
    assert facts.dataset is not None
    form = STAGE_FORMAT.get(settings.get("stage", "sft"), facts.dataset.format)
    rows = replace(facts.dataset, format=form, total_chars=15_000_000)
    facts = replace(facts, dataset=rows)
    answers = Answers(goal=goal, preset=preset, preset_settings=settings)  # type: ignore[arg-type]
    try:
        return table(plans(facts, answers), SHOWN)
    except ProblemError as error:
        return [str(error.problem)]
