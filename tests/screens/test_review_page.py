"""The review page: checks with remedies, a diff, a smoke test, and ways to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.screens import values
from tests.screens.pages import review
from tests.screens.stage import RUN, FollowedRun, OnePage, World, rest, shown, until
from tests.screens.test_pages import problem_on
from wizard.dashboard.state import RunState
from wizard.facts import GIB, DeviceProcess, Facts, Readings, Surroundings
from wizard.plan import Plan
from wizard.screens.preflight import checks
from wizard.steps import InForeground

TIMED = replace(values.PLANS[0], step_seconds=1.5, tokens_per_second=9_000.0)


async def test_a_smoke_test_is_run_first_and_what_it_took_is_told() -> None:
    world = World(run=FollowedRun(RunState()))
    app = OnePage(lambda: review(world))
    async with app.run_test(size=(140, 40)) as pilot:
        await rest(pilot)
        await pilot.press("s")
        await pilot.pause(0.2)
        assert "smoke test: a few steps" in shown(app)
        await pilot.press("enter")
        assert app.left == [], "nothing starts twice"
        world.run.state = values.finished(RunState())
        await until(
            pilot, lambda: "smoke test passed: 19.6 GiB measured, 19.4 GiB pre" in shown(app)
        )
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert world.launched == [(RUN, True), (RUN, False)]
    assert len(world.written) == 1, "the folder is made once"


@pytest.mark.slow
async def test_a_smoke_test_that_fails_says_why() -> None:
    ended = replace(RunState(), exit_code=71, phase="done")
    world = World(run=FollowedRun(ended))
    app = OnePage(lambda: review(world))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("s")
        await until(pilot, lambda: problem_on(app) is not None)
        problem = problem_on(app)
    assert problem is not None
    assert problem.what == "the smoke test ended with 71"
    assert app.left == []


async def test_w_writes_and_starts_nothing_and_d_shows_what_differs() -> None:
    last = {"run.sh": values.SCRIPT.replace("OMP_NUM_THREADS=16", "OMP_NUM_THREADS=4")}
    world = World(last=("old-run", last))
    app = OnePage(lambda: review(world))
    async with app.run_test(size=(140, 40)) as pilot:
        await rest(pilot)
        await pilot.press("d")
        await until(pilot, lambda: "- old-run, + " in shown(app))
        text = shown(app)
        await pilot.press("d", "w")
        await until(pilot, lambda: "written to" in shown(app))
        assert "set -euo pipefail" in shown(app)
        await pilot.press("t")
        await until(pilot, lambda: bool(app.left))
    assert "-export OMP_NUM_THREADS=4 " in text
    assert "+export OMP_NUM_THREADS=16 " in text
    assert "PYTHONSAFEPATH" in text
    assert "set -euo pipefail" not in text, "what is far from a difference is left out"
    assert world.launched == []
    assert len(world.written) == 1
    assert app.left == [InForeground(run=RUN)]


async def test_the_run_of_another_machine_is_offered_to_be_written_and_not_to_be_started() -> None:
    world = World()
    app = OnePage(lambda: review(world, facts=replace(values.FACTS, machine="8xH100-SXM")))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        picture = shown(app)
        await pilot.press("s", "t", "enter")
        await until(pilot, lambda: "written to" in shown(app))
        told = shown(app)
    assert "nothing is started here: Enter writes the folder" in picture
    assert [word in picture for word in ("Launch", "Smoke test", "⏎ Write")] == [False, False, True]
    assert "copy it to 8xH100-SXM" in " ".join(told.split())
    assert (len(world.written), world.launched, app.left) == (1, [], [])


@pytest.mark.slow
async def test_the_editor_opens_the_written_file_and_what_it_left_is_shown() -> None:
    class Lent(OnePage):
        def suspend(self) -> Any:
            from contextlib import nullcontext

            return nullcontext()

    world = World()

    def files_of(folder: Path) -> Mapping[str, str]:
        return {**world.files, "run.sh": "#!/bin/bash\necho edited\n"}

    app = Lent(lambda: review(world, verbs=world.review_verbs(files_of=files_of)))
    async with app.run_test(size=(80, 24)) as pilot:
        await rest(pilot)
        await pilot.press("e")
        await until(pilot, lambda: "echo edited" in shown(app))
        await pilot.press("enter")
        await until(pilot, lambda: bool(app.left))
    assert world.edited == [(RUN / "run.sh", 1)]
    assert world.written == [(values.FILES, RUN.name)], "what was edited is not written over"


def said(plan: Plan, facts: Facts) -> str:
    return checks(plan, facts).plain


def test_each_check_that_fails_names_its_remedy() -> None:
    plan = values.PLANS[0]
    busy = replace(
        values.device(0),
        readings=Readings(processes=(DeviceProcess(pid=77, name="python", memory_bytes=9 * GIB),)),
    )
    around = Surroundings(ends_detached_runs="systemd", ends_detached_fix="loginctl enable-linger")
    host = replace(values.HOST, disk_free_bytes=GIB, surroundings=around)
    text = said(plan, replace(values.FACTS, devices=(busy, values.device(1)), host=host))
    assert "device 0: pid 77 holds 9.0 GiB (wait, or skip it on the Hardware page)" in text
    assert "systemd ends a run when you leave (loginctl enable-linger)" in text
    assert "[ !! ] data" in text
    assert "[note] model    Qwen/Qwen3-8B is fetched" in text
    assert "save_total_limit=1 keeps fewer checkpoints" in text


def test_a_run_with_nothing_in_its_way_is_all_ok() -> None:
    model = replace(values.MODEL, path="/models/qwen3-8b")
    whole = replace(values.DATASET, dropped_rows=0, problems=())
    idle = tuple(replace(d, readings=Readings(processes=())) for d in values.FACTS.devices)
    facts = replace(values.FACTS, model=model, dataset=whole, devices=idle)
    text = said(TIMED, facts)
    assert {line[:6] for line in text.split("\n")} == {"[ ok ]"}


def test_what_could_not_be_looked_at_is_neither_good_nor_bad() -> None:
    silent = tuple(
        replace(d, memory_used_bytes=None, readings=Readings()) for d in values.FACTS.devices
    )
    plan = replace(
        values.PLANS[0], memory=replace(values.PLANS[0].memory, device_budget_bytes=None)
    )
    host = replace(values.HOST, disk_free_bytes=None)
    for short in (False, True):
        facts = replace(values.FACTS, devices=silent, host=host)
        lines = checks(plan, facts, short=short).plain.split("\n")
        unknown = [line[7:].split()[0] for line in lines if line.startswith("[ ?")]
        assert unknown == ["memory", "time", "disk", "devices"]
    unsized = replace(values.MODEL, disk_bytes=None)
    text = said(plan, replace(values.FACTS, model=unsized))
    assert "whose size is not known" in text


async def test_in_the_smallest_terminal_script_and_checks_are_both_reached() -> None:
    app = OnePage(review)
    async with app.run_test(size=(60, 16)) as pilot:
        await until(pilot, lambda: "set -euo pipefail" in shown(app))
        await pilot.press(*["ctrl+up"] * 4)
        await until(pilot, lambda: "[ ok ] memory" in shown(app))
        assert ".8" in shown(app).split("\n")[0]
