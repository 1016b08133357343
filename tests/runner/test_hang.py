"""Silent ranks and steps that do not come, told by real streams and real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import processes, stage
from engine.events import EXIT_COMM, EXIT_STOPPED, encode
from engine.failure import write_exit_file
from engine.hang import READ_BYTES, Listener
from tests.runner.waiting import until

NOW = 1000.0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


Tell = Callable[..., None]


@pytest.fixture
def tell(tmp_path: Path) -> Tell:
    (tmp_path / "events").mkdir()

    def write(
        rank: int, kind: str, attempt: int = 0, step: int | None = None, **given: Any
    ) -> None:
        line = encode(kind, t=time.time(), rank=rank, attempt=attempt, step=step, **given)
        with (tmp_path / "events" / f"rank-{rank:05d}.jsonl").open("a") as stream:
            stream.write(line)

    return write


def test_a_stopped_rank_is_named_with_the_state_of_its_process(
    tmp_path: Path, tell: Tell, child: subprocess.Popen[bytes]
) -> None:
    listener = Listener(tmp_path, 0, range(2))
    tell(1, "hello", pid=child.pid, step=7)
    tell(0, "pulse", phase="training", step=7)
    listener.listen(NOW)
    os.kill(child.pid, signal.SIGSTOP)
    until(lambda: processes.state_letter(child.pid) == "T")
    tell(0, "pulse", phase="training", step=7)
    listener.listen(NOW + 16)
    assert listener.silent(NOW + 16) == (1,)
    said = listener.silence(1, NOW + 16)
    assert f"its process {child.pid} is stopped" in said
    assert said.startswith("rank 1 has been silent for 16 s")
    assert said.endswith("it was at step 7, rank 0 can only wait for it")


def test_ranks_that_hang_for_too_long_are_ended_and_the_verdict_names_the_one(
    tmp_path: Path, tell: Tell, child: subprocess.Popen[bytes]
) -> None:
    (tmp_path / "exit" / "0").mkdir(parents=True)
    listener = Listener(tmp_path, 0, range(2))
    watched = stage.Stage(
        run=tmp_path,
        phase="training",
        pid=child.pid,
        ranks=range(2),
        attempt=0,
        rung=0,
        hang_seconds=30,
        listener=listener,
    )
    tell(1, "hello", pid=child.pid, step=7)
    tell(0, "pulse", phase="training", step=7)
    listener.listen(NOW)
    tell(0, "pulse", phase="training", step=7)
    listener.listen(NOW + 29)
    stage._end_hang(watched, listener, NOW + 29)
    assert child.poll() is None
    tell(0, "pulse", phase="training", step=7)
    listener.listen(NOW + 31)
    watched.began = time.time()
    stage._end_hang(watched, listener, NOW + 31)
    assert child.wait(timeout=10) < 0
    assert stage._finish(watched) == EXIT_COMM
    assert watched.verdict is not None
    assert (watched.verdict.failure, watched.verdict.rank) == ("comm_timeout", 1)
    assert (tmp_path / "exit" / "0" / "hung").read_text().startswith("rank 1 has been silent")


@pytest.mark.parametrize("spoke_late", [False, True])
def test_ranks_are_ended_though_torchrun_is_killed_as_the_watch_looks_and_are_not_called_stopped(
    tmp_path: Path, tell: Tell, *, spoke_late: bool
) -> None:
    """On the SIGTERM of the watch ranks save and end as on request, which nobody made."""
    (tmp_path / "exit").mkdir()
    starter = subprocess.Popen(
        ["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    rank = int(starter.stdout.readline())
    watched = stage.Stage(
        run=tmp_path,
        phase="training",
        pid=starter.pid,
        ranks=range(1),
        attempt=0,
        rung=0,
        listener=Listener(tmp_path, 0, range(1)),
    )
    if not spoke_late:
        tell(0, "hello", pid=rank, step=7)
    stage._look(watched)
    starter.kill()
    starter.wait()
    stage._look(watched)
    if spoke_late:
        tell(0, "hello", pid=rank, step=7)
    write_exit_file(
        tmp_path, attempt=0, rank=0, failure=None, code=EXIT_STOPPED, last="stopping", step=7
    )
    assert stage._finish(watched) == EXIT_COMM
    assert processes.start_time(rank) is None
    assert watched.verdict is not None
    assert watched.verdict.failure == "killed"


def test_a_rank_that_ended_or_never_spoke_is_not_silent(tmp_path: Path, tell: Tell) -> None:
    listener = Listener(tmp_path, 0, range(2))
    tell(1, "pulse", phase="saving")
    listener.listen(NOW)
    (tmp_path / "exit" / "0").mkdir(parents=True)
    (tmp_path / "exit" / "0" / "rank-00001.json").write_text("{}")
    assert listener.silent(NOW + 900) == ()


def test_words_of_an_earlier_attempt_are_no_sign_of_life(tmp_path: Path, tell: Tell) -> None:
    tell(0, "pulse", phase="training", attempt=0)
    listener = Listener(tmp_path, 1, range(1))
    listener.listen(NOW)
    assert listener.heard[0].spoke is None


def test_ranks_that_speak_and_make_no_step_are_stuck_and_the_one_that_does_not_wait_is_named(
    tmp_path: Path, tell: Tell
) -> None:
    listener = Listener(tmp_path, 0, range(3))
    for seconds in range(0, 90, 5):
        for rank in range(3):
            doing = "data" if rank == 2 else "collective"
            tell(rank, "pulse", phase="training", doing=doing, step=4)
        listener.listen(NOW + seconds)
    assert listener.silent(NOW + 85) == ()
    assert not listener.stuck(NOW + 59)
    assert listener.stuck(NOW + 85)
    assert listener.culprit() == 2
    assert listener.standstill(NOW + 85) == (
        "no step after step 4 for 85 s: ranks 0, 1 in collective; rank 2 in data"
    )


def test_slow_steps_are_not_called_stuck(tmp_path: Path, tell: Tell) -> None:
    listener = Listener(tmp_path, 0, range(1))
    for step in range(3):
        tell(0, "step", step=step, steps=1)
        tell(0, "pulse", phase="training", step=step)
        listener.listen(NOW + 30 * step)
    assert not listener.stuck(NOW + 60 + 290)
    assert listener.stuck(NOW + 60 + 310)


def test_a_stream_that_is_removed_rotated_cut_or_damaged_is_read_on(
    tmp_path: Path, tell: Tell
) -> None:
    listener = Listener(tmp_path, 0, range(1))
    path = tmp_path / "events" / "rank-00000.jsonl"
    tell(0, "pulse", phase="training", step=1)
    listener.listen(NOW)
    harms: tuple[Callable[[], object], ...] = (
        path.unlink,
        lambda: path.rename(path.with_suffix(".1")),
        lambda: path.write_bytes(b""),
        lambda: path.write_bytes(path.read_bytes() + b'\xff\x00{"kind": "pul\n{]\n[1]\n'),
        lambda: path.write_bytes(path.read_bytes() + b"\0" * READ_BYTES + b"\n"),
    )
    for turn, harm in enumerate(harms, start=1):
        harm()
        listener.listen(NOW + 10 * turn)
        tell(0, "step", step=1 + turn, steps=1)
        listener.listen(NOW + 10 * turn + 1)
        assert listener.heard[0].step == 1 + turn
        assert listener.heard[0].spoke == NOW + 10 * turn + 1
