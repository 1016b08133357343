"""Run folders: whole or not at all, private, found again."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

from engine.events import encode
from wizard.advice import advise
from wizard.problem import ProblemError
from wizard.runner import process, stop
from wizard.runner.folder import create, find_run, list_runs, summary


def now() -> float:
    """The present: these tests may run long after they were collected."""
    return time.time()


FILES = {"run.sh": "#!/usr/bin/env bash\n", "spec.toml": "version = 1\r\n"}


def test_a_run_folder_is_private_and_its_script_can_be_run(tmp_path: Path) -> None:
    folder = create(FILES, root=tmp_path / "new" / "runs", name="it's a run")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "run.sh").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "spec.toml").stat().st_mode) == 0o600
    assert (folder / "spec.toml").read_bytes() == b"version = 1\r\n"
    assert [path.name for path in (tmp_path / "new" / "runs").iterdir()] == ["it's a run"]


@pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "../up", "nul\0", "x" * 300])
def test_a_name_that_would_leave_the_root_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="cannot name a run"):
        create(FILES, root=tmp_path, name=name)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_is_never_touched(tmp_path: Path) -> None:
    create(FILES, root=tmp_path, name="run")
    with pytest.raises(ProblemError, match="exists"):
        create({"run.sh": "other"}, root=tmp_path, name="run")
    assert (tmp_path / "run" / "run.sh").read_text() == FILES["run.sh"]


def test_a_folder_half_written_never_appears(tmp_path: Path) -> None:
    with pytest.raises(UnicodeEncodeError):
        create({"run.sh": "good", "spec.toml": "\udc80"}, root=tmp_path, name="run")
    assert list(tmp_path.iterdir()) == []


def test_a_root_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ProblemError, match="part of the path is a file") as raised:
        create(FILES, root=tmp_path / "file" / "runs", name="run")
    assert "--runs" in str(raised.value)


def test_a_read_only_root_is_one_sentence() -> None:
    # /proc takes no new folder from anybody, also not from root, who ignores modes.
    with pytest.raises(ProblemError, match="cannot make the run folder"):
        create(FILES, root=Path("/proc/tunewright"), name="run")


def made(root: Path, name: str, **state: object) -> Path:
    folder = create(FILES, root=root, name=name)
    (folder / "state.json").write_text(json.dumps(state))
    return folder


def owned(folder: Path, pid: int, started: int | None = None) -> None:
    identity = {
        "pid": pid,
        "start_time": process.start_time(pid) if started is None else started,
        "boot_id": process.boot_id(),
    }
    (folder / "launch.json").write_text(json.dumps(identity))


def test_living_runs_come_first_then_the_newest(tmp_path: Path) -> None:
    made(tmp_path, "old", updated=now() - 10, exit_code=0)
    made(tmp_path, "new", updated=now() - 5, exit_code=70)
    owned(made(tmp_path, "living", updated=now() - 50, phase="training"), os.getpid())
    (tmp_path / "no run").mkdir()
    assert [run.name for run in list_runs(tmp_path)] == ["living", "new", "old"]
    assert list_runs(tmp_path / "nowhere") == ()


def test_a_reused_pid_and_another_boot_are_not_the_run(tmp_path: Path) -> None:
    folder = made(tmp_path, "run", updated=now() - 50, phase="training")
    owned(folder, os.getpid(), started=1)
    assert not summary(folder).alive
    owned(folder, os.getpid())
    assert summary(folder).alive
    launch = json.loads((folder / "launch.json").read_text())
    (folder / "launch.json").write_text(json.dumps({**launch, "boot_id": "another"}))
    assert not summary(folder).alive


def test_a_run_whose_script_is_gone_lives_while_its_training_does(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    training = {"stage_pid": os.getpid(), "stage_start_time": process.start_time(os.getpid())}
    folder = made(tmp_path, "run", phase="training", **training)
    owned(folder, ended.pid, started=1)
    assert summary(folder).alive


def test_ranks_that_outlived_everything_else_are_the_run(tmp_path: Path) -> None:
    ranks = {str(os.getpid()): process.start_time(os.getpid())}
    folder = made(tmp_path, "run", phase="training", processes=ranks)
    owned(folder, os.getpid(), started=1)
    assert summary(folder).alive


def elsewhere(root: Path, name: str, updated: float, **state: object) -> Path:
    folder = made(root, name, updated=updated, **state)
    identity = {"pid": 1, "start_time": 1, "boot_id": "another", "host": "another-host"}
    (folder / "launch.json").write_text(json.dumps(identity))
    return folder


def test_a_run_of_another_machine_lives_while_its_state_is_renewed(tmp_path: Path) -> None:
    assert summary(elsewhere(tmp_path, "fresh", now(), phase="training")).alive
    assert not summary(elsewhere(tmp_path, "old", now() - 600, phase="training")).alive
    assert not summary(elsewhere(tmp_path, "ended", now(), exit_code=0)).alive
    here = elsewhere(tmp_path, "this host", now(), phase="training")
    launch = json.loads((here / "launch.json").read_text())
    (here / "launch.json").write_text(json.dumps({**launch, "host": socket.gethostname()}))
    assert not summary(here).alive, "after a restart of this machine nothing of it can run"


def test_a_run_of_another_machine_can_be_asked_to_stop_and_not_be_killed(tmp_path: Path) -> None:
    folder = elsewhere(tmp_path, "run", now(), phase="training")
    stop.request(folder)
    assert (folder / "stop").exists()
    with pytest.raises(ProblemError, match="another-host: it was asked to save"):
        stop.now(folder)


GARBAGE = (
    "",
    "[" * 100_000,
    '{"updated": ' + "9" * 5000 + "}",
    json.dumps({"updated": 10**400, "exit_code": 99999999999, "phase": 5, "message": [1]}),
    json.dumps({"updated": 9e17, "exit_code": True, "attempt": "x", "processes": {"x": []}}),
    '{"updated": NaN, "exit_code": -1, "processes": [1], "stage_pid": 1e999}',
)


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_in_one_run_breaks_no_list_of_all(tmp_path: Path, garbage: str) -> None:
    broken = create(FILES, root=tmp_path, name="broken")
    (broken / "events").mkdir()
    for file in ("state.json", "launch.json", "result.json", "events/launcher.jsonl"):
        (broken / file).write_text(garbage)
    made(tmp_path, "good", updated=now(), exit_code=0)
    good, other = list_runs(tmp_path)
    assert good.name == "good"
    assert (other.exit_code, other.updated, other.message) == (None, None, "")
    assert other.line()


def test_a_finished_run_with_a_damaged_state_is_still_finished(tmp_path: Path) -> None:
    folder = create(FILES, root=tmp_path, name="run")
    owned(folder, os.getpid(), started=1)
    (folder / "state.json").write_text("\0\0\0")
    assert summary(folder).line() == "run  unknown"
    (folder / "result.json").write_text(json.dumps({"schema": 1}))
    assert summary(folder).exit_code == 0
    (folder / "events").mkdir()
    said = [
        encode("done", t=now() + n, rank=None, exit_code=code) for n, code in enumerate((0, 75))
    ]
    (folder / "events" / "launcher.jsonl").write_text("".join(said))
    assert summary(folder).line().startswith("run  75: ")


def test_an_end_that_a_full_disk_kept_out_of_the_state_is_told_by_the_events(
    tmp_path: Path,
) -> None:
    folder = made(tmp_path, "run", phase="training", attempt=1, updated=now())
    (folder / "events").mkdir()
    stream = folder / "events" / "launcher.jsonl"
    stream.write_text(encode("done", t=now(), rank=None, attempt=0, exit_code=75))
    assert summary(folder).exit_code is None, "that was the attempt before"
    stream.write_text(encode("done", t=now(), rank=None, attempt=1, exit_code=73))
    assert summary(folder).exit_code == 73


def test_the_line_of_a_run_says_how_it_ended_without_control_characters(tmp_path: Path) -> None:
    folder = made(tmp_path, "run", updated=now(), exit_code=65, message="row \x1b[31m3\nis bad")
    assert summary(folder).line().startswith(r"run  65: row \x1b[31m3\nis bad")


def test_a_run_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    folder = create(FILES, root=tmp_path, name="qwen-lora-1")
    assert find_run(tmp_path, "qwen-lora-1") == folder
    assert find_run(tmp_path / "elsewhere", str(folder)) == folder


def test_a_mistyped_name_gets_the_nearest_one(tmp_path: Path) -> None:
    create(FILES, root=tmp_path, name="qwen-lora-1")
    with pytest.raises(ProblemError, match="did you mean 'qwen-lora-1'"):
        find_run(tmp_path, "qwen-lara-1")


def test_a_run_of_which_only_the_smoke_test_was_made_is_not_called_finished(tmp_path: Path) -> None:
    for name in ("run.sh", "smoke.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "state.json").write_text('{"exit_code": 0, "phase": "done"}')
    assert summary(tmp_path).state == "its smoke test passed"
    action = advise("run", exit_code=0, failure=None, tested=True).actions[0]
    assert action.command == "tunewright resume run"
    (tmp_path / "result.json").write_text("{}")
    assert summary(tmp_path).state == "0: finished"
