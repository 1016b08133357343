"""run.sh: what it does about each code. Bash, the watch and the signals are real, the ranks act."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import locks
from engine.events import (
    EXIT_BAD_DATA,
    EXIT_BAD_SPEC,
    EXIT_COMM,
    EXIT_GPU_OOM,
    EXIT_HOST_OOM,
    EXIT_NO_DEVICES,
    EXIT_NOT_FINITE,
    EXIT_OK,
    EXIT_OTHER,
    EXIT_STOPPED,
)
from tests.runner.making import facts, plan, spec
from tests.runner.waiting import until
from wizard import script
from wizard.runner.folder import create, read_json

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("loop")]

# Stands for python: training, fetching and preparing are acted, everything else is python's.
ACTOR = f"""#!/usr/bin/env bash
case "$*" in
  *engine.train*)
    echo "$PATH" >path
    env | grep -E '^(RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT)=' >left
    line="$*"
    go=${{line##*engine.after }}
    until [ -e "${{go%% *}}" ]; do sleep 0.02; done
    echo "${{line##*engine.train }}" >>calls
    attempt=${{line##*--attempt }} attempt=${{attempt%% *}}
    code=$(sed -n "$((attempt + 1))p" codes)
    if [ "$code" = wait ]; then
      trap 'touch signalled' TERM
      touch waiting
      until [ -e stop ] || [ -e go ]; do sleep 0.05; done
      code=75
      [ -e stop ] || code=0
    fi
    class=null
    case $code in
      71) class='"gpu_oom"' ;;
      76) class='"comm_failed"' ;;
      hang) class='"comm_timeout"' code=76 ;;
    esac
    said='{{"code": %d, "t": 1, "message": "acted", "failure": %s}}'
    for rank in 00000 00001; do
      printf "$said" "$code" "$class" >"exit/$attempt/rank-$rank.json"
    done
    [ "$code" = 0 ] || exit 1 ;;
  *engine.preflight*)
    [ ! -e devices ] || exec cat devices
    exec '{sys.executable}' "$@" ;;
  *engine.fetch*) ;;
  *engine.prepare*)
    [ -e bad_data ] || exit 0
    echo "line 3 is not JSON" >&2
    exit {EXIT_BAD_DATA} ;;
  *engine.watch*stage*training*)
    [ ! -e odd ] || exit 99
    exec '{sys.executable}' "$@" ;;
  *) exec '{sys.executable}' "$@" ;;
esac
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    actor = tmp_path / "actor"
    actor.write_text(ACTOR)
    actor.chmod(0o700)
    main = plan(spec(), (spec(training={"gradient_checkpointing": True}),))
    files = script.render(main, name="r", python=str(actor), facts=facts(), written="today")
    return create(files, root=tmp_path, name="run")


def start(folder: Path, *codes: object, options: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    (folder / "codes").write_text("".join(f"{code}\n" for code in codes))
    return subprocess.Popen(
        ["bash", str(folder / "run.sh"), *options],
        stdout=subprocess.DEVNULL,
        stderr=(folder / "said").open("wb"),
        start_new_session=True,
        # Under nohup it is ignored, and bash traps no signal that was ignored when it began.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines()


@pytest.mark.parametrize(
    ("codes", "ends", "runs"),
    [
        ((0,), EXIT_OK, ["spec.toml --attempt 0 --rung 0"]),
        (
            (71, 0),
            EXIT_OK,
            ["spec.toml --attempt 0 --rung 0", "spec.1.toml --attempt 1 --rung 1 --resume"],
        ),
        (
            (71, 71, 0),
            EXIT_GPU_OOM,
            ["spec.toml --attempt 0 --rung 0", "spec.1.toml --attempt 1 --rung 1 --resume"],
        ),
        (
            (76, 72, 0),
            EXIT_HOST_OOM,
            ["spec.toml --attempt 0 --rung 0", "spec.toml --attempt 1 --rung 0 --resume"],
        ),
        ((74, 0), EXIT_NOT_FINITE, ["spec.toml --attempt 0 --rung 0"]),
    ],
)
def test_the_code_of_the_ranks_decides_what_comes_next(
    codes: tuple[int, ...], ends: int, runs: list[str], folder: Path
) -> None:
    assert start(folder, *codes).wait(timeout=60) == ends
    assert calls(folder) == runs
    state = read_json(folder / "state.json")
    assert state["exit_code"] == ends
    assert state["message"] == ("finished" if ends == EXIT_OK else "acted")


def test_restarts_are_as_many_as_asked(folder: Path) -> None:
    run = start(folder, 76, 76, 76, 0, options=("--max-restarts", "2"))
    assert run.wait(timeout=60) == EXIT_COMM
    assert len(calls(folder)) == 3


@pytest.mark.parametrize(
    ("codes", "options", "ends", "runs"),
    [
        ((71, 0), ("--on-oom", "stop"), EXIT_GPU_OOM, 1),
        (("hang", 0), ("--on-hang", "stop"), EXIT_COMM, 1),
    ],
)
def test_what_is_said_about_failures_is_done(
    codes: tuple[object, ...], options: tuple[str, ...], ends: int, runs: int, folder: Path
) -> None:
    assert start(folder, *codes, options=options).wait(timeout=60) == ends
    assert len(calls(folder)) == runs


def test_exact_runs_climb_no_further_than_the_optimizer_s_state_goes(tmp_path: Path) -> None:
    (tmp_path / "actor").write_text(ACTOR)
    (tmp_path / "actor").chmod(0o700)
    rungs = tuple(
        spec(training={"gradient_checkpointing": True, "optim": kind})
        for kind in ("adamw_torch_fused", "adamw_bnb_8bit")
    )
    files = script.render(
        plan(spec(), rungs),
        name="r",
        python=str(tmp_path / "actor"),
        facts=facts(),
        written="today",
    )
    folder = create(files, root=tmp_path, name="run")
    run = start(folder, 71, 71, 0, options=("--exact",))
    assert run.wait(timeout=60) == EXIT_GPU_OOM
    assert calls(folder) == [
        "spec.toml --attempt 0 --rung 0 --exact",
        "spec.1.toml --attempt 1 --rung 1 --resume --exact",
    ]


@pytest.mark.parametrize(("code", "then"), [(74, "74"), (75, None)])
def test_what_comes_then_gets_its_words_as_they_are_unless_the_run_was_stopped(
    code: int, then: str | None, folder: Path
) -> None:
    command = ("bash", "-c", 'echo "$TUNEWRIGHT_EXIT_CODE $1" >then', "-", "$(x) two  words")
    run = start(folder, code, options=("--then", *command))
    assert run.wait(timeout=60) == code
    assert read_json(folder / "state.json")["exit_code"] == code
    if then is None:
        assert not (folder / "then").exists()
    else:
        assert (folder / "then").read_text() == f"{then} $(x) two  words\n"


def test_a_queued_run_begins_when_the_other_has_ended(tmp_path: Path, folder: Path) -> None:
    files = {path.name: path.read_text() for path in folder.iterdir()}
    other = create(files, root=tmp_path, name="other")
    first = start(other, "wait")
    until((other / "waiting").exists)
    second = start(folder, 0, options=("--after", str(other)))
    until(lambda: read_json(folder / "state.json").get("phase") == "waiting")
    assert not (folder / "calls").exists()
    (other / "go").touch()
    assert (first.wait(timeout=60), second.wait(timeout=60)) == (EXIT_OK, EXIT_OK)
    assert calls(folder)


def test_a_device_is_one_run_s_until_that_is_over_and_its_owner_is_named(
    tmp_path: Path, folder: Path
) -> None:
    files = {path.name: path.read_text() for path in folder.iterdir()}
    files["run.sh"] = files["run.sh"].replace("hold_devices cpu", "hold_devices cuda")
    devices = [f"GPU-{tmp_path.name}-{os.getpid()}-{number}" for number in range(3)]
    runs = [create(files, root=tmp_path, name=name) for name in ("one", "two", "three")]
    try:
        for run, places in zip(runs, ((0, 1), (1, 2), (2,)), strict=True):
            (run / "devices").write_text(",".join(devices[place] for place in places))
        first = start(runs[0], "wait")
        until((runs[0] / "waiting").exists)
        assert start(runs[1], 0).wait(timeout=60) == EXIT_NO_DEVICES
        said = read_json(runs[1] / "state.json")["message"]
        assert said.startswith(f"{devices[1]} is in use by the run {runs[0]} of ")
        assert start(runs[2], 0).wait(timeout=60) == EXIT_OK, "what two could not have is free"
        assert start(runs[1], 0, options=("--share-devices",)).wait(timeout=60) == EXIT_OK
        (runs[0] / "go").touch()
        assert first.wait(timeout=60) == EXIT_OK
        assert start(runs[1], 0, 0).wait(timeout=60) == EXIT_OK
    finally:
        for device in devices:
            locks.path_of(device).unlink(missing_ok=True)


def test_numbers_that_mean_another_device_to_each_process_are_not_locked() -> None:
    assert locks.lockable("cuda", "GPU-a,MIG-b,0,1") == ["GPU-a", "MIG-b"]
    assert locks.lockable("npu", "0,1") == ["npu:0", "npu:1"]
    assert locks.lockable("cpu", "") == []


@pytest.mark.parametrize(
    "options",
    [
        ("--on-oom", "later"),
        ("--on-hang",),
        ("--hang-seconds", "-1"),
        ("--max-restarts", "many"),
        ("--after", "relative"),
        ("--then",),
        ("--what",),
    ],
)
def test_an_option_that_cannot_be_is_refused_before_anything_starts(
    options: tuple[str, ...], folder: Path
) -> None:
    assert start(folder, 0, options=options).wait(timeout=60) == EXIT_BAD_SPEC
    assert not (folder / "launch.json").exists()


def test_bad_data_ends_the_run_with_its_sentence_and_nothing_is_trained(folder: Path) -> None:
    (folder / "bad_data").touch()
    run = start(folder, 0)
    assert run.wait(timeout=60) == EXIT_BAD_DATA
    assert not (folder / "calls").exists()
    until(lambda: not session_of(run.pid))  # torchrun, which waited, is gone too
    assert "line 3 is not JSON" in (folder / "said").read_text()
    state = read_json(folder / "state.json")
    assert (state["failure"], state["message"]) == ("bad_data", "line 3 is not JSON")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_for_a_stop_and_never_reaches_the_ranks(
    number: signal.Signals, folder: Path
) -> None:
    run = start(folder, "wait")
    until((folder / "waiting").exists)
    run.send_signal(number)
    assert run.wait(timeout=60) == EXIT_STOPPED
    assert not (folder / "signalled").exists()
    assert read_json(folder / "state.json")["phase"] == "stopped"
    said = (folder / "said").read_text()
    assert said.count("asked to stop: it saves a checkpoint") == 1
    assert said.endswith("to go on: bash run.sh --resume\n")


def session_of(leader: int) -> list[int]:
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found += [int(entry)] if os.getsid(int(entry)) == leader else []
    return found


@pytest.mark.parametrize("turn", range(3))
def test_a_term_to_every_process_of_the_session_has_a_code_of_ours(turn: int, folder: Path) -> None:
    run = start(folder, "wait")
    until((folder / "waiting").exists)
    for pid in sorted(session_of(run.pid)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    assert run.wait(timeout=60) == EXIT_STOPPED
    assert read_json(folder / "state.json")["exit_code"] == EXIT_STOPPED


def test_a_code_that_means_nothing_is_an_error_with_a_sentence(folder: Path) -> None:
    (folder / "odd").touch()
    assert start(folder, 0).wait(timeout=60) == EXIT_OTHER
    state = read_json(folder / "state.json")
    assert state["exit_code"] == EXIT_OTHER
    assert state["message"].startswith("run.sh ended with 99")
    assert state["message"] in (folder / "said").read_text()


def test_what_lies_beside_python_can_be_called_by_the_ranks(folder: Path) -> None:
    assert start(folder, 0).wait(timeout=60) == EXIT_OK
    assert (folder / "path").read_text().startswith(f"{folder.parent}:")


def test_e22_variables_of_another_launcher_do_not_reach_the_ranks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {"RANK": "3", "LOCAL_RANK": "3", "WORLD_SIZE": "8", "MASTER_PORT": "29500"}
    for name, value in left.items():
        monkeypatch.setenv(name, value)
    assert start(folder, 0).wait(timeout=60) == EXIT_OK
    assert (folder / "left").read_text() == ""


def test_a_finished_run_stays_finished_when_it_is_started_again(folder: Path) -> None:
    assert start(folder, 0).wait(timeout=60) == EXIT_OK
    (folder / "checkpoints" / "checkpoint-8").mkdir(parents=True)
    before = read_json(folder / "state.json")
    assert start(folder, 0).wait(timeout=60) == EXIT_BAD_SPEC
    assert "go on with --resume" in (folder / "said").read_text()
    assert read_json(folder / "state.json") == before
    (folder / "spec.toml").write_bytes(b"\xff")
    assert start(folder, 0, options=("--resume",)).wait(timeout=60) == EXIT_BAD_SPEC
    assert "spec.toml: not UTF-8" in (folder / "said").read_text()
    after = read_json(folder / "state.json")
    assert (after["phase"], after["exit_code"]) == ("done", EXIT_OK)
    assert calls(folder) == ["spec.toml --attempt 0 --rung 0"]


def stage_watched(folder: Path, unlike: int = 0) -> Callable[[], Any]:
    def watched() -> Any:
        state = read_json(folder / "state.json")
        found = state.get("watch_pid")
        return found if state.get("phase") == "training" and found != unlike else None

    return watched


def test_a_killed_watch_is_replaced_while_training_goes_on(folder: Path) -> None:
    run = start(folder, "wait")
    first = until(stage_watched(folder))
    os.kill(first, signal.SIGKILL)
    until(stage_watched(folder, unlike=first))
    (folder / "go").touch()
    assert run.wait(timeout=60) == EXIT_OK
    assert len(calls(folder)) == 1


def test_an_edited_number_of_ranks_is_refused_with_the_place_to_change(folder: Path) -> None:
    text = (folder / "spec.toml").read_text()
    text = text.replace("num_devices = 2", "num_devices = 4")
    text = text.replace("effective_batch_size = 4", "effective_batch_size = 8")
    (folder / "spec.toml").write_text(text)
    assert start(folder, 0).wait(timeout=60) == 64
    assert "change RANKS in run.sh too" in (folder / "said").read_text()
    state = read_json(folder / "state.json")
    assert state["exit_code"] == 64
    assert state["message"].endswith("change RANKS in run.sh too")
