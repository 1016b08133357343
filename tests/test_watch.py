"""The watch: one code for what happened, told by files, real processes and real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import preflight, processes, stage
from engine.events import (
    EXIT_BAD_DATA,
    EXIT_BAD_SPEC,
    EXIT_CANNOT_WRITE,
    EXIT_COMM,
    EXIT_GPU_OOM,
    EXIT_HOST_OOM,
    EXIT_MEANING,
    EXIT_OK,
    EXIT_OTHER,
    EXIT_STOPPED,
)
from engine.preflight import MissingDevicesError, visible
from engine.record import write_json, write_state
from engine.spec import ParallelTable
from engine.verdict import Evidence, Verdict, judge
from tests.runner.waiting import until

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("loop")]

PATIENCE_SECONDS = 20.0


def exits(**codes: int) -> dict[int, dict[str, Any]]:
    """Exit files: r0=71 means rank 0 ended with 71; they ended in this order."""
    classes = {71: "gpu_oom", 76: "comm_failed", 70: "unknown"}
    return {
        int(rank[1:]): {"code": code, "failure": classes.get(code), "message": "why", "t": t}
        for t, (rank, code) in enumerate(codes.items())
    }


def ranks(count: int, command_code: int | None = 1, **given: Any) -> Verdict:
    return judge(Evidence(command_code=command_code, ranks=range(count), **given))


def test_all_ranks_done_is_ok_even_if_the_launcher_stumbles_afterwards() -> None:
    assert ranks(2, exits=exits(r0=0, r1=0)) == Verdict(code=EXIT_OK)


def test_torchrun_says_1_and_the_exit_files_say_stopped() -> None:
    assert ranks(2, exits=exits(r0=75, r1=75)).code == EXIT_STOPPED


def test_the_cause_counts_and_not_what_it_did_to_the_others() -> None:
    verdict = ranks(3, exits=exits(r0=76, r1=71))
    assert (verdict.code, verdict.failure, verdict.rank) == (EXIT_GPU_OOM, "gpu_oom", 1)


def test_the_earliest_cause_wins() -> None:
    assert ranks(2, exits=exits(r1=70, r0=71)).rank == 1


def test_a_rank_without_a_last_word_was_killed() -> None:
    verdict = ranks(2, exits=exits(r0=76), first_lost=(1, -9))
    assert (verdict.code, verdict.failure, verdict.rank) == (EXIT_COMM, "killed", 1)
    assert "SIGKILL" in verdict.message


def test_a_rank_that_only_followed_is_not_taken_for_the_one_that_was_killed() -> None:
    """torchrun saw the survivor's 76 before it saw the rank that SIGKILL had ended."""
    verdict = ranks(2, exits=exits(r0=76), first_lost=(0, 76), last_line="Connection reset by peer")
    assert (verdict.code, verdict.failure, verdict.rank) == (76, "killed", 1)


def test_a_rank_that_vanished_while_the_kernel_killed_for_memory_ran_out_of_it() -> None:
    verdict = ranks(2, exits=exits(r0=76), first_lost=(1, -9), oom_kills=1)
    assert (verdict.code, verdict.failure) == (EXIT_HOST_OOM, "host_oom")


def test_ranks_that_never_began_say_their_last_line() -> None:
    verdict = ranks(2, first_lost=(0, 1), last_line="ModuleNotFoundError: No module named 'x'")
    assert verdict.code == EXIT_OTHER
    assert "No module named 'x'" in verdict.message


def test_ranks_that_could_not_write_their_last_word_are_not_called_killed() -> None:
    verdict = ranks(2, None, disk_full=True)
    assert (verdict.code, verdict.failure) == (EXIT_CANNOT_WRITE, "disk_full")


def test_only_communication_failures_give_the_earliest_of_them() -> None:
    verdict = ranks(2, exits=exits(r1=76, r0=76))
    assert (verdict.code, verdict.failure, verdict.rank) == (EXIT_COMM, "comm_failed", 1)


def test_a_rank_ended_by_torchrun_is_no_cause() -> None:
    said = exits(r0=76, r1=76)
    said[0]["failure"] = "killed"
    assert ranks(2, exits=said).rank == 1


def test_a_run_that_is_ended_at_once_on_request_is_stopped_and_not_restarted() -> None:
    assert ranks(2, None, stop_asked=True).code == EXIT_STOPPED


def test_a_stop_does_not_hide_a_failure_of_its_own() -> None:
    assert ranks(2, exits=exits(r0=71), stop_asked=True).code == EXIT_GPU_OOM


@pytest.mark.parametrize(
    ("command_code", "code"),
    [(0, EXIT_OK), (65, EXIT_BAD_DATA), (1, EXIT_OTHER), (None, EXIT_COMM), (137, EXIT_COMM)],
)
def test_a_command_that_is_no_training_speaks_for_itself(
    command_code: int | None, code: int
) -> None:
    verdict = judge(Evidence(command_code=command_code, last_line="row 3 is not JSON"))
    assert verdict.code == code
    if code == EXIT_BAD_DATA:
        assert (verdict.failure, verdict.message) == ("bad_data", "row 3 is not JSON")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "exit" / "0").mkdir(parents=True)
    (tmp_path / "logs").mkdir()
    return tmp_path


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes in groups of their own; what is left of them ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def popen(*command: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, start_new_session=True))
        return started[-1]

    yield popen
    for child in started:
        child.kill()
        child.wait()


def watch(run: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "engine.watch", "--run", str(run), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def watch_stage(run: Path, pid: int, count: int = 0, phase: str = "preparing") -> Any:
    return watch(run, "stage", "--phase", phase, "--pid", str(pid), "--ranks", str(count))


def state(run: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads((run / "state.json").read_text())
        return value
    except FileNotFoundError:
        return {}


def told(run: Path) -> list[dict[str, Any]]:
    lines = (run / "events" / "launcher.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def begin(run: Path, pid: int) -> tuple[int, str, str]:
    child = watch(run, "begin", "--pid", str(pid))
    out, error = child.communicate(timeout=PATIENCE_SECONDS)
    return child.returncode, out.strip(), error


def test_e11_ranks_that_are_done_and_do_not_exit_are_ended(
    run: Path, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "EXIT_SECONDS", 0.5)
    begin(run, os.getpid())
    child = start("sleep", "60")
    write_json(run / "exit" / "0" / "rank-00000.json", {"rank": 0, "code": 0, "t": time.time()})

    code = stage.watch(
        stage.Stage(run=run, phase="training", pid=child.pid, ranks=range(1), attempt=0, rung=0)
    )

    assert code == EXIT_OK
    assert child.wait(timeout=PATIENCE_SECONDS) == -signal.SIGTERM


def test_a_stage_is_watched_to_its_end_and_gives_its_code(run: Path, start: Any) -> None:
    begin(run, os.getpid())
    code = run / "exit" / "0" / "preparing"
    child = start("bash", "-c", f"sleep 0.3; echo 65 >'{code}'")
    (run / "logs" / "0-preparing.log").write_text("reading\nline 3 is not JSON\n")
    watcher = watch_stage(run, child.pid)
    _, error = watcher.communicate(timeout=PATIENCE_SECONDS)
    assert watcher.returncode == EXIT_BAD_DATA
    assert error == "line 3 is not JSON\n"
    assert (state(run)["failure"], state(run)["message"]) == ("bad_data", "line 3 is not JSON")
    assert state(run)["exit_code"] is None, "run.sh lives, so it decides what happens next"
    phases = [event["phase"] for event in told(run)[:-1]]
    assert phases == ["starting", "preparing"]
    assert told(run)[-1]["failure"] == "bad_data"


def test_the_ranks_last_words_become_the_code_of_the_training(run: Path, start: Any) -> None:
    begin(run, os.getpid())
    script = """
import json, pathlib, sys
for rank, code in enumerate((76, 71)):
    said = {"code": code, "failure": "gpu_oom" if code == 71 else "comm_failed", "t": rank}
    pathlib.Path(sys.argv[1], f"rank-{rank:05d}.json").write_text(json.dumps(said))
pathlib.Path(sys.argv[1], "training").write_text("1")
"""
    child = start(sys.executable, "-c", script, str(run / "exit" / "0"))
    watcher = watch_stage(run, child.pid, 2, "training")
    watcher.communicate(timeout=PATIENCE_SECONDS)
    assert watcher.returncode == EXIT_GPU_OOM
    assert state(run)["failed_rank"] == 1


def test_a_stop_file_ends_a_command_that_saves_nothing(run: Path, start: Any) -> None:
    begin(run, os.getpid())
    child = start("bash", "-c", "sleep 600 & wait")
    watcher = watch_stage(run, child.pid)
    until(lambda: state(run).get("stage_pid") == child.pid)
    (run / "stop").touch()
    watcher.communicate(timeout=PATIENCE_SECONDS)
    assert watcher.returncode == EXIT_STOPPED
    assert child.wait(timeout=PATIENCE_SECONDS) == -signal.SIGTERM
    assert state(run)["message"] == EXIT_MEANING[EXIT_STOPPED]


def test_training_is_never_signalled_by_a_stop_file(run: Path, start: Any) -> None:
    begin(run, os.getpid())
    said = {"code": 75, "t": 1}
    wait_for_stop = f"""
trap 'echo signalled >signalled' TERM
cd '{run}'
until [ -e saved ]; do sleep 0.05; done
echo '{json.dumps(said)}' >exit/0/rank-00000.json
"""
    child = start("bash", "-c", wait_for_stop)
    watcher = watch_stage(run, child.pid, 1, "training")
    until(lambda: state(run).get("stage_pid") == child.pid)
    (run / "stop").touch()
    until(lambda: state(run)["phase"] == "stopping")
    (run / "saved").touch()
    watcher.communicate(timeout=PATIENCE_SECONDS)
    assert watcher.returncode == EXIT_STOPPED
    assert not (run / "signalled").exists()


def test_the_watch_records_the_end_when_run_sh_is_gone(run: Path, start: Any) -> None:
    launcher = start("sleep", "600")
    begin(run, launcher.pid)
    child = start("sleep", "600")
    watcher = watch_stage(run, child.pid, 1, "training")
    until(lambda: state(run).get("stage_pid") == child.pid)
    launcher.kill()
    launcher.wait()
    (run / "exit" / "0" / "rank-00000.json").write_text('{"code": 0, "t": 1}')
    child.kill()
    child.wait()
    watcher.communicate(timeout=PATIENCE_SECONDS)
    assert (state(run)["exit_code"], state(run)["phase"]) == (EXIT_OK, "done")
    assert told(run)[-1]["kind"] == "done"


@pytest.mark.parametrize(
    ("code", "ends", "failure"),
    [(0, EXIT_COMM, "killed"), (65, EXIT_BAD_DATA, "bad_data")],
)
def test_a_run_that_is_killed_before_it_trains_is_not_done(
    code: int, ends: int, failure: str, run: Path, start: Any
) -> None:
    launcher = start("sleep", "600")
    begin(run, launcher.pid)
    child = start("bash", "-c", f"until [ -e '{run}/go' ]; do sleep 0.05; done")
    watcher = watch_stage(run, child.pid)
    until(lambda: state(run).get("stage_pid") == child.pid)
    launcher.kill()
    launcher.wait()
    (run / "exit" / "0" / "preparing").write_text(str(code))
    (run / "go").touch()
    child.wait()
    _, error = watcher.communicate(timeout=PATIENCE_SECONDS)
    assert (state(run)["exit_code"], state(run)["failure"]) == (ends, failure)
    assert state(run)["phase"] == "failed"
    assert told(run)[-1]["exit_code"] == ends
    assert ("nothing was trained" in error) == (failure == "killed")


def test_ranks_that_outlive_torchrun_are_ended(run: Path, start: Any) -> None:
    begin(run, os.getpid())
    child = start(
        sys.executable,
        "-c",
        "import subprocess\n"
        "print(subprocess.Popen(['sleep', '600'], start_new_session=True).wait())",
    )
    watcher = watch_stage(run, child.pid, 1, "training")
    family = until(lambda: found if len(found := state(run).get("processes", {})) == 2 else {})
    orphan = next(int(pid) for pid in family if int(pid) != child.pid)
    child.kill()
    child.wait()
    watcher.communicate(timeout=PATIENCE_SECONDS)
    assert watcher.returncode == EXIT_COMM
    assert processes.start_time(orphan) is None


def test_a_zombie_has_ended_and_a_reused_number_is_somebody_else(start: Any) -> None:
    child = start("true")
    until(lambda: processes.start_time(child.pid) is None)
    living = start("sleep", "600")
    began = processes.start_time(living.pid)
    assert began is not None
    assert processes.is_alive(living.pid, began)
    assert not processes.is_alive(living.pid, began - 1)
    processes.end({living.pid: began - 1}, grace_seconds=0.0)
    assert living.poll() is None


def test_a_second_launcher_is_refused_while_the_first_lives(run: Path, start: Any) -> None:
    first = start("sleep", "600")
    assert begin(run, first.pid)[:2] == (0, "1")
    code, out, error = begin(run, os.getpid())
    assert (code, out) == (EXIT_OTHER, "")
    assert "already going" in error
    first.kill()
    first.wait()
    assert begin(run, os.getpid())[0] == 0


def test_a_second_launcher_is_refused_while_training_goes_on_without_its_first(
    run: Path, start: Any
) -> None:
    first = start("true")
    begin(run, first.pid)
    child = start("sleep", "600")
    watcher = watch_stage(run, child.pid, 1, "training")
    until(lambda: state(run).get("stage_pid") == child.pid)
    assert begin(run, os.getpid())[0] == EXIT_OTHER
    child.kill()
    child.wait()
    watcher.communicate(timeout=PATIENCE_SECONDS)


def test_a_second_launcher_is_refused_while_only_ranks_are_left(run: Path, start: Any) -> None:
    begin(run, start("true").pid)
    rank = start("sleep", "600")
    left = {"phase": "training", "processes": {str(rank.pid): processes.start_time(rank.pid)}}
    write_state(run, left)
    code, _, error = begin(run, os.getpid())
    assert code == EXIT_OTHER
    assert f"process {rank.pid}" in error
    rank.kill()
    rank.wait()
    assert begin(run, os.getpid())[0] == EXIT_OK


def test_a_run_of_another_machine_is_left_alone_while_it_shows_signs_of_life(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = {"pid": 1, "start_time": 1, "boot_id": "another", "host": "another-host"}
    write_json(run / "launch.json", launch)
    write_state(run, {"phase": "training"})
    before = (run / "state.json").read_bytes()
    code, _, error = begin(run, os.getpid())
    assert code == EXIT_OTHER
    assert "already going (on another-host)" in error
    assert (run / "state.json").read_bytes() == before
    monkeypatch.setenv("NNODES", "2")
    assert begin(run, os.getpid())[0] == EXIT_OK
    monkeypatch.delenv("NNODES")
    write_json(run / "launch.json", launch)
    write_json(run / "state.json", {**state(run), "updated": time.time() - 600})
    assert begin(run, os.getpid())[0] == EXIT_OK


def test_a_new_run_is_refused_beside_old_checkpoints_and_changes_nothing(run: Path) -> None:
    (run / "checkpoints" / "checkpoint-8").mkdir(parents=True)
    write_state(run, {"phase": "done", "exit_code": 0})
    before = (run / "state.json").read_bytes()
    child = watch(run, "begin", "--pid", str(os.getpid()), "--new")
    _, error = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == EXIT_BAD_SPEC
    assert "checkpoint-8" in error
    assert "--resume" in error
    assert (run / "state.json").read_bytes() == before
    assert not (run / "launch.json").exists()


def test_a_start_refused_before_its_first_stage_leaves_the_end_as_it_was(run: Path) -> None:
    write_state(run, {"phase": "stopped", "exit_code": 75, "message": "stopped"})
    begin(run, os.getpid())
    watch(run, "end", "--code", "69", "--reason", "no GPU").communicate(timeout=PATIENCE_SECONDS)
    ended = state(run)
    assert (ended["phase"], ended["exit_code"], ended["message"]) == ("stopped", 75, "stopped")
    assert "another start was refused: no GPU" in [event.get("text") for event in told(run)]


def test_a_full_disk_does_not_keep_the_end_out_of_the_state(run: Path) -> None:
    write_state(run, {"phase": "training", "message": "x" * 99})
    part = run / f"state.json.{os.getpid()}.part"
    part.symlink_to("/dev/full")
    write_state(run, {"phase": "failed", "exit_code": EXIT_CANNOT_WRITE})
    assert state(run)["exit_code"] == EXIT_CANNOT_WRITE
    assert not os.path.lexists(part)
    part.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_json(run / "state.json", {})
    assert not os.path.lexists(part)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"[" * 50_000, None], ids=["not UTF-8", "deep", "folder"]
)
def test_a_spec_that_cannot_be_read_is_one_sentence(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.toml"
    spec.mkdir() if content is None else spec.write_bytes(content)
    assert preflight.main([str(spec), "--ranks", "1"]) == EXIT_BAD_SPEC
    said = capsys.readouterr().err
    assert said.startswith(f"{spec}: ")
    assert said.count("\n") == 1


def test_a_new_begin_forgets_the_old_stop_and_counts_attempts_on(tmp_path: Path) -> None:
    for attempt in (0, 1, 10):
        (tmp_path / "exit" / str(attempt)).mkdir(parents=True)
    (tmp_path / "stop").touch()
    assert begin(tmp_path, os.getpid())[:2] == (0, "11")
    assert not (tmp_path / "stop").exists()
    launch = json.loads((tmp_path / "launch.json").read_text())
    assert launch["pid"] == os.getpid()
    assert launch["start_time"] == processes.start_time(os.getpid())


def test_the_end_is_written_with_the_reason_the_stage_found(run: Path) -> None:
    begin(run, os.getpid())
    watch(run, "end", "--code", "65").communicate(timeout=PATIENCE_SECONDS)
    ended = state(run)
    assert (ended["phase"], ended["exit_code"], ended["failure"]) == ("failed", 65, "bad_data")


def wanted(**given: Any) -> ParallelTable:
    return ParallelTable(strategy="ddp", device_kind="cuda", num_devices=2, **given)


def test_the_named_devices_are_taken_when_they_are_here() -> None:
    here = ["GPU-a", "GPU-b", "GPU-c"]
    assert visible(wanted(devices=("GPU-c", "GPU-a")), here, "0") == ("GPU-c,GPU-a", "")


def test_other_devices_stand_in_for_missing_ones_and_it_is_said() -> None:
    chosen, note = visible(wanted(devices=("GPU-x", "GPU-a")), ["GPU-a", "GPU-b"], None)
    assert chosen == "GPU-a,GPU-b"
    assert "GPU-x" in note


def test_a_scheduler_s_choice_is_kept() -> None:
    assert visible(wanted(), ["GPU-a", "GPU-b", "GPU-c"], "2,1")[0] == "2,1"


def test_too_few_devices_are_an_error_and_never_a_silent_cpu_run() -> None:
    with pytest.raises(MissingDevicesError, match="asks for 2 cuda devices and 1"):
        visible(wanted(), ["GPU-a"], None)
