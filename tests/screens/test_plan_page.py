"""The plan page: numbers with formulas, two plans side by side, other machines, no freezing."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.screens import values
from tests.screens.pages import plan_page
from tests.screens.stage import OnePage, World, rest, shown, until
from tests.screens.test_pages import problem_on
from wizard.answers import Answers
from wizard.app import TunewrightApp
from wizard.facts import GIB, Facts
from wizard.plan import MemoryPart, Plan, speeds_unknown
from wizard.planner import plans as real_plans
from wizard.planner.ranking import tied
from wizard.problem import Problem, ProblemError
from wizard.screens.hardware import HardwarePage
from wizard.widgets.memory import made_of
from wizard.widgets.message import MessageLine
from wizard.widgets.plans import plan_table
from wizard.widgets.sheet import Sheet
from wizard.widgets.table import lines

TIMED = tuple(
    replace(plan, step_seconds=1.5 + number, tokens_per_second=9_000.0 / (1 + number))
    for number, plan in enumerate(values.PLANS)
)

GONE = replace(values.PLANS[1], spec=values.PLANS[2].spec, title="Full of old")


async def test_why_gives_every_part_with_its_formula_and_what_would_move_it() -> None:
    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        if "max_length" not in answers.settings:
            return TIMED
        first = TIMED[0]
        length = answers.settings["max_length"]
        if length > 1024:
            raise ProblemError(Problem(what="the model has no such positions"))
        parts = (MemoryPart(name="weights", bytes=10 * GIB, formula=""),)
        memory = replace(first.memory, parts=parts, device_bytes=10 * GIB)
        return (replace(first, memory=memory),)

    app = OnePage(lambda: plan_page(make_plans=plan))
    async with app.run_test(size=(140, 60)) as pilot:
        await rest(pilot)
        await pilot.press("w")
        await until(pilot, lambda: "planning ..." not in shown(app))
        text = shown(app)
        await pilot.press("escape")
        assert not isinstance(app.screen, Sheet)
    for part in TIMED[0].memory.parts:
        assert part.formula in text
    assert "16 rows × max_length 1,024 / 1.5 s" in text
    assert "225 steps; without loading" in text
    assert "the model has no such positions" in text
    assert "-9.4 GiB  fits" in text


@pytest.mark.slow
async def test_c_on_two_plans_shows_them_side_by_side() -> None:
    app = OnePage(lambda: plan_page(make_plans=lambda facts, answers: TIMED))
    async with app.run_test(size=(140, 50)) as pilot:
        await rest(pilot)
        await pilot.press("c")
        assert f"compares it with {TIMED[0].title}" in shown(app)
        await pilot.press("down", "c")
        await pilot.pause()
        text = shown(app)
        await pilot.press("escape", "c", "c")
        await pilot.pause()
        assert not isinstance(app.screen, Sheet), "a plan is not compared with itself"
    assert "method  lora  qlora" in text
    assert "15.3 GiB" in text
    assert "5.6 GiB" in text
    assert "4,500 tok/s" in text


@pytest.mark.wide
async def test_another_machine_is_looked_at_but_its_plans_are_not_taken() -> None:
    planned: list[str] = []

    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        planned.append(facts.machine)
        assert facts.model == values.MODEL
        return TIMED

    app = OnePage(lambda: plan_page(make_plans=plan))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("+", *"4xl40", "enter")
        await until(pilot, lambda: "on 4x NVIDIA L40S, what if" in shown(app))
        await pilot.press("enter")
        problem = problem_on(app)
        assert problem is not None
        assert "tunewright --machine '4x NVIDIA L40S'" in problem.fix
        await pilot.press("+")
        await until(pilot, lambda: "what if" not in shown(app).split("\n")[2])
        await pilot.press("enter")
        await pilot.pause()
    assert planned[0] == planned[-1] == ""
    assert app.left[0].plan == TIMED[0]


@pytest.mark.parametrize(
    ("before", "stale", "mark", "said"),
    [
        (values.PLANS[1], False, "> QLoRA", "Enter takes the marked plan"),
        (values.PLANS[1], True, "> LoRA", "was for another machine, model or data"),
        (GONE, False, "> LoRA", "Full of old, which you took before, is no longer possible"),
        (values.PLANS[3], False, "> LoRA", "no longer fits"),
    ],
)
async def test_the_plan_taken_before_is_marked_only_while_its_ground_is_the_same(
    before: Plan, stale: bool, mark: str, said: str
) -> None:
    plans = values.PLANS[:2] if before is GONE else values.PLANS
    app = OnePage(
        lambda: plan_page(before=before, stale=stale, make_plans=lambda facts, answers: plans)
    )
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        assert mark in shown(app)
        assert said in " ".join(shown(app).split())


async def test_a_fixed_setting_that_allows_no_plan_is_named_and_can_be_given_back() -> None:
    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        if "max_length" in answers.settings:
            raise ProblemError(Problem(what="the model has no such positions"))
        assert answers.settings == {"columns": "text=body"}, "it belongs to the data"
        return values.PLANS

    fixed = replace(values.ANSWERS, settings={"max_length": 9000, "columns": "text=body"})
    app = OnePage(lambda: plan_page(make_plans=plan, answers=fixed))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "fixed: max_length=9000)" in " ".join(shown(app).split()))
        await pilot.press("d")
        await until(pilot, lambda: "> LoRA" in shown(app))


def test_plans_as_fast_as_each_other_are_said_to_be_a_tie() -> None:
    slower, quicker, far = (
        replace(values.PLANS[0], title=title, step_seconds=1.0, run_seconds=seconds)
        for title, seconds in (("slower", 110.0), ("quicker", 100.0), ("far", 90.0))
    )
    (said,) = tied(slower, (slower, quicker, far))
    assert "times within 12 % are as fast as each other" in said
    assert "up to 10 % quicker" in said
    assert "up to 11 %" in tied(quicker, (slower, quicker, far))[0]
    assert tied(far, (slower, quicker, far)) == []
    far = replace(far, run_seconds=11.0)
    assert tied(slower, (slower, quicker, far)) == [], "ten times the quickest's time is no tie"
    assert tied(values.PLANS[0], values.PLANS) == []


@pytest.mark.wide
async def test_a_planner_or_a_probe_that_hangs_freezes_nothing() -> None:
    """Keys work, Escape leaves, and the program's end does not wait for the thread."""
    hangs = threading.Event()

    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        hangs.wait(30)
        return ()

    def probe(say: object) -> Facts:
        hangs.wait(30)
        return values.MACHINE

    page = OnePage(lambda: plan_page(make_plans=plan))
    async with page.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        assert "planning ..." in shown(page)
        await pilot.press("g", "w", "c", "enter")
        assert page.left == []
        await pilot.press("escape")
        await pilot.pause()
    assert page.left == [None]
    app = TunewrightApp(World().verbs(probe=probe))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: isinstance(app.screen, HardwarePage))
        await pilot.pause(0.2)
        assert "reading devices" in shown(app)
        await pilot.press("ctrl+q")
    assert not app.is_running
    waited = [t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
    assert not [t for t in waited if t.name.startswith("asyncio")], "a thread holds the end back"
    hangs.set()


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (140, 40)])
@pytest.mark.slow
async def test_resizing_keeps_the_mark_and_the_plans(size: tuple[int, int]) -> None:
    app = OnePage(plan_page)
    async with app.run_test(size=(100, 30)) as pilot:
        await rest(pilot)
        await pilot.press("down")
        await pilot.resize_terminal(*size)
        await pilot.pause()
        await pilot.press("enter")
        await pilot.pause()
    assert app.left[0].plan == values.PLANS[1]


@given(
    sizes=st.lists(st.integers(0, 80 * GIB), min_size=1, max_size=8),
    budget=st.integers(1, 100 * GIB),
    width=st.integers(3, 60),
)
def test_a_bar_has_its_width_and_says_whether_it_is_over(
    sizes: list[int], budget: int, width: int
) -> None:
    names = ("weights", "optimizer", "loss", "adapter", "gradients", "inputs", "x", "context")
    parts = tuple(
        MemoryPart(name=name, bytes=size, formula="")
        for name, size in zip(names, sizes, strict=False)
    )
    memory = replace(
        values.PLANS[0].memory,
        parts=parts,
        device_bytes=sum(sizes),
        device_budget_bytes=budget,
    )
    bar = made_of(memory, width)
    assert len(bar) == width
    assert bar.endswith(">") == (sum(sizes) > budget)
    drawn = bar[1:-1].rstrip()
    assert drawn == "".join(sorted(drawn, key="#=.".index))


def test_the_best_plan_of_each_goal_is_real() -> None:
    from wizard.screens.planned import GOALS, best_by_goal

    facts = values.FACTS
    made = real_plans(facts, values.ANSWERS)
    best = best_by_goal(lambda answers: real_plans(facts, answers), values.ANSWERS, made)
    assert set(best) == set(GOALS)
    for goal, title in best.items():
        plans = real_plans(facts, replace(values.ANSWERS, goal=goal))
        assert title == ("" if goal == "fastest" and speeds_unknown(plans) else plans[0].title)


def test_where_speeds_are_unknown_no_plan_is_called_the_fastest() -> None:
    from wizard.screens.planned import best_by_goal

    nameless = tuple(
        replace(one, name="New", bf16_tflops=None, memory_bandwidth_gbs=None)
        for one in values.FACTS.devices
    )
    facts = replace(values.FACTS, devices=nameless)
    fastest = replace(values.ANSWERS, goal="fastest")
    made = real_plans(facts, fastest)
    assert any(plan.fits for plan in made)
    for plan in made:
        assert plan.step_seconds is None
        told = any("no order by speed: `tunewright probe --bench`" in why for why in plan.why)
        assert told == plan.fits
    best = best_by_goal(lambda answers: real_plans(facts, answers), fastest, made)
    assert best.pop("fastest") == ""
    assert all(best.values())


async def test_what_was_waited_for_is_not_told_once_it_is_there() -> None:
    """A timer that has fired may still be on its way when the answer comes."""
    app = OnePage(plan_page)
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        line = app.screen.query_one(MessageLine)
        line.working("planning")
        assert line._timer is not None
        fired = line._timer._callback
        assert fired is not None
        line.rest()
        fired()
        await pilot.pause()
        assert "planning" not in shown(app).split("\n")[-2]
        assert "Enter takes the marked plan" in shown(app)


def test_with_little_room_the_devices_that_all_plans_share_are_left_out() -> None:
    columns, rows = plan_table(values.PLANS, 60)
    shown_rows = [line.split("  ")[0] for line in lines(columns, rows, 52)[1:]]
    assert len(set(shown_rows)) == len(values.PLANS), "no two look the same"
    assert shown_rows[0] == "LoRA r16 bf16, DDP"
    wide, _ = plan_table(values.PLANS, 80)
    assert wide[0].keep_end
