"""The dashboard's boxes: at every size, alone, of many ranks, and what their keys do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.widgets import Input

from tests.health_streams import BEGAN, GIB, PLAN, STEPS, event, run_with, stream
from tests.screens import values
from tests.screens.stage import RUN, FollowedRun, OnePage, World, rest, shown, until
from wizard.dashboard import layout
from wizard.dashboard.charts import eval_points
from wizard.dashboard.faults import actions, failure_text, findings_text
from wizard.dashboard.health import health
from wizard.dashboard.launching import launch_lines
from wizard.dashboard.log import error_lines, matching
from wizard.dashboard.rank_columns import Shown
from wizard.dashboard.ranks import legend, ordered, rank_map, table
from wizard.dashboard.screen import Dashboard
from wizard.dashboard.state import RunState, fold, fold_all
from wizard.dashboard.view import view_of
from wizard.runner.follow import frames

NOW = BEGAN + STEPS + 2
RECORDED = Path(__file__).parent.parent / "fakes" / "runs" / "restarted"
SIZES = [(60, 16), (79, 23), (80, 24), (100, 30), (140, 40), (200, 60)]


def dashboard(world: World) -> OnePage:
    source = replace(world.source(), clock=lambda: NOW)
    return OnePage(lambda: Dashboard(RUN, source))


@pytest.mark.wide
async def test_at_every_size_the_boxes_shown_lie_within_the_screen() -> None:
    app = dashboard(World(run=FollowedRun(run_with())))
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "Ranks (4 of 4)" in shown(app))
        for width, height in [*SIZES, (52, 14), (60, 16)]:
            await pilot.resize_terminal(width, height)
            await rest(pilot)
            wanted = layout.boxes(width, height, None)
            for name in (*layout.BOXES, "chart2"):
                box = app.screen.query_one(f"#{name}")
                assert box.display == (name in wanted), (name, width, height)
                if box.display and height >= 16:
                    assert box.region.right <= width
                    assert 2 < box.region.height <= height
                    assert box.region.bottom <= height - 2
        for name in ("chart", "ranks", "events", "log", "now"):
            await pilot.press("tab")
            await rest(pilot)
            assert [box.id for box in app.screen.query(f"#{name}") if box.display] == [name]


@pytest.mark.wide
async def test_keys_change_curve_order_and_log_and_give_a_box_the_screen() -> None:
    log = ("step 1", "RuntimeError: boom", "step 2")
    world = World(run=FollowedRun(run_with()), log=log)
    app = dashboard(world)
    async with app.run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "(!) RuntimeError: boom" in shown(app))
        await pilot.press("c", "o", "a")
        await until(pilot, lambda: "all" in world.logs_read and "Log of all ranks" in shown(app))
        assert "[lr]" in shown(app)
        assert "by number" in shown(app)
        await pilot.press("u", "p")
        await rest(pilot)
        assert "(!) RuntimeError" not in shown(app)
        assert "PAUSED" in shown(app)
        await pilot.press("p", "slash")
        await rest(pilot)
        await pilot.press(*"step 2", "enter")
        await until(pilot, lambda: "only 'step 2': 1" in shown(app))
        assert not isinstance(app.focused, Input)
        await pilot.press("x")
        await until(pilot, lambda: bool(world.pictures))
        await pilot.press("m")
        await rest(pilot)
        assert "Ranks" not in shown(app)
        await pilot.press("escape")
        await rest(pilot)
        assert "Ranks" in shown(app)
        assert app.left == []
    (name, picture), *_ = world.pictures.items()
    assert name == f"{RUN.name}-step-{STEPS}.svg"
    assert picture.startswith("<svg")


@pytest.mark.wide
async def test_a_run_that_ended_is_replayed_from_its_recording() -> None:
    shown_again = frames(RECORDED, 20)
    world = World(run=FollowedRun(shown_again[-1]), frames=shown_again)
    app = OnePage(lambda: Dashboard(RUN, world.source()))
    async with app.run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: "FINISHED" in shown(app))
        await pilot.press("tab", "tab", "tab", "tab", "r")  # a box that scrolls has the focus
        await until(pilot, lambda: "REPLAY" in shown(app))
        await pilot.press("home")
        await rest(pilot)
        assert "STARTING" in shown(app)
        assert "x preparing" not in shown(app)
        assert "the run goes on" not in shown(app)
        await pilot.press("s", "right", "left", "r")
        await until(pilot, lambda: "FINISHED" in shown(app) and "REPLAY" not in shown(app))
        await pilot.press("r", "home")
        await until(pilot, lambda: "REPLAY" in shown(app))
        await pilot.press("enter")
        await pilot.pause()
    assert app.left == [shown_again[-1]]


def many(count: int) -> Shown:
    """A step of many ranks: rank 7 slow, 9 silent, 11 failed, 12 saving, the last unheard of."""
    events = []
    for n in range(count - 1):
        for e in stream(n % 4, 12):
            slow = {"own_seconds": 0.97} if n == 7 and e["kind"] == "step" else {}
            if e["kind"] != "train":
                world = {"world_size": count} if e["kind"] == "hello" else {}
                events.append({**e, "rank": n, "host": f"node{n // 8}", **slow, **world})
    events += [
        event("phase", 60, 12, 12, phase="saving"),
        event("failed", 60, 11, 12, failure="gpu_oom", message="full"),
    ]
    state = replace(fold_all(RunState(), events), stale=(9,))
    return Shown(state=state, shares=view_of(state, PLAN, (), NOW).shares)


def test_a_map_marks_each_rank_and_the_table_begins_with_the_gravest() -> None:
    shown_ranks = many(72)
    drawn = ["".join(text for text, _ in line) for line in rank_map(shown_ranks, 60, 4)]
    assert drawn[0] == " 0 " + ".......#.?.X~..." + "." * 40
    assert drawn[1] == "56 " + "." * 15 + " "
    assert [rank.rank for rank in ordered(shown_ranks, "slowest")][:5] == [11, 9, 7, 12, 0]
    assert "X failed" in legend(shown_ranks)


def test_a_map_with_less_room_lets_the_gravest_of_several_ranks_stand_for_them() -> None:
    drawn = ["".join(text for text, _ in line) for line in rank_map(many(72), 21, 1)]
    assert drawn == [" 0 .?X" + "." * 12]


@pytest.mark.parametrize("order", ["slowest", "rank", "memory", "host"])
@pytest.mark.parametrize("width", [80, 140])
def test_the_table_of_ranks_keeps_to_its_room(order: str, width: int) -> None:
    shown_ranks = many(30)
    for first in (0, 5, 200):
        drawn = table(shown_ranks, width=width, room=8, order=order, first=first, picked=3)
        lines = ["".join(text for text, _ in line) for line in drawn]
        assert len(lines) <= 8
        assert max(map(len, lines)) <= width - 4
        assert lines[-1].startswith("  ... ")


def test_by_host_each_host_has_a_line_of_its_own() -> None:
    drawn = table(many(17), width=140, room=40, order="host", first=0, picked=None)
    lines = ["".join(text for text, _ in line) for line in drawn]
    assert [line.split(":")[0] for line in lines if "ranks, median" in line] == ["node0", "node1"]


def test_before_the_first_step_the_stages_of_the_launch_are_listed() -> None:
    loading = values.state_after(values.events()[:3])
    lines = launch_lines(loading, values.NOW - 200)
    assert [line[0] for line in lines] == ["✓", "✓", "✓", ">", ".", "."]
    assert lines[1].split() == ["✓", "data", "tokenised", "11", "s"]


def test_a_stage_that_has_yet_to_begin_has_no_time() -> None:
    state = RunState(phase="preparing", phases=(("starting", 100.0), ("preparing", 101.5)))
    under_way, to_come = (line.split() for line in launch_lines(state, 103.0)[1:3])
    assert under_way == [">", "preparing", "1.5", "s"]
    assert to_come == [".", "starting"], "the launcher's own start is not that of the ranks"


def test_lines_that_look_like_errors_stay_until_they_are_let_go() -> None:
    log = ["fine", "ValueError: a", "terrorised", "CUDA out of memory", "ValueError: a", "ok"]
    assert error_lines(log, frozenset()) == ["CUDA out of memory", "ValueError: a"]
    assert error_lines(log, frozenset({"ValueError: a"})) == ["CUDA out of memory"]
    assert matching(log, "cuda") == ["CUDA out of memory"]


def test_evaluations_are_drawn_where_they_were_made() -> None:
    state = fold(run_with(), event("eval", 61, 0, 60, metrics={"eval_loss": 1.5, "x": 2}))
    assert eval_points(state) == [(60, 1.5)]


def test_the_fault_finder_says_what_is_known_of_a_failure_and_what_to_type() -> None:
    failed = fold(
        run_with(),
        event("failed", 99, 1, 60, failure="gpu_oom", message="CUDA", traceback="a\nb\x1b[0m"),
    )
    failed = replace(failed, exit_code=71)
    assert "gpu_oom, told by rank 1: CUDA\na\nb␛[0m" in failure_text(failed)
    cause, *commands = actions(failed, Path("/runs/a b"))
    assert "out of memory" in cause
    assert "open log: tunewright logs '/runs/a b' --rank 1" in commands
    assert actions(run_with(), RUN)[0] == f"save and stop: tunewright stop {RUN}"


STATES: dict[str, Callable[[], RunState]] = {
    "straggler": lambda: run_with(
        lambda e: (
            {"own_seconds": 0.97, "sm_clock_mhz": 1200, "temperature_c": 88}
            if e["rank"] == 2 and e["kind"] in ("step", "pulse")
            else {}
        )
    ),
    "silent": lambda: replace(run_with(), stale=(1,)),
    "hang": lambda: fold_all(
        run_with(),
        [
            event("pulse", STEPS + t, r, STEPS, phase="saving" if r == 3 else "training", seconds=t)
            for t in range(5, 61, 5)
            for r in range(4)
        ],
    ),
    "starved": lambda: run_with(lambda e: {"data_seconds": 0.4} if e["kind"] == "step" else {}),
    "near oom": lambda: run_with(
        lambda e: {"memory_used_bytes": 78 * GIB} if e["kind"] == "pulse" else {}
    ),
    "creep": lambda: run_with(
        lambda e: (
            {"memory_allocated_bytes": (17 + 0.1 * e["step"]) * GIB} if e["kind"] == "step" else {}
        )
    ),
    "nan": lambda: run_with(
        lambda e: {"loss": "nan"} if e["kind"] == "train" and e["step"] == STEPS else {}
    ),
    "spike": lambda: run_with(
        lambda e: {"loss": 9.0} if e["kind"] == "train" and e["step"] == STEPS else {}
    ),
    "clipped": lambda: run_with(lambda e: {"grad_norm": 3.0} if e["kind"] == "train" else {}),
    "skewed": lambda: run_with(lambda e: {"t": e["t"] - 30} if e["rank"] in (2, 3) else {}),
    "plateau": lambda: run_with(
        lambda e: {
            "t": e["t"] - 390,
            **({"loss": 0.7 + 0.01 * (e["step"] % 3)} if (e["step"] or 0) > 150 else {}),
        },
        steps=450,
    ),
    "slower": lambda: run_with(
        lambda e: {
            "t": e["t"] - 90,
            **({"seconds": 2.0} if e["kind"] == "step" and e["step"] > 100 else {}),
        },
        steps=150,
    ),
    "over the plan": lambda: run_with(
        lambda e: {"memory_peak_bytes": 30 * GIB} if e["kind"] == "step" else {}
    ),
    "failed": lambda: replace(
        fold(run_with(), event("failed", 61, 1, 60, failure="gpu_oom", message="CUDA: full")),
        exit_code=71,
    ),
    "xid": lambda: run_with(lambda e: {"xid": 79} if e["kind"] == "pulse" else {}),
    "disk": lambda: replace(
        fold(run_with(), event("saved", 50, 0, 50, path="checkpoint-50", bytes=10 * GIB)),
        disk_free_bytes=9 * GIB,
    ),
}


@pytest.mark.wide
@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=["80x24", "140x40"])
async def test_every_state_of_health_is_told_as_it_was(
    size: tuple[int, int], snapshot: Any
) -> None:
    """The whole screen and the fault finder's words, for each state."""
    world = World(run=FollowedRun(run_with()))
    app = dashboard(world)
    told = []
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: "Ranks (4 of 4)" in shown(app))
        screen = app.screen
        assert isinstance(screen, Dashboard)
        for name, make in STATES.items():
            world.run.state = make()
            screen.action_log_of()
            await until(pilot, lambda: screen.state == world.run.state)
            await rest(pilot)
            told.append(f"== {name}\n{shown(app)}")
            told.append(findings_text(screen.view.findings).plain)
    assert "\n".join(told) == snapshot


def test_each_state_of_health_is_another_finding() -> None:
    kinds = {name: health(make(), PLAN, NOW)[0].kind for name, make in STATES.items()}
    assert len(set(kinds.values())) == len(STATES)
