"""What leaves a page beside its answer: exports and presets."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.screen import Screen

from tests.screens import values
from tests.screens.pages import plan_page, review
from tests.screens.stage import OnePage, World, rest, shown, until
from tests.screens.test_walk import reach, step_of
from wizard.answers import Answers, Preset
from wizard.app import TunewrightApp
from wizard.facts import Dataset
from wizard.planner import plans as real_plans
from wizard.steps import Chosen, Step
from wizard.widgets.page import Page
from wizard.widgets.prompt import Prompt

CHOSEN = Chosen(answers=values.ANSWERS, plan=values.PLANS[0], others=values.PLANS)
RECIPE = Preset(name="short-rows", title="Short rows", settings={"max_length": 512, "lora_rank": 8})


@pytest.mark.wide
@pytest.mark.parametrize("page", [pytest.param("plan", marks=pytest.mark.slow), "review"])
async def test_x_writes_the_plan_in_another_form_and_never_over_a_file(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = real_plans(values.FACTS, values.ANSWERS)[0]
    made: dict[str, Callable[[], Screen[Any]]] = {
        "plan": lambda: plan_page(make_plans=lambda facts, answers: (plan,)),
        "review": lambda: review(chosen=replace(CHOSEN, plan=plan, others=(plan,))),
    }
    app = OnePage(made[page])
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("x", *"sbatch", "enter")
        await until(pilot, lambda: "sbatch: nodes" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: "Export as" in shown(app))
        (tmp_path / "taken.sbatch").write_text("mine", encoding="utf-8")
        await pilot.press("ctrl+u", *"taken.sbatch", "enter")
        await until(pilot, lambda: "nothing is written over" in " ".join(shown(app).split()))
        assert isinstance(app.screen, Prompt)
        await pilot.press("ctrl+u", *"job.sbatch", "enter")
        await until(pilot, lambda: "written:" in shown(app))
        assert "job.sbatch" in "".join(shown(app).split())
    text = (tmp_path / "job.sbatch").read_text(encoding="utf-8")
    assert text.startswith("#!/usr/bin/env bash\n#SBATCH")
    assert (tmp_path / "taken.sbatch").read_text(encoding="utf-8") == "mine"
    assert os.listdir(tmp_path).count("job.sbatch") == 1
    assert app.left == []


@pytest.mark.wide
async def test_loading_a_preset_keeps_what_was_typed_and_what_was_read() -> None:
    read: list[str] = []

    def read_dataset(path: str, settings: object) -> Dataset:
        read.append(path)
        return replace(values.DATASET, path=f"/here/{path}")

    world = World(presets=(RECIPE,))
    facts = replace(values.FACTS, dataset=None)
    known = Answers(model=values.MODEL.name)
    app = TunewrightApp(world.verbs(read_dataset=read_dataset), facts=facts, answers=known)
    load = ("ctrl+l", *"short", "enter")
    pages: list[Screen[Any]] = []

    def page_now() -> Page[Any]:
        assert isinstance(app.screen, Page)
        return app.screen

    def page_again(step: Step) -> bool:
        return step_of(app) is step and app.screen is not pages[-1]

    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.DATA)
        pages.append(app.screen)
        await pilot.press(*"rows", *load)
        await until(pilot, lambda: page_again(Step.DATA))
        await pilot.press(*".jsonl", "enter")
        await until(pilot, lambda: page_now().answers.data == "/here/rows.jsonl")
        pages.append(app.screen)
        await pilot.press(*load)
        await until(pilot, lambda: page_again(Step.DATA))
        await pilot.press("enter")
        await reach(pilot, Step.PLAN)
    assert read == ["rows.jsonl"], "what was read is not read again"


@pytest.mark.wide
async def test_a_preset_is_loaded_on_a_page_and_saved_from_one() -> None:
    world = World(presets=(RECIPE,))
    answers = replace(values.ANSWERS, settings={"lora_rank": 4})
    app = TunewrightApp(world.verbs(plans=real_plans), facts=values.FACTS, answers=answers)
    asked: list[Answers] = []

    def plan(facts: object, wanted: Answers) -> object:
        asked.append(wanted)
        return values.PLANS

    app._verbs = world.verbs(plans=plan)
    async with app.run_test(size=(80, 24)) as pilot:
        await reach(pilot, Step.HARDWARE)
        await rest(pilot)
        await pilot.press("enter")
        await reach(pilot, Step.PLAN)
        await rest(pilot)
        assert "Model and Data are known already" in " ".join(shown(app).split())
        await pilot.press("ctrl+l", *"short")
        await until(pilot, lambda: "fixes max_length=512, lora_rank=8" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: asked[-1].preset == "short-rows")
        await reach(pilot, Step.PLAN)
        await rest(pilot)
        assert asked[-1].fixed == {"max_length": 512, "lora_rank": 4}, "the user's own win"
        await pilot.press("ctrl+l", "enter")
        await until(pilot, lambda: "its name" in shown(app))
        await pilot.press(*"short-rows", "enter")
        await until(pilot, lambda: "already: choose another" in " ".join(shown(app).split()))
        await pilot.press("ctrl+u", *"mine", "enter")
        await until(pilot, lambda: "saved: /presets/mine.toml" in shown(app))
    assert world.presets[-1] == Preset(
        name="mine",
        title="mine",
        goal="quality",
        settings={"max_length": 512, "lora_rank": 4},
        origin="saved",
    )
