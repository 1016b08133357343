"""Pictures of recorded runs at every size, of the fault finder, and of many ranks; by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from tests.screens import values
from tests.screens.stage import RUN, FollowedRun, OnePage, World, rest, until
from tests.screens.test_boxes import NOW, SIZES, STATES, many
from wizard.dashboard.screen import Dashboard
from wizard.dashboard.state import RunState
from wizard.runner.follow import Follower

pytestmark = pytest.mark.slow
RECORDED = Path(__file__).parent.parent / "fakes" / "runs" / "restarted"


def app_of(state: RunState, now: float) -> OnePage:
    world = World(run=FollowedRun(replace(state, disk_free_bytes=None)))
    return OnePage(lambda: Dashboard(RUN, replace(world.source(), clock=lambda: now)))


def settle(*keys: str) -> Callable[[Pilot[Any]], Any]:
    async def settled(pilot: Pilot[Any]) -> None:
        screen = pilot.app.screen
        assert isinstance(screen, Dashboard)
        await until(pilot, lambda: bool(screen.state.ranks))
        await pilot.press(*keys)
        await rest(pilot)

    return settled


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_recorded_run_looks_as_it_did(
    size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    state = Follower(RECORDED).poll()
    app = app_of(state, (state.updated or values.NOW) + 60)
    assert snap_compare(app, terminal_size=size, run_before=settle())


@pytest.mark.parametrize("name", ["hang", "straggler", "nan"])
@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=["80x24", "140x40"])
def test_the_fault_finder_looks_as_it_did(
    name: str, size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    state = STATES[name]()
    app = app_of(state, max(NOW, state.updated or 0.0))
    assert snap_compare(app, terminal_size=size, run_before=settle("f"))


@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=["80x24", "140x40"])
def test_many_ranks_look_as_they_did(
    size: tuple[int, int], snap_compare: Callable[..., bool]
) -> None:
    app = app_of(many(300).state, NOW)
    assert snap_compare(app, terminal_size=size, run_before=settle())
