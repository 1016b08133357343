"""What run.sh says of a run that goes on: enough to know where it is, and no flood."""

from __future__ import annotations

import os
import pty
import termios
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import encode
from engine.progress import FIRST_PAUSE, Progress, span, tell_terminal

BEGAN = 1_790_000_000.0


class Run:
    """Streams of a run folder, and what is told of them."""

    def __init__(self, folder: Path, *, trains: bool = True) -> None:
        (folder / "events").mkdir(parents=True)
        self.folder = folder
        self.told: list[str] = []
        self.progress = Progress(folder, 1, trains=trains, began=0.0, tell=self.told.append)

    def say(self, stream: str, kind: str, t: float, **fields: Any) -> None:
        rank = None if stream == "launcher" else 0
        given = {"attempt": 1, **fields}
        with (self.folder / "events" / f"{stream}.jsonl").open("a") as file:
            file.write(encode(kind, t=BEGAN + t, rank=rank, **given))

    def step(self, step: int, t: float, loss: float) -> None:
        self.say("rank-00000", "train", t, step=step, loss=loss)


def test_a_training_is_told_by_its_phases_steps_and_end(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.say("rank-00000", "phase", 0, phase="training", attempt=0)
    run.say("rank-00000", "phase", 0, phase="loading model")
    run.progress.look(0)
    run.say("rank-00000", "phase", 8, phase="training", total_steps=100)
    run.step(1, 10, 2.5)
    run.progress.look(10)
    run.step(2, 12, 2.4)
    run.progress.look(12)
    run.say("rank-00000", "warn", 20, text="slow disk\x1b[2J")
    run.step(11, 30, 2.0)
    run.say("rank-00000", "phase", 30, phase="saving")
    run.say("rank-00000", "phase", 30, phase="training", total_steps=100)
    run.say("rank-00000", "eval", 31, step=11, metrics={"eval_loss": 2.25})
    run.progress.look(31)
    run.step(100, 208, 1.0)
    run.say("rank-00000", "saved", 209, step=100, path="/runs/a/model")
    run.say("rank-00000", "done", 210, step=100, exit_code=0, seconds=210.0)
    run.progress.look(32)
    assert run.told == [
        "loading model",
        "training",
        "step 1 of 100, loss 2.5000",
        "warning: slow disk\x1b[2J",
        "step 11: eval loss 2.2500",
        "step 11 of 100, loss 2.0000, 2 s a step, about 3 min left",
        "step 100 of 100, loss 1.0000, 2 s a step",
        "done after 4 min, loss 2.5000 → 1.0000; the result is /runs/a/model",
    ]


def test_what_is_fetched_is_told_now_and_then(tmp_path: Path) -> None:
    run = Run(tmp_path, trains=False)
    for second in range(60):
        detail = f"m: {second} of 60 GiB"
        run.say("launcher", "phase", second, phase="fetching", progress=second / 60, detail=detail)
        run.progress.look(second)
    assert [line.split()[1] for line in run.told] == ["0", "10", "20", "30", "40", "50"]


@given(st.lists(st.floats(0.01, 900), min_size=1, max_size=60))
def test_no_run_floods_its_terminal(
    tmp_path_factory: pytest.TempPathFactory, pauses: list[float]
) -> None:
    run = Run(tmp_path_factory.mktemp("run"))
    now = 0.0
    for number, pause in enumerate(pauses):
        now += pause
        run.step(number + 1, now, 1.0)
        run.progress.look(now)
    assert len(run.told) <= 2 + now / FIRST_PAUSE


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(-5, "0 s"), (89, "89 s"), (90, "2 min"), (3570, "1 h 00 min"), (7500, "2 h 05 min")],
)
def test_time_is_told_in_its_own_unit(seconds: float, told: str) -> None:
    assert span(seconds) == told


def test_a_terminal_that_is_held_still_or_gone_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        termios.tcflow(theirs, termios.TCOOFF)
        tell_terminal("held")
        termios.tcflow(theirs, termios.TCOON)
        tell_terminal("a \x1b[2J line")
        assert os.read(ours, 100) == b"a \\x1b[2J line\r\n"
        os.close(ours)
        tell_terminal("nobody")
