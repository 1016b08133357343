"""What finished runs measured corrects later plans, on this machine and for this family only."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.spec import dumps
from tests.runner.making import facts, plan, spec
from wizard import history, paths, script
from wizard.facts import Facts, Model
from wizard.history import Finished, corrected
from wizard.plan import Plan

GIB = 1024**3
MACHINE: Facts = replace(
    facts(), model=Model(name="tiny", path=None, architecture="llama", source="table")
)


def planned(**changes: Any) -> Plan:
    made = plan(spec())
    part = replace(made.memory.parts[0], bytes=20 * GIB)
    memory = replace(
        made.memory, parts=(part,), device_bytes=20 * GIB, device_budget_bytes=21 * GIB
    )
    return replace(made, memory=memory, tokens_per_second=1000.0, step_seconds=8.0, **changes)


def finished(
    measured: float | None = 21 * GIB, speed: float | None = None, **changes: Any
) -> Finished:
    values: dict[str, Any] = {
        "run": "r",
        "machine": "2 × CPU",
        "family": "llama",
        "setup": history._setup(spec()),
        "predicted_bytes": 20.0 * GIB,
        "measured_bytes": measured,
        "predicted_tokens_per_second": 1000.0,
        "measured_tokens_per_second": speed,
    }
    return Finished(**{**values, **changes})


def test_more_memory_than_predicted_becomes_a_part_and_counts_for_the_fit() -> None:
    measured = (10.25 * GIB, 11 * GIB, 20 * GIB)
    runs = [finished(size, predicted_bytes=10.0 * GIB) for size in measured]
    (made,) = corrected([planned()], MACHINE, runs)
    assert made.memory.device_bytes == 22 * GIB
    assert sum(part.bytes for part in made.memory.parts) == made.memory.device_bytes
    assert not made.fits
    assert "predicted 20.0 GiB, adjusted 22.0 GiB from 3 runs here" in made.why[-1]


def test_less_memory_than_predicted_is_said_and_never_counted() -> None:
    (made,) = corrected([planned()], MACHINE, [finished(15 * GIB)])
    assert made.memory == planned().memory
    assert "adjusted 15.0 GiB from 1 run here" in made.why[-1]


def test_a_plan_is_not_predicted_below_what_it_measured_itself() -> None:
    others = [finished(7 * GIB, predicted_bytes=10.0 * GIB)] * 3
    (made,) = corrected([planned()], MACHINE, [*others, finished(22 * GIB)])
    assert made.memory.device_bytes == 22 * GIB


def test_the_same_plan_has_its_measured_time_where_none_is_predicted() -> None:
    unknown = replace(planned(), tokens_per_second=None, step_seconds=None, steps=10)
    took = finished(
        None, 500.0, measured_step_seconds=4.0, same=history._same("tiny", unknown.spec)
    )
    (made,) = corrected([unknown], MACHINE, [took])
    assert (made.step_seconds, made.run_seconds, made.tokens_per_second) == (4.0, 40.0, 500.0)
    assert "as measured in 1 run of this plan here" in made.why[-1]
    (other,) = corrected([unknown], MACHINE, [replace(took, same="another model")])
    assert other == unknown


def test_speed_follows_the_runs_in_both_directions() -> None:
    for speed, seconds in ((500.0, 16.0), (2000.0, 4.0)):
        (made,) = corrected([planned()], MACHINE, [finished(None, speed)])
        assert (made.tokens_per_second, made.step_seconds) == (speed, seconds)


@pytest.mark.parametrize(
    "other",
    [
        {"machine": "8 × H100"},
        {"family": "qwen2"},
        {"setup": "full"},
        {"measured_bytes": None, "measured_tokens_per_second": None},
        {"measured_bytes": 900 * GIB},
    ],
)
def test_runs_of_another_kind_change_nothing(other: dict[str, Any]) -> None:
    assert corrected([planned()], MACHINE, [finished(**{"speed": 1.0, **other})])[0].memory == (
        planned().memory
    )


def test_a_plan_for_another_machine_is_left_as_it_is() -> None:
    assert corrected([planned()], replace(MACHINE, machine="8xH100"), [finished()]) == (planned(),)


@pytest.fixture
def ran(tmp_path: Path) -> Callable[..., Path]:
    """Makes the folder of a run that ended as told."""

    def make(name: str, made: Plan, *, measured: float, code: int = 0, rung: int = 0) -> Path:
        folder = tmp_path / "runs" / name
        folder.mkdir(parents=True)
        files = script.render(made, name=name, python="/p", facts=MACHINE, written="today")
        for file, text in files.items():
            (folder / file).write_text(text)
        (folder / "state.json").write_text(json.dumps({"exit_code": code, "rung": rung}))
        values = {"memory_peak_bytes": [None, None], "process_memory_peak_bytes": [1, measured]}
        result = {"measured": {**values, "steps": 9, "tokens_per_second": 500.0}}
        (folder / "result.json").write_text(json.dumps(result))
        return folder

    return make


def test_finished_runs_are_learnt_once_and_a_correction_does_not_feed_on_itself(
    ran: Callable[..., Path], tmp_path: Path
) -> None:
    ran("a", planned(), measured=22 * GIB)
    ran("failed", planned(), measured=90 * GIB, code=76)
    ran("other rung", planned(), measured=90 * GIB, rung=1)
    edited = ran("edited", planned(), measured=90 * GIB)
    told = dumps(spec(training={"learning_rate": 1e-5}))
    (edited / "spec.toml").write_text(told)
    for _ in range(2):
        history.learn(tmp_path / "runs")
    assert len(history.entries()) == 1
    (once,) = corrected([planned()], MACHINE, history.entries())
    ran("b", once, measured=22 * GIB)
    history.learn(tmp_path / "runs")
    (twice,) = corrected([planned()], MACHINE, history.entries())
    assert twice.memory.device_bytes == once.memory.device_bytes == 22 * GIB
    assert twice.tokens_per_second == once.tokens_per_second == 500.0
    assert "from 2 runs here" in twice.why[-1]
    assert paths.history().stat().st_mode & 0o077 == 0


def test_a_damaged_history_is_passed_over(ran: Callable[..., Path], tmp_path: Path) -> None:
    ran("a", planned(), measured=22 * GIB)
    history.learn(tmp_path / "runs")
    with paths.history().open("a") as file:
        file.write('{"schema": 1}\n[]\nnot json\n{"schema": 9, "run": "x"}\n')
    assert len(history.entries()) == 1
    history.learn(tmp_path / "nowhere")
    paths.history().write_bytes(b"\xff\xfe")
    assert history.entries() == ()
