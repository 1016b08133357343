"""The model page: search without asking anybody, fit on this machine, base or instruct."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from tests.fakes import machines
from tests.screens import values
from tests.screens.pages import model
from tests.screens.stage import OnePage, World, rest, shown, until
from tests.screens.test_pages import problem_on
from wizard.answers import Answers
from wizard.facts import GIB, Model
from wizard.modelcard import describe, least_answers, nominal_answers, nominal_rows
from wizard.planner import plans
from wizard.probe.model import read_model
from wizard.probe.models import kind_of, known_models, search, sibling
from wizard.screens.model import ModelPage, matching
from wizard.widgets.help import Help
from wizard.widgets.memory import best_fit

KNOWN = World(known=values.KNOWN)


async def test_what_was_wrong_with_a_name_is_not_told_of_another() -> None:
    app = OnePage(lambda: model(World(), name=None, model=None, suggested="/cache/demo"))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press(*"nowhere")
        await pilot.pause()
        assert "Enter takes the demo's model" not in shown(app)
        await pilot.press("enter")
        await until(pilot, lambda: "no such model" in shown(app))
        await pilot.press("ctrl+t")
        await until(pilot, lambda: "no such model" not in shown(app))
        assert app.screen.query_one(Input).value == "/cache/demo"


async def test_a_question_mark_typed_first_is_help_and_wipes_no_name() -> None:
    app = OnePage(model)
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        before = app.screen.query_one(Input).value
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, Help)
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen.query_one(Input).value == before
        await pilot.press("end", "question_mark")
        await pilot.pause()
        assert app.screen.query_one(Input).value == f"{before}?"


async def test_a_search_marks_the_first_match_and_enter_takes_it() -> None:
    app = OnePage(lambda: model(KNOWN, model=None))
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "> fits  ./my-model" in shown(app))
        await pilot.press(*"qwen")
        await until(pilot, lambda: "> fits  Qwen/Qwen3-8B" in shown(app))
        assert "my-model" not in shown(app)
        await until(pilot, lambda: "8.19 B (8,190,735,360)" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left == [replace(values.MODEL, name="Qwen/Qwen3-8B")]


@pytest.mark.slow
async def test_arrows_go_through_the_list_while_the_field_keeps_the_keys() -> None:
    app = OnePage(lambda: model(KNOWN, model=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Llama-3.1-8B" in shown(app))
        assert "lock" in shown(app), "a token is needed, which says no more than that"
        await pilot.press("down", "down", "down", "up", "enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].name == "Qwen/Qwen3-8B"


@pytest.mark.slow
async def test_the_base_of_an_instruct_model_is_one_key_away() -> None:
    app = OnePage(lambda: model(KNOWN, name="Qwen/Qwen3-8B", model=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("ctrl+b", "enter")
        await until(pilot, lambda: "Qwen/Qwen3-8B-Base" in shown(app))
        await rest(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].name == "Qwen/Qwen3-8B-Base"


async def test_the_hub_is_asked_when_the_user_says_so_and_not_before() -> None:
    app = OnePage(lambda: model(World(), model=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press(*"org/new", "ctrl+o")
        await until(pilot, lambda: "the hub" in shown(app).split("layers")[-1])
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert app.left == [replace(values.MODEL, name="org/new", source="the hub")]


@pytest.mark.slow
async def test_a_quantised_model_is_not_taken() -> None:
    world = World(model=replace(values.MODEL, quantized="gptq", path="/m"))
    app = OnePage(lambda: model(world, name="x/gptq", model=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "gptq: cannot" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
        problem = problem_on(app)
    assert app.left == []
    assert problem is not None
    assert "already quantised (gptq)" in problem.what


@pytest.mark.wide
async def test_a_fit_that_takes_for_ever_holds_nothing_up() -> None:
    hangs = threading.Event()

    def fit(known: Model) -> str:
        hangs.wait(30)
        return "yes"

    app = OnePage(lambda: model(verbs=KNOWN.model_verbs(fit=fit), model=None))
    async with app.run_test(size=(80, 24)) as pilot:
        for _ in range(50):
            await pilot.pause(0.02)
            if "> ...  ./my-model" in shown(app):
                break
        await pilot.press("enter")
        for _ in range(50):
            await pilot.pause(0.02)
    hangs.set()
    assert app.left[0].name == "./my-model"


def test_facts_say_what_cannot_be_trained_and_what_is_needed() -> None:
    odd = replace(values.MODEL, vision="siglip", gated=True, disk_bytes=None)
    rows = dict(describe(odd, "base", 50 * GIB))
    assert rows["vision"].startswith("siglip tower: stays as it is")
    assert rows["gated"].startswith("yes: HF_TOKEN")
    assert rows["kind"].startswith("base")
    assert rows["weights"] == "bfloat16, about 15.3 GiB to fetch"
    assert "50.0 GiB free" in rows["folder"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "instruct"),
        ("google/gemma-3-4b-it", "instruct"),
        ("mistralai/Ministral-3-8B-Base-2512", "base"),
        ("TinyLlama/TinyLlama-1.1B-Chat-v1.0", "instruct"),
        ("Qwen/Qwen3-8B", "instruct"),  # beside Qwen3-8B-Base
        ("Qwen/Qwen3-8B-Base", "base"),
        ("Qwen/Qwen2.5-7B", "base"),  # beside Qwen2.5-7B-Instruct
        ("allenai/Olmo-3-7B-Think", "instruct"),
        ("org/Italian-7B", None),
        ("org/capital", None),
    ],
)
def test_a_name_tells_base_or_instruct_or_nothing(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


def test_what_is_on_the_machine_comes_first_and_the_table_follows(tmp_path: Path) -> None:
    here = tmp_path / "work"
    (here / "mine").mkdir(parents=True)
    (here / "mine" / "config.json").write_text("{}")
    snapshot = tmp_path / "hub" / "models--org--tiny" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    for file in ("config.json", "model.safetensors"):
        (snapshot / file).write_text("{}")
    known = known_models({"HF_HUB_CACHE": str(tmp_path / "hub")}, here)
    local = [one.name for one in known if one.on_disk]
    assert {"./mine", "org/tiny"} <= set(local)
    assert [one.on_disk for one in known] == sorted((one.on_disk for one in known), reverse=True)
    [llama] = [one for one in known if one.name == "meta-llama/Llama-3.1-8B"]
    assert llama.gated
    assert llama.parameters == 8_030_261_248
    assert {one.name for one in search(known, "qwen3 8b")} >= {"Qwen/Qwen3-8B"}
    assert matching(known, "Qwen/Qwen3-8B")[0].name == "Qwen/Qwen3-8B"
    assert sibling("mistralai/Mistral-7B-v0.3") is None
    assert sibling("meta-llama/Llama-3.1-8B") == "meta-llama/Llama-3.1-8B-Instruct"


def test_the_fit_of_a_model_is_that_of_a_real_plan() -> None:
    facts = replace(values.MACHINE, model=values.MODEL, dataset=nominal_rows())
    made = plans(facts, nominal_answers(Answers(settings={"model": "x"}), values.MODEL))
    assert made[0].fits
    assert made[0].spec.data.max_length == 2048


async def test_enter_right_after_typing_takes_what_was_typed_and_not_what_was_marked() -> None:
    app = OnePage(lambda: model(KNOWN, model=None))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "./my-model" in shown(app))
        # The key comes before the field's own word of the change.
        page = app.screen
        assert isinstance(page, ModelPage)
        page.query_one(Input).value = "Qwen/Qwen3-8B"
        page.action_next()
        await until(pilot, lambda: bool(app.left))
    assert app.left[0].name == "Qwen/Qwen3-8B"


async def test_the_demos_model_is_suggested_and_not_typed_for_the_user() -> None:
    app = OnePage(lambda: model(World(known=values.KNOWN), model=None, suggested="/cache/demo"))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        field = app.screen.query_one(Input)
        assert (field.value, field.placeholder) == ("", "/cache/demo")
        assert "Enter takes the demo's model" in shown(app)
        await pilot.press("enter")
        await rest(pilot)
        assert field.value == "/cache/demo"
        await pilot.press("enter")
        await pilot.pause()
    assert [left.name for left in app.left] == ["/cache/demo"]


@pytest.mark.parametrize("machine", ["rtx4090", "laptop8", "t4x2", "cpu"])
def test_a_smaller_model_of_a_kind_never_shows_a_worse_fit(machine: str) -> None:
    sizes = ("0.6B", "1.7B", "4B", "8B", "14B", "32B")
    words = []
    for size in sizes:
        known = read_model(f"Qwen/Qwen3-{size}")
        facts = replace(machines.machine(machine), model=known, dataset=nominal_rows())
        words.append(best_fit(plans(facts, least_answers(Answers(), known))))
    assert words == sorted(words, key=["yes", "tight", "no"].index), words
