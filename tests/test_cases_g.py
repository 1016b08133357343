"""Real failures of what watches a run (area G), each by its number: what is shown of them.

Not caused here:
    G05  torchrun itself in the same folder again: tests/runner/test_life.py does it for real
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from textual import events
from textual.message import Message

from engine import devices, preflight
from engine.events import EXIT_NO_DEVICES
from engine.evidence import gather
from engine.sensors import Sampler
from tests.health_streams import BEGAN, PLAN, STEPS, Change, event, run_with, stream
from tests.runner.making import facts, plan, spec
from wizard import script
from wizard.dashboard.health import health
from wizard.dashboard.state import RunState, fold_all
from wizard.probe.running import run
from wizard.runner import logs
from wizard.widgets.terminal import Terminal

PATIENCE_SECONDS = 20.0
HANGS = "import time\ndef nvmlInit(): time.sleep(600)\n"
ANSWERS = """
def nvmlInit(): print("Loading the driver")
def nvmlDeviceGetCount(): return 2
def nvmlDeviceGetHandleByIndex(index): return index
def nvmlDeviceGetUUID(handle): return f"GPU-{handle}"
"""


def driver(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's library is this for whoever imports it from now on, in children."""
    (tmp_path / "pynvml.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


def wait_for(said: Any) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not said():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_order(change: Change = lambda e: {}) -> RunState:
    """The state after the four streams as they were written, whatever their clocks said."""
    written = sorted((e for rank in range(4) for e in stream(rank)), key=lambda e: e["t"])
    return fold_all(RunState(name="run"), ({**e, **change(e)} for e in written))


def test_g01_a_driver_that_takes_seconds_for_an_answer_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    starts = []

    def asked(handle: object) -> object:
        answered.wait(PATIENCE_SECONDS)
        return SimpleNamespace(gpu=50)

    library = SimpleNamespace(
        nvmlInit=lambda: starts.append(1),
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetUtilizationRates=asked,
    )
    monkeypatch.setitem(sys.modules, "pynvml", library)
    sampler = Sampler("GPU-1", seconds=0.01)
    assert sampler.newest() == {}
    answered.set()
    wait_for(sampler.newest)
    assert sampler.newest() == {"utilization_percent": 50}
    assert starts == [1]


@pytest.mark.wide
def test_g02_a_driver_that_never_answers_is_waited_for_no_longer_than_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    driver(HANGS, tmp_path, monkeypatch)
    monkeypatch.setattr(preflight, "devices_here", lambda kind: devices.devices_here(kind, 1.0))
    file = tmp_path / "spec.toml"
    wanted = spec(parallel={"device_kind": "cuda"})
    files = script.render(plan(wanted), name="r", python="/python", facts=facts(), written="today")
    file.write_text(files["spec.toml"])
    assert preflight.main([str(file), "--ranks", "2"]) == EXIT_NO_DEVICES
    said = capsys.readouterr().err
    assert said.startswith("the driver of the cuda devices did not answer within 1 s: ")
    assert said.count("\n") == 1


def test_g02_a_process_whose_driver_hangs_can_end(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text(HANGS)
    code = "from engine.sensors import Sampler; print(Sampler('GPU-1', 1.0).newest())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    assert done.stdout == b"{}\n"


def test_g02_devices_of_a_driver_that_answers_are_named_whatever_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(ANSWERS, tmp_path, monkeypatch)
    assert devices.devices_here("cuda", PATIENCE_SECONDS) == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_g04_of_a_bar_that_wrote_megabytes_in_one_line_the_last_state_is_shown(
    end: str, tmp_path: Path
) -> None:
    folder = tmp_path / "logs" / "none_x" / "attempt_0" / "0"
    folder.mkdir(parents=True)
    bar = "\r".join(f"{n:6d}/99999 |{'█' * 20}| [1:41:01<00:00]" for n in range(70_000))
    glued = "\r100%|███| 850/850 [1:41:01<00:00]{'eval_loss': nan}"
    (folder / "stderr.log").write_text(f"begin\n{bar}{glued}{end}")
    assert (folder / "stderr.log").stat().st_size > 3 * 1024**2
    (line,) = logs.tail(tmp_path, 0, 10)
    assert line == glued[1:]


def test_g04_the_loss_is_read_from_the_events_and_never_from_a_log() -> None:
    state = fold_all(
        RunState(), [event("train", 1, 0, 1, loss=2.5), event("warn", 2, 0, 1, text="{'loss': 1}")]
    )
    assert state.losses == ((1, 2.5),)


def test_g05_of_several_starts_of_torchrun_the_newest_one_s_ranks_are_shown(
    tmp_path: Path,
) -> None:
    for age, name in ((200, "none_zz"), (0, "none_aa")):
        for rank in (0, 1):
            log = tmp_path / "logs" / name / "attempt_0" / str(rank) / "stderr.log"
            log.parent.mkdir(parents=True)
            log.write_text(f"Error: {name} of rank {rank}\n")
            os.utime(log, (time.time() - age, time.time() - age))
    assert logs.tail(tmp_path, 1, 5) == ("Error: none_aa of rank 1",)
    began = time.time() - 100
    found = gather(tmp_path, phase="training", attempt=1, ranks=(0, 1), began=began, oom_kills=0)
    assert found.said == {rank: f"Error: none_aa of rank {rank}\n" for rank in (0, 1)}


def test_g05_before_torchrun_has_made_its_folders_there_is_no_log_and_no_error(
    tmp_path: Path,
) -> None:
    assert logs.tail(tmp_path, 0, 5) == logs.tail(tmp_path, "all", 5) == ()
    assert logs.ranks(tmp_path) == ()


def test_g07_native_code_that_crashes_ends_a_child_and_not_the_screen() -> None:
    crash = "import os, signal; print('before'); os.kill(os.getpid(), signal.SIGSEGV)"
    ran = run([sys.executable, "-uc", crash], PATIENCE_SECONDS)
    assert (ran.code, ran.out) == (-11, "before\n")


def test_g07_a_place_of_the_mouse_that_is_no_text_is_dropped_and_keys_go_on() -> None:
    reads, writes = os.pipe()
    pressed: list[Message] = []
    terminal = Terminal.__new__(Terminal)
    terminal.fileno, terminal._debug, terminal.exit_event = reads, False, threading.Event()
    terminal.process_message = pressed.append  # type: ignore[assignment]
    thread = threading.Thread(target=terminal.run_input_thread, daemon=True)
    thread.start()

    def keys() -> list[str]:
        return [message.key for message in pressed if isinstance(message, events.Key)]

    try:
        os.write(writes, b"\x1b[M \xf4\xa0")
        time.sleep(0.3)  # what follows is another reading of the terminal
        os.write(writes, b"q")
        wait_for(lambda: "q" in keys())
    finally:
        terminal.exit_event.set()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


@pytest.mark.parametrize("jump", [-7200.0, -40.0, 7200.0])
def test_g08_a_clock_that_jumps_is_no_hang_and_no_silence(jump: float) -> None:
    state = in_order(lambda e: {"t": e["t"] + (jump if e["t"] > BEGAN + 45 else 0)})
    now = BEGAN + STEPS + 2 + jump
    found = health(state, PLAN, now)
    assert {finding.kind for finding in found} <= {"clock_skew"}
    assert state.step == STEPS
    assert all(seconds >= 0 for seconds in state.stage_seconds(now).values())
    assert (state.eta_seconds() or 0) == pytest.approx(5000 - STEPS)


@pytest.mark.parametrize("jump", [-7200.0, 0.0, 7200.0])
def test_g08_a_hang_is_found_though_the_clock_jumped(jump: float) -> None:
    state = in_order(lambda e: {"t": e["t"] + (jump if e["t"] > BEGAN + 45 else 0)})
    waiting = [
        event("pulse", STEPS + t + jump, rank, STEPS, phase="training", seconds=STEPS + t)
        for t in range(5, 61, 5)
        for rank in range(4)
    ]
    state = fold_all(state, waiting)
    (found, *_) = health(state, PLAN, BEGAN + STEPS + 60 + jump)
    assert (found.kind, found.what) == ("hang", "no rank has finished a step for 59 s")


@pytest.mark.parametrize("utilization", [0, None])
def test_g10_a_device_that_is_seen_idle_is_no_alarm_while_steps_go_on(
    utilization: int | None,
) -> None:
    state = run_with(lambda e: {"utilization_percent": utilization} if e["kind"] == "pulse" else {})
    assert health(state, PLAN, BEGAN + STEPS + 2) == ()


@pytest.mark.parametrize(("power", "spins"), [(95, True), (610, False), (None, False)])
def test_g10_busy_devices_at_idle_power_and_no_step_are_a_hang_and_said_to_wait(
    power: int | None, spins: bool
) -> None:
    waiting = [
        event("pulse", STEPS + t, rank, STEPS, phase="training", doing="collective",
              seconds=STEPS + t, utilization_percent=100, power_w=power, power_cap_w=700)
        for t in range(5, 61, 5)
        for rank in range(4)
    ]  # fmt: skip
    (found, *_) = health(fold_all(run_with(), waiting), PLAN, BEGAN + STEPS + 60)
    assert found.kind == "hang"
    assert ("busy devices take 95 of 700 W: they wait and do not compute" in found.evidence) == (
        spins
    )
