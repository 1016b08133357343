"""The data page: what is learnt shows without colour, and a preview never holds the page up."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from textual.content import Content
from textual.widgets import Input

from tests.screens import values
from tests.screens.pages import data
from tests.screens.stage import OnePage, SaidData, World, rest, shown, until
from tests.screens.test_pages import problem_on
from wizard.problem import Problem, ProblemError
from wizard.screens.columns import ABOUT, SHAPES, as_setting, nameable
from wizard.screens.fixing import RowSettings
from wizard.steps import Data
from wizard.widgets import sample


async def test_what_is_learnt_is_between_marks_in_every_view() -> None:
    app = OnePage(data)
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "#Use `ss -tulpn`.#" in shown(app))
        rendered = shown(app)
        await pilot.press("v")
        raw = shown(app)
        await pilot.press("v", "n")
        tokens = shown(app)
        await pilot.press("v", "p", "enter")
        await pilot.pause()
    assert "│ How do I list open ports on Linux?<|im_end|>" in rendered
    assert "line 1: 8 tokens" not in rendered
    assert '"role": "user"' in raw
    assert "#      905  `lsof" in tokens
    assert "       902  a" in tokens
    assert "p95 820  max 2,100" in rendered
    assert "1,024  cuts 30 (2 %)     19.4 GiB" in rendered
    assert "warning: 3 answers are cut" in rendered
    assert app.left == [Data(dataset=values.DATASET, settings={})]


@pytest.mark.slow
async def test_a_length_and_a_column_map_are_fixed_and_read_with() -> None:
    world = World()
    asked: list[Mapping[str, Any]] = []

    def preview(path: str, settings: Mapping[str, Any]) -> SaidData:
        asked.append(settings)
        return SaidData(values.SAID)

    app = OnePage(lambda: data(world, verbs=world.data_verbs(preview=preview)))
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "19.4 GiB" in shown(app))
        assert asked[0]["max_length"] == 2048
        await pilot.press("c")
        await until(pilot, lambda: "4,096 cuts none <" in " ".join(shown(app).split()))
        assert "max_length = 4,096 is fixed now, it cuts none" in shown(app)
        await pilot.press("c", "m")
        await until(pilot, lambda: "What does a row hold?" in shown(app))
        await pilot.press("enter")
        for ours in ("instruction", "output"):
            await until(pilot, lambda: f"({ours})?" in shown(app))  # noqa: B023
            assert "because" in shown(app), "what the columns hold"
            await pilot.press(*("question" if ours == "instruction" else "answer"), "enter")
        for _ in ("input", "system"):
            await until(pilot, lambda: "none of them" in shown(app))
            await pilot.press("enter")
        await until(pilot, lambda: bool(asked[-1].get("columns")))
        await rest(pilot)
        await pilot.press("enter")
        await pilot.pause()
    columns = "instruction=question,output=answer"
    assert app.left[0].settings == {"max_length": 2048, "columns": columns}
    assert asked[-1] == {"max_length": 2048, "columns": columns}


def test_the_lengths_are_gone_through_from_the_one_that_cuts_nothing_back_to_the_planners() -> None:
    lengths = [128, 256, 512]
    settings = RowSettings(before={"max_length": 1000, "lora_rank": 8})
    found = [settings.next_length(lengths) for _ in range(4)]
    assert found == [512, 256, 128, None]
    assert settings.leave(values.DATASET).forgotten == {"max_length"}
    assert settings.all == {"lora_rank": 8}
    assert settings.next_length(lengths) == 512
    assert settings.of_answers({"max_length": 1000}) == {"max_length": 512}
    preset = RowSettings(before={"max_length": 64}, of_preset=frozenset({"max_length"}))
    assert preset.next_length(lengths) == 64, "a preset's own is not given back"


def test_columns_chosen_for_a_file_hold_again_when_it_is_named_again() -> None:
    settings = RowSettings(before={"columns": "text=body", "lora_rank": 8})
    settings.turn("/a", "/b")
    assert settings.all == {"lora_rank": 8}
    settings.take("columns", "text=said")
    settings.turn("/b", "/a")
    assert settings.all == {"columns": "text=body", "lora_rank": 8}
    settings.turn("/a", "/b")
    assert settings.all == {"columns": "text=said", "lora_rank": 8}


async def test_an_edited_path_says_that_it_is_not_read_and_escape_takes_back_what_was() -> None:
    page = data(settings={"columns": "text=body"})
    app = OnePage(lambda: page)
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("o", "end", "m")
        await pilot.pause()
        assert page.query_one(Input).value == "/data/train.jsonlm"
        assert "Not read yet: Enter reads it. Below is still train.jsonl" in shown(app)
        await pilot.press("escape")
        await pilot.pause()
        assert page.query_one(Input).value == "/data/train.jsonl"
        assert "Not read yet" not in shown(app)
        assert app.focused is page.query_one("#sample"), "letters are keys again"
        await pilot.press("enter")
        await pilot.pause()
    assert app.left == [Data(dataset=values.DATASET, settings={})], "what was fixed stays so"


def test_every_shape_that_is_asked_for_is_one_that_the_engine_reads() -> None:
    from engine.rows.formats import format_of
    from engine.rows.sources import reading
    from engine.settings import parse_setting

    for shape in SHAPES:
        parts = (*shape.needed, *shape.optional)
        texts = {"messages": [], "label": True}
        row = {f"their {name}": texts.get(name, "said") for name in parts} | {"text": "mine"}
        setting = as_setting({name: f"their {name}" for name in parts})
        _, parsed = parse_setting("columns", setting)
        renamed = reading(parsed).row(row)
        kept = {name: renamed[name] for name in shape.needed}
        assert set(shape.needed) <= set(sum(format_of(kept).keys, ())) | {"prompt"}
        assert set(parts) <= ABOUT.keys()
    assert as_setting({"text": "text"}) is None


def test_only_columns_that_the_setting_can_name_are_offered() -> None:
    row = {"question": "", " answer": "", "a,b": "", "": "", "x=y": "", "b c": ""}
    assert nameable(row) == ["question", "b c"]


@pytest.mark.slow
async def test_the_editor_is_opened_at_the_marked_problem() -> None:
    world = World()
    page = data(world)
    app = OnePage(lambda: page)
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "line 204: not JSON" in shown(app))
        await pilot.press("tab", "down", "e")
        await pilot.pause()
        problem = problem_on(app)
    assert problem is not None, "no terminal can be lent out in a test"
    assert problem.where == "/data/train.jsonl, line 204"


async def test_a_preview_that_hangs_or_fails_holds_nothing_up() -> None:
    hangs = threading.Event()

    class Hanging(SaidData):
        def lines(self) -> Iterator[Mapping[str, Any]]:
            yield values.SAID[0]
            hangs.wait(30)

    class Failing(SaidData):
        def lines(self) -> Iterator[Mapping[str, Any]]:
            raise ProblemError(Problem(what="the tokenizer cannot be read"))

    children: list[SaidData] = []

    def preview(kind: type[SaidData]) -> Any:
        def start(path: str, settings: Mapping[str, Any]) -> SaidData:
            children.append(kind(()))
            return children[-1]

        return start

    for kind, said in ((Hanging, "#Use `ss"), (Failing, "the tokenizer cannot be read")):
        app = OnePage(partial(data, verbs=World().data_verbs(preview=preview(kind))))
        async with app.run_test(size=(80, 24)) as pilot:
            for _ in range(100):
                await pilot.pause(0.02)
                if said in shown(app):
                    break
            assert said in shown(app)
            await pilot.press("enter")
            await pilot.pause()
        assert app.left[0].dataset == values.DATASET
    hangs.set()
    assert [child.closed for child in children] == [True, True]


@pytest.mark.slow
async def test_a_report_that_no_run_would_start_with_stops_the_page() -> None:
    report = {**values.SAID[-1], "usable": False, "reason": "3 % of the rows cannot be used"}
    app = OnePage(lambda: data(World(said=(*values.SAID[:-1], report))))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "p95" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
        problem = problem_on(app)
    assert app.left == []
    assert problem is not None
    assert problem.what == "3 % of the rows cannot be used"


@pytest.mark.wide
async def test_a_data_file_of_this_folder_is_suggested_and_another_path_can_be_typed() -> None:
    """The field is empty: nothing stands there as if it had been typed."""
    world = World(nearby=("new.jsonl", "old.jsonl"))
    fixed = {"columns": "text=body", "learning_rate": 1e-4}
    app = OnePage(lambda: data(world, dataset=None, settings=fixed))
    async with app.run_test(size=(80, 24)) as pilot:
        field = app.screen.query_one(Input)
        assert (field.value, field.placeholder) == ("", "new.jsonl")
        assert "Enter reads new.jsonl of this folder" in shown(app)
        await pilot.press("down")
        assert field.value == "old.jsonl"
        await pilot.press("ctrl+u", "enter")
        await until(pilot, lambda: "1,200 rows" in shown(app))
        assert field.value == "new.jsonl"
        assert "Letters are keys now; o or / names another file." in shown(app)
        await pilot.press("/", *"data/x", "enter")
        await rest(pilot)
        await pilot.press("enter")
        await pilot.pause()
    [left] = app.left
    assert left.dataset.path == "/data/x"
    assert left.forgotten == {"columns"}, "it was chosen for the rows of another file"


def test_marks_stand_around_every_line_that_is_learnt() -> None:
    pieces = [{"text": "a\nb", "learnt": False}, {"text": "c\n\nd", "learnt": True}]
    assert sample.shown({"pieces": pieces}, "rendered").plain == "a\nb#c#\n\n#d#"
    assert isinstance(sample.shown({"ids": [[7, "\x1b[31m", True]]}, "tokens"), Content)
    assert "\x1b" not in sample.shown({"ids": [[7, "\x1b[31m", True]]}, "tokens").plain


async def test_more_bad_rows_than_by_chance_are_only_left_out_when_told_to() -> None:
    bad = World(dataset=replace(values.DATASET, rows=97, dropped_rows=3), said=())
    lefts = []
    for keys in (["down", "enter"], ["enter"]):
        app = OnePage(lambda: data(bad, dataset=bad.dataset))
        async with app.run_test(size=(80, 24)) as pilot:
            await rest(pilot)
            await pilot.press("enter")
            await pilot.pause()
            assert "3 rows of train.jsonl cannot be used, 3 %" in shown(app)
            await pilot.press(*keys)
            await pilot.pause()
        lefts.append([left.settings for left in app.left])
    assert lefts == [[], [{"max_dropped_percent": 3.0}]]


@pytest.mark.wide
async def test_after_a_wrong_path_nothing_is_said_of_what_was_read_before() -> None:
    world = World()
    app = OnePage(lambda: data(world, verbs=world.data_verbs()))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "Row 1 of" in shown(app))
        await pilot.press("o", "ctrl+u", *"nowhere", "enter")
        await until(pilot, lambda: "no such file" in shown(app))
        assert "Row 1 of" not in shown(app)
        await pilot.press("x")
        await until(pilot, lambda: "Enter reads the file" in shown(app))
        assert "Letters are keys now" not in shown(app)
