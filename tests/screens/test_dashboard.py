"""The dashboard: what it shows in each state of a run, and that only `s` touches the run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from textual.widgets import Static

from tests.screens import values
from tests.screens.stage import RUN, FollowedRun, OnePage, World, shown, until
from wizard.dashboard.against import situation
from wizard.dashboard.charts import METRICS, thinned, too_few, whole_ticks
from wizard.dashboard.log import last_events
from wizard.dashboard.now import against_plan
from wizard.dashboard.predicted import predicted
from wizard.dashboard.rank_columns import MARGIN, Shown, rank_columns
from wizard.dashboard.screen import Dashboard
from wizard.dashboard.source import LogOf
from wizard.dashboard.state import RankState, RunState
from wizard.dashboard.view import View, view_of
from wizard.problem import Problem, ProblemError
from wizard.widgets.message import MessageLine
from wizard.widgets.table import lines

TRAINING = values.state_after(values.events())


def seen(state: RunState) -> View:
    return view_of(state, predicted(values.PLAN_JSON), values.LOG, values.NOW)


def app_for(world: World) -> OnePage:
    return OnePage(lambda: Dashboard(RUN, world.source()))


@pytest.mark.wide
async def test_keys_pick_a_rank_show_the_log_and_leave_the_run_alone() -> None:
    world = World(run=FollowedRun(TRAINING))
    app = app_for(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "Ranks (2 of 2)" in shown(app))
        await pilot.press("1")
        await until(pilot, lambda: 1 in world.logs_read and "own work" in shown(app))
        await pilot.press("9", "l")
        await until(pilot, lambda: "Log of rank 1" in shown(app))
        await pilot.press("1")
        await until(pilot, lambda: "Log of the launcher" in shown(app))
        await pilot.press("s", "escape")
        await pilot.press("s", "down", "down", "enter")
        await pilot.pause()
        assert isinstance(app.screen, Dashboard)
        assert app.left == []
        await pilot.press("q")
        await pilot.pause()
    assert app.left == [None]
    assert world.stopped == []


@pytest.mark.parametrize(("keys", "now"), [(["s", "enter"], False), (["s", "down", "enter"], True)])
async def test_s_asks_how_and_then_stops(keys: list[str], now: bool) -> None:
    world = World(run=FollowedRun(TRAINING))
    app = app_for(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: "RUNNING" in shown(app))
        await pilot.press(*keys)
        await until(pilot, lambda: bool(world.stopped))
    assert world.stopped == [(RUN, now)]


async def test_an_ended_run_is_left_by_enter_with_its_state() -> None:
    world = World(run=FollowedRun(values.finished(TRAINING)))
    app = app_for(world)
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "Enter shows the result. q leaves." in shown(app))
        await pilot.press("s")
        await pilot.press("enter")
        await pilot.pause()
    assert app.left == [world.run.state]


async def test_a_stopped_run_says_how_to_go_on_and_not_that_it_goes_on() -> None:
    world = World(run=FollowedRun(replace(TRAINING, exit_code=75)))
    app = app_for(world)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: f"g, or tunewright resume {RUN}" in shown(app))
        assert "the run goes on" not in shown(app)
        assert world.resumed == []
        await pilot.press("g")
        await until(pilot, lambda: "RUNNING" in shown(app))
        assert world.resumed == [RUN]
        assert "q leaves; the run goes on" in shown(app)
        await pilot.press("g")
        await pilot.press("q")
        await pilot.pause()
    assert app.left == [None]
    assert world.resumed == [RUN], "there is nothing to resume in a run that goes on"


async def test_news_that_say_nothing_new_draw_nothing_but_the_passing_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(run=FollowedRun(TRAINING))
    app = app_for(world)
    drawn: list[str | None] = []
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "RUNNING" in shown(app))
        await pilot.pause()
        original = Static.update

        def update(self: Static, *args: Any, **kwargs: Any) -> None:
            drawn.append(self.id)
            original(self, *args, **kwargs)

        monkeypatch.setattr(Static, "update", update)
        screen = app.screen
        assert isinstance(screen, Dashboard)
        screen.post_message(Dashboard.Polled(seen(TRAINING)))
        await pilot.pause()
        assert drawn == []
        later = replace(TRAINING, step=91)
        screen.post_message(Dashboard.Polled(seen(later)))
        await pilot.pause()
    assert sorted(map(str, drawn)) == ["progress", "summary"]


async def test_help_explains_the_columns_that_are_shown_and_each_key_once() -> None:
    app = app_for(World(run=FollowedRun(TRAINING)))
    async with app.run_test(size=(80, 40)) as pilot:
        await until(pilot, lambda: "Ranks (2 of 2)" in shown(app))
        await pilot.press("question_mark")
        await pilot.pause()
        narrow = shown(app)
        await pilot.press("escape")
        await pilot.resize_terminal(140, 40)
        await pilot.press("question_mark")
        await pilot.pause()
        wide = shown(app)
    assert "wait s: waiting for the others" in narrow
    assert "own s:" not in narrow
    assert "own s: its own work in a step" in wide
    assert narrow.count("Leave; the run goes on") == 1
    assert narrow.count("Pick a rank by its number") == 1
    assert "0-9" in narrow


def test_before_the_first_step_only_what_is_known_is_shown_beside_the_plan() -> None:
    waiting = values.state_after(values.events()[:3])
    plan = predicted({**values.PLAN_JSON, "steps": 225})

    text = against_plan(waiting, plan, (), values.NOW, 50).plain

    assert "unknown" not in text
    assert [line.split() for line in text.split("\n")] == [
        ["health", "ok"],
        ["now", "plan"],
        ["peak", "memory", "19.4", "GiB", "may", "use", "22.1", "GiB"],
        ["steps", "225"],
    ]


def test_a_saved_checkpoint_is_one_event() -> None:
    saved = values.events()[-1]
    found = [
        *values.events(),
        {**saved, "t": values.NOW - 3, "kind": "phase", "phase": "saving"},
        {**saved, "t": values.NOW - 1, "kind": "phase", "phase": "training"},
    ]

    lines = [line[10:] for line in last_events(values.state_after(found))]

    assert lines[0] == "saved checkpoint-90 (80.1 MiB)"
    assert "saving" not in lines
    assert lines.count("training") == 1


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_a_row_of_a_rank_keeps_to_its_line(width: int) -> None:
    state = values.state_after(values.events())
    waiting = replace(state.ranks[0], phase="loading model", phase_seconds=125.0)
    state = replace(state, ranks={**state.ranks, 0: waiting})

    shown_ranks = Shown(state=state)
    columns = rank_columns(shown_ranks, width, list(state.ranks.values()))
    rows = [[c.cell(rank, shown_ranks) for c in columns] for rank in state.ranks.values()]

    assert columns[-1].column.title == "state"
    drawn = lines([c.column for c in columns], rows, width - MARGIN)
    assert max(len(line) for line in drawn) <= width - MARGIN
    assert "loading model 2 min" in "\n".join(drawn)


@pytest.mark.wide
async def test_a_folder_that_cannot_be_read_is_told_and_tried_again() -> None:
    world = World(run=FollowedRun(TRAINING))
    refusals = [ProblemError(Problem(what="the folder is gone"))]

    def read_log(path: Any, rank: LogOf) -> tuple[str, ...]:
        if refusals:
            raise refusals.pop()
        return ()

    source = replace(world.source(), read_log=read_log)
    app = OnePage(lambda: Dashboard(RUN, source))
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: not refusals)
        await until(pilot, lambda: "RUNNING" in shown(app))
        assert isinstance(app.screen.query_one(MessageLine), MessageLine)


def test_every_state_is_told_in_words() -> None:
    waiting = values.state_after(values.events()[:3])
    failed = values.state_after(
        [
            *values.events(),
            {"t": values.NOW, "kind": "failed", "rank": 1, "failure": "gpu_oom", "message": "full"},
        ]
    )

    assert situation(RunState(), values.NOW) == "waiting for the first word of the run ..."
    assert situation(waiting, values.NOW - 210) == "loading model ... 10 s"
    assert situation(TRAINING, values.NOW) == ""
    assert situation(TRAINING, values.NOW + 60).startswith("(!) no news for 1 min; last: training")
    assert situation(replace(failed, exit_code=71), values.NOW) == (
        "error: exit code 71: out of device memory (rank 1, gpu_oom: full)"
    )
    assert situation(replace(TRAINING, exit_code=75), values.NOW) == (
        "exit code 75: stopped on request; it can be resumed"
    )
    assert situation(replace(TRAINING, lost=True), values.NOW).startswith("error: lost")


def cells(state: RunState, rank: RankState, width: int) -> dict[str, str]:
    shown_ranks = Shown(state=state)
    columns = rank_columns(shown_ranks, width, [rank])
    return {c.column.title: c.cell(rank, shown_ranks) for c in columns}


def test_what_a_rank_does_not_report_is_blank_and_never_zero() -> None:
    rank = RankState(rank=3)

    shown_cells = cells(RunState(ranks={3: rank}), rank, 140)

    assert shown_cells.pop("rank") == "3"
    assert set(shown_cells.values()) == {""}


def test_memory_of_a_cpu_rank_is_named_as_that_of_its_process() -> None:
    on_cpu = values.state_after(values.events(on_device=False))

    assert cells(on_cpu, on_cpu.ranks[0], 80)["proc GiB"] == "3.0"
    assert cells(TRAINING, TRAINING.ranks[0], 80)["mem GiB"] == "17.9"


def test_a_silent_and_a_failed_rank_say_so_in_words() -> None:
    failure = {"t": values.NOW, "kind": "failed", "rank": 1, "failure": "gpu_oom"}
    state = replace(values.state_after([*values.events(), failure]), stale=(0,))

    assert cells(state, state.ranks[0], 80)["state"] == "SILENT"
    assert cells(state, state.ranks[1], 80)["state"] == "FAILED gpu_oom"


def test_a_chart_has_no_more_points_than_columns_and_keeps_the_last() -> None:
    points = [(step, float(step)) for step in range(1000)]

    found = thinned(points, 80)

    assert len(found) <= 80
    assert found[-1] == points[-1]
    assert thinned(points[:50], 80) == points[:50]


def test_ticks_are_whole_and_different_steps() -> None:
    assert whole_ticks(1, 3) == [1, 2, 3]
    assert whole_ticks(0, 100) == [0, 25, 50, 75, 100]


def test_a_single_value_is_told_where_its_curve_will_be() -> None:
    assert too_few(METRICS[0], []) == "No loss yet."
    assert too_few(METRICS[0], [(1, 5.25)]) == "loss 5.2500 at step 1; a curve needs two values."
