"""Every way in which a run of two ranks is harmed, caused for real: class, words, nothing lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.events import (
    EXIT_CANNOT_WRITE,
    EXIT_COMM,
    EXIT_HOST_OOM,
    EXIT_NOT_FINITE,
    EXIT_OK,
    EXIT_OTHER,
    EXIT_STOPPED,
    decode_all,
)
from tests.runner.following import at_step, ended, follow_to
from tests.runner.waiting import until
from wizard.answers import Policy
from wizard.commands.watching import next_steps
from wizard.dashboard.state import RunState
from wizard.problem import ProblemError
from wizard.runner import process
from wizard.runner.folder import is_alive, read_json, summary
from wizard.runner.launch import start

pytestmark = [pytest.mark.engine, pytest.mark.slow]

Make = Callable[..., Path]
Sabotage = Callable[[str], None]
SLOWLY = "time.sleep(0.2)"


def warnings(state: RunState) -> list[str]:
    return [note.text for note in state.warnings]


def whole(state: RunState, steps: int) -> None:
    """The run is done and every step's loss is there once."""
    assert (state.exit_code, state.step) == (EXIT_OK, steps), state.failure
    assert [step for step, _ in state.losses] == list(range(1, steps + 1))


def pids(folder: Path) -> list[int]:
    return [int(pid) for pid in read_json(folder / "state.json").get("processes", {})]


def launcher_pid(folder: Path) -> int:
    """The process of torchrun among those the watch recorded."""

    def found() -> int | None:
        for pid in pids(folder):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"torch.distributed.run" in line:
                return pid
        return None

    return int(until(found) or 0)


@pytest.mark.parametrize("on_hang", ["restart", "stop"])
def test_a_stopped_rank_is_named_within_thirty_seconds_and_the_hang_is_ended(
    make: Make, sabotage: Sabotage, on_hang: str
) -> None:
    sabotage(SLOWLY)
    folder = make(24, save_steps=4, policy=Policy(on_hang=on_hang, hang_seconds=40))  # type: ignore[arg-type]
    start(folder)
    state = follow_to(folder, lambda state: state.saved and len(state.ranks) == 2)
    victim = int(state.ranks[1].pid or 0)
    os.kill(victim, signal.SIGSTOP)
    stopped = time.time()
    state = follow_to(folder, lambda state: any("silent" in text for text in warnings(state)))
    (note,) = [note for note in state.warnings if "silent" in note.text]
    print(f"named after {note.t - stopped:.1f} s: {note.text}")
    assert note.t - stopped < 30
    assert note.text.startswith("rank 1 has been silent")
    assert f"its process {victim} is stopped" in note.text
    state = ended(folder)
    print(f"ended {time.time() - stopped:.1f} s after the stop")
    if on_hang == "restart":
        whole(state, 24)
        assert state.attempt == 1
        assert any("comm_timeout" in text for text in warnings(state))
    else:
        assert (state.exit_code, state.attempt) == (EXIT_COMM, 0)
        assert state.failure is not None
        assert (state.failure.failure, summary(folder).failed_rank) == ("comm_timeout", 1)
        assert any("tunewright logs" in line for line in next_steps(folder, state))
    assert process.start_time(victim) is None


def test_a_rank_that_works_for_ever_is_named_while_the_other_waits_in_a_collective(
    make: Make, sabotage: Sabotage
) -> None:
    sabotage("while rank == 1 and step == 3: time.sleep(0.1)")
    folder = make(8, policy=Policy(on_hang="stop", hang_seconds=61))
    start(folder)
    state = ended(folder)
    print(warnings(state))
    assert (state.exit_code, summary(folder).failed_rank) == (EXIT_COMM, 1)
    (said,) = [text for text in warnings(state) if text.startswith("no step after step 2")]
    assert "rank 0 in collective" in said
    assert "rank 1 in compute" in said


def test_an_exception_on_one_rank_is_its_own_and_not_tried_again(
    make: Make, sabotage: Sabotage
) -> None:
    sabotage("if rank == 1 and step == 3: raise ZeroDivisionError('by the test')")
    folder = make(8)
    start(folder)
    state = ended(folder)
    assert (state.exit_code, state.attempt) == (EXIT_OTHER, 0)
    assert state.failure is not None
    assert (state.failure.failure, state.failure.rank) == ("unknown", 1)
    assert "ZeroDivisionError: “by the test" in state.failure.message
    assert any("--rank 1" in line for line in next_steps(folder, state))


def test_when_torchrun_is_killed_its_ranks_are_ended_and_the_run_goes_on(
    make: Make, sabotage: Sabotage
) -> None:
    sabotage(SLOWLY)
    folder = make(24, save_steps=4)
    start(folder)
    state = follow_to(folder, lambda state: state.saved and len(state.ranks) == 2)
    ranks = [int(rank.pid or 0) for rank in state.ranks.values()]
    os.kill(launcher_pid(folder), signal.SIGKILL)
    until(lambda: not any(map(process.start_time, ranks)), 30)
    state = ended(folder)
    whole(state, 24)
    assert state.attempt == 1


def test_a_term_to_every_process_saves_a_checkpoint_and_the_run_goes_on_after_it(
    make: Make, sabotage: Sabotage
) -> None:
    """What a machine that is switched off, or a scheduler, does."""
    sabotage(SLOWLY)
    folder = make(20, save_steps=1000)
    record = start(folder)
    at_step(folder, 3)
    for pid in [record.pid, *pids(folder), read_json(folder / "state.json")["watch_pid"]]:
        os.kill(pid, signal.SIGTERM)
    state = ended(folder)
    assert state.exit_code == EXIT_STOPPED, (folder / "logs/launcher.log").read_text()
    assert state.saved
    assert state.saved[-1].step == state.step
    start(folder, "--resume")
    whole(ended(folder), 20)


def test_a_crash_in_native_code_is_named_by_its_signal_and_not_tried_again(
    make: Make, sabotage: Sabotage
) -> None:
    sabotage("if rank == 0 and step == 2: os.kill(os.getpid(), 11)")
    folder = make(8)
    start(folder)
    state = ended(folder)
    assert (state.exit_code, state.attempt) == (EXIT_OTHER, 0)
    assert state.failure is not None
    assert "rank 0 ended with SIGSEGV (a crash in native code)" in state.failure.message


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A memory control group (version 1) of 4 GiB below our own."""
    own = Path("/proc/self/cgroup").read_text().splitlines()
    names = [line.split(":")[2] for line in own if "memory" in line.split(":")[1].split(",")]
    if not names or not os.access(f"/sys/fs/cgroup/memory{names[0]}", os.W_OK):
        pytest.skip("no memory group of version 1 that may be divided")
    group = Path(f"/sys/fs/cgroup/memory{names[0]}") / f"test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(4 * 1024**3))
    yield group
    until(lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


def test_e05_a_full_host_is_told_from_a_killed_rank_and_the_run_goes_on(
    make: Make, sabotage: Sabotage, small_group: Path
) -> None:
    sabotage(
        "if rank == 1 and step == 4 and attempt == 0:\n"
        "    held = []\n"
        "    while True: held.append(bytearray(os.urandom(1) * (64 << 20)))"
    )
    folder = make(6, save_steps=2)
    code = (
        "import pathlib, sys, os\n"
        "pathlib.Path(sys.argv[2], 'cgroup.procs').write_text(str(os.getpid()))\n"
        "from wizard.runner.launch import start\n"
        "start(pathlib.Path(sys.argv[1]))\n"
    )
    subprocess.run([sys.executable, "-c", code, folder, small_group], check=True)
    state = ended(folder)
    whole(state, 6)
    said = [text for text in warnings(state) if "host_oom" in text]
    print(said)
    assert "the host's memory was full" in said[0]
    assert state.attempt == 1


def test_a_full_host_without_restarts_ends_with_72_and_the_kernel_s_own_words(
    make: Make, sabotage: Sabotage, small_group: Path
) -> None:
    sabotage(
        "held = globals().setdefault('held', [])\n"
        "while rank == 1 and step == 2: held.append(bytearray(os.urandom(1) * (64 << 20)))"
    )
    folder = make(6, policy=Policy(max_restarts=0))
    code = (
        "import pathlib, sys, os\n"
        "pathlib.Path(sys.argv[2], 'cgroup.procs').write_text(str(os.getpid()))\n"
        "from wizard.runner.launch import start\n"
        "start(pathlib.Path(sys.argv[1]))\n"
    )
    subprocess.run([sys.executable, "-c", code, folder, small_group], check=True)
    state = ended(folder)
    assert (state.exit_code, summary(folder).failure) == (EXIT_HOST_OOM, "host_oom")
    assert summary(folder).failed_rank == 1
    evidence = "\n".join(read_json(folder / "state.json")["evidence"])
    print(evidence)
    assert "Killed process" in evidence


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 48 MiB, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("may not mount")
    yield place
    until(
        lambda: not subprocess.run(["umount", place], capture_output=True, check=False).returncode
    )


def test_a_full_disk_ends_with_73_and_after_making_room_the_run_goes_on(
    make: Make, sabotage: Sabotage, small_disk: Path
) -> None:
    sabotage(
        f"if rank == 0 and step == 5 and attempt == 0:\n"
        f"    with open('{small_disk}/filler', 'wb', buffering=0) as file:\n"
        f"        try:\n"
        f"            while True: file.write(bytes(65536))\n"
        f"        except OSError: pass"
    )
    folder = make(8, save_steps=2, root=small_disk)
    start(folder)
    state = ended(folder)
    assert state.exit_code == EXIT_CANNOT_WRITE, (folder / "logs/launcher.log").read_text()
    assert summary(folder).exit_code == EXIT_CANNOT_WRITE
    assert summary(folder).failure == "disk_full"
    said = next_steps(folder, state)
    assert any("runs prune" in line for line in said), (said, state.failure)
    (small_disk / "filler").unlink()
    start(folder, "--resume")
    state = ended(folder)
    assert (state.exit_code, state.step) == (EXIT_OK, 8)


def test_a_read_only_disk_is_refused_before_anything_starts(make: Make, small_disk: Path) -> None:
    folder = make(4, root=small_disk)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(ProblemError, match="Read-only file system"):
        start(folder)
    done = subprocess.run(["bash", str(folder / "run.sh")], capture_output=True, check=False)
    assert done.returncode == EXIT_CANNOT_WRITE
    assert b"cannot write in" in done.stderr
    assert not (folder / "launch.json").exists()


def test_checkpoints_that_become_read_only_end_with_73_and_the_run_goes_on_from_the_last_one(
    make: Make, sabotage: Sabotage, small_disk: Path
) -> None:
    """A read-only mount over `checkpoints/` alone, for files are open for writing elsewhere."""
    sabotage(
        "if rank == 0 and step == 5 and attempt == 0 and not hasattr(sys, 'mounted'):\n"
        "    sys.mounted = True\n"
        "    for how in ('--bind', '-oremount,bind,ro'):\n"
        "        assert os.system(f'mount {how} checkpoints checkpoints') == 0"
    )
    folder = make(8, save_steps=2, root=small_disk)
    start(folder)
    state = ended(folder)
    subprocess.run(["umount", folder / "checkpoints"], check=True)
    assert state.exit_code == EXIT_CANNOT_WRITE, (folder / "logs/launcher.log").read_text()
    assert summary(folder).failure == "disk_full"
    assert state.failure is not None
    assert "Read-only file system" in state.failure.message
    assert read_json(folder / "checkpoints/checkpoint-4/complete.json")["step"] == 4
    start(folder, "--resume")
    whole(ended(folder), 8)


def test_e01_a_port_that_is_taken_is_named_with_its_owner(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make(4, policy=Policy(max_restarts=0))
    script = folder / "run.sh"
    script.write_text(script.read_text().replace("RANKS=2 ", "RANKS=1 "))
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        nodes = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
        for name, value in {**nodes, "MASTER_PORT": str(taken.getsockname()[1])}.items():
            monkeypatch.setenv(name, value)
        start(folder)
        state = ended(folder)
    print(state.failure)
    assert state.exit_code == EXIT_COMM, (folder / "logs/0-training.log").read_text()
    assert state.failure is not None
    assert state.failure.failure == "comm_failed"
    assert f"taken by process {os.getpid()}" in state.failure.message


def test_e02_a_machine_that_cannot_look_up_its_own_name_trains(make: Make) -> None:
    folder = make(4)
    command = f"hostname no-such-host.invalid; exec bash '{folder}/run.sh'"
    done = subprocess.run(["unshare", "--uts", "bash", "-c", command], timeout=240, check=False)
    if done.returncode == 1 and not (folder / "launch.json").exists():
        pytest.skip("may not have a host name of its own")
    assert done.returncode == EXIT_OK


def test_a_loss_that_is_not_finite_ends_with_74_and_a_lower_rate_is_offered(make: Make) -> None:
    folder = make(8, learning_rate=1e30, max_grad_norm=0.0, warmup_ratio=0.0)
    start(folder)
    state = ended(folder)
    assert (state.exit_code, state.attempt) == (EXIT_NOT_FINITE, 0)
    assert any(
        "retry" in line and "learning_rate=3.3e+29" in line for line in next_steps(folder, state)
    )


def test_damaged_removed_and_rotated_streams_change_nothing_about_the_run(
    make: Make, sabotage: Sabotage
) -> None:
    sabotage(SLOWLY)
    folder = make(40, save_steps=40)
    start(folder)
    at_step(folder, 2)
    events = folder / "events"
    with (events / "rank-00001.jsonl").open("ab") as stream:
        stream.write(b'\xff\xfe{"kind": "step", "t"\n{}\n[1]\n' + b"x" * 9000)
    (events / "rank-00000.jsonl").unlink()
    (events / "launcher.jsonl").rename(events / "launcher.jsonl.1")
    state = ended(folder)
    assert (state.exit_code, state.step) == (EXIT_OK, 40)
    assert "no word" not in " ".join(warnings(state))
    again = list(decode_all((events / "rank-00000.jsonl").read_bytes()))
    assert {event["kind"] for event in again} >= {"pulse", "step", "done"}
    assert summary(folder).exit_code == EXIT_OK


def test_a_clock_that_jumps_on_one_rank_changes_nothing_about_the_run(
    make: Make, sabotage: Sabotage
) -> None:
    sabotage(
        "real = globals().setdefault('real', time.time)\n"
        "if step == 3: time.time = lambda: real() + (7200 if rank else -7200)\n"
        "if step == 9: time.time = real\n"
        "time.sleep(0.2)"
    )
    folder = make(14, policy=Policy(hang_seconds=30))
    start(folder)
    state = ended(folder)
    assert (state.exit_code, state.step, state.attempt) == (EXIT_OK, 14, 0)
    assert not [text for text in warnings(state) if "silent" in text or "no step" in text]
    assert (state.eta_seconds() or 0) >= 0
    assert all(seconds >= 0 for seconds in state.stage_seconds(time.time()).values())


def test_after_a_restart_of_the_machine_a_lost_run_is_told_and_goes_on(
    make: Make, sabotage: Sabotage
) -> None:
    """All processes die at once and the boot has another identity: what a restart leaves."""
    sabotage(SLOWLY)
    folder = make(24, save_steps=4)
    record = start(folder)
    follow_to(folder, lambda state: state.saved and len(state.ranks) == 2)
    state = read_json(folder / "state.json")
    victims = [record.pid, state["watch_pid"], state["stage_pid"], *pids(folder)]
    for pid in victims:
        os.kill(pid, signal.SIGSTOP)  # nobody notices before all are gone
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not any(map(process.start_time, victims)))
    launch = read_json(folder / "launch.json")
    (folder / "launch.json").write_text(json.dumps({**launch, "boot_id": "another"}))
    found = summary(folder)
    assert (found.lost, found.rebooted, is_alive(folder)) == (True, True, False)
    lost = ended(folder)
    assert lost.lost
    assert "restarted" in next_steps(folder, lost)[0]
    resumed = [sys.executable, "-m", "wizard", "resume", "--if-lost", str(folder)]
    subprocess.run(resumed, check=True)
    whole(ended(folder), 24)
