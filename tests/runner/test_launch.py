"""Starting and stopping: a run belongs to nobody, and only its own processes are ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.waiting import until
from wizard.problem import ProblemError
from wizard.runner import process, stop
from wizard.runner.folder import create, is_alive
from wizard.runner.launch import start

BEGIN = f"""#!/usr/bin/env bash
'{sys.executable}' -m engine.watch begin --pid $$ || exit
"""


def made(tmp_path: Path, script: str) -> Path:
    return create({"run.sh": script}, root=tmp_path, name="run")


def test_a_run_has_a_session_of_its_own_and_writes_to_a_file(tmp_path: Path) -> None:
    folder = made(tmp_path, BEGIN + "echo said; exec sleep 600\n")
    record = start(folder)
    try:
        assert os.getsid(record.pid) == record.pid != os.getsid(0)
        assert is_alive(folder)
        log = folder / "logs" / "launcher.log"
        until(lambda: "said" in log.read_text())
        for stream in (0, 1, 2):
            target = os.readlink(f"/proc/{record.pid}/fd/{stream}")
            assert target == ("/dev/null" if stream == 0 else str(log))
    finally:
        os.kill(record.pid, signal.SIGKILL)


def test_e04_a_run_goes_on_when_its_starter_is_killed(tmp_path: Path) -> None:
    folder = made(tmp_path, BEGIN + "until [ -e go ]; do sleep 0.05; done; echo >ended\n")
    code = (
        "import os, pathlib, signal, sys\n"
        "from wizard.runner.launch import start\n"
        "start(pathlib.Path(sys.argv[1]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, folder], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert is_alive(folder)
    (folder / "go").touch()
    until((folder / "ended").exists)


def test_a_script_that_ends_before_it_begins_gives_its_last_line(tmp_path: Path) -> None:
    folder = made(tmp_path, "echo first; echo 'no python at /x' >&2; exit 70\n")
    with pytest.raises(ProblemError, match="no python at /x"):
        start(folder)


def test_asking_a_run_to_stop_signals_nobody(tmp_path: Path) -> None:
    record = start(made(tmp_path, BEGIN + "exec sleep 600\n"))
    try:
        stop.request(record.folder)
        assert (record.folder / "stop").exists()
        assert is_alive(record.folder)
    finally:
        os.kill(record.pid, signal.SIGKILL)


def test_a_run_that_does_not_run_cannot_be_stopped(tmp_path: Path) -> None:
    folder = made(tmp_path, "")
    for way in (stop.request, stop.now):
        with pytest.raises(ProblemError, match="not running"):
            way(folder)
    assert not (folder / "stop").exists()


def test_stopping_now_ends_the_recorded_processes_and_no_reused_number(tmp_path: Path) -> None:
    folder = made(tmp_path, BEGIN + "exec sleep 600\n")
    record = start(folder)
    stubborn = subprocess.Popen(
        ["bash", "-c", "trap '' TERM; echo; while :; do sleep 1; done"], stdout=subprocess.PIPE
    )
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        recorded = {
            str(stubborn.pid): process.start_time(stubborn.pid),
            str(stranger.pid): (process.start_time(stranger.pid) or 0) - 1,
        }
        (folder / "state.json").write_text(json.dumps({"processes": recorded}))
        stop.now(folder, grace_seconds=0.3)
        assert stubborn.wait(timeout=10) == -signal.SIGKILL
        assert stranger.poll() is None
        assert is_alive(folder), "the script is left to write how the run ended"
    finally:
        for pid in (record.pid, stranger.pid):
            os.kill(pid, signal.SIGKILL)
        stranger.wait()
