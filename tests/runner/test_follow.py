"""Following: whole lines, in the order of time, from wherever the reader is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.events import encode
from wizard.dashboard.compared import compared
from wizard.dashboard.predicted import Predicted
from wizard.runner import follow, process, streams
from wizard.runner.compare import _told
from wizard.runner.folder import find_run, list_runs
from wizard.runner.follow import Follower
from wizard.runner.logs import tail

BEGAN = 1_800_000_000.0
RECORDED = Path(__file__).parent.parent / "fakes" / "runs"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "events").mkdir()
    return tmp_path


def write(run: Path, rank: int, text: str) -> None:
    with (run / "events" / f"rank-{rank:05d}.jsonl").open("a") as stream:
        stream.write(text)


def line(number: int, rank: int = 0, t: float | None = None, attempt: int = 0) -> str:
    t = float(number) if t is None else t
    return encode(
        "step", t=BEGAN + t, rank=rank, attempt=attempt, step=number, steps=1, seconds=1.0
    )


def test_a_run_that_has_not_begun_is_empty(tmp_path: Path) -> None:
    state = Follower(tmp_path).poll()
    assert state.name == tmp_path.name
    assert state.step is None
    assert not state.ended


def test_half_a_line_waits_for_its_end(run: Path) -> None:
    follower = Follower(run)
    text = line(1) + line(2)
    for end in range(0, len(text), 7):
        write(run, 0, text[end : end + 7])
        state = follower.poll()
    assert state.step == 2
    assert len(state.ranks[0].recent) == 2


def test_a_rank_that_appears_later_is_read_too(run: Path) -> None:
    follower = Follower(run)
    write(run, 0, line(1))
    follower.poll()
    write(run, 1, line(1, rank=1))
    assert sorted(follower.poll().ranks) == [0, 1]


def test_a_poll_without_news_changes_nothing(run: Path) -> None:
    write(run, 0, line(1))
    follower = Follower(run)
    assert follower.poll() == follower.poll()


def test_two_readers_who_came_at_different_times_see_the_same(run: Path) -> None:
    early = Follower(run)
    for number in range(1, 30):
        write(run, number % 2, line(number, rank=number % 2))
        early.poll()
    assert early.poll() == Follower(run).poll()


def test_lines_that_are_no_events_are_passed_over(run: Path) -> None:
    deep = "[" * 100_000
    times = "".join(f'{{"t": {t}, "kind": "step", "step": 9}}\n' for t in (10**400, "9e17", 5))
    write(run, 0, 'Traceback\n{"kind": 1}\n[]\n\x00\n' + deep + "\n" + times + line(3))
    (run / "state.json").write_text(deep)
    (run / "launch.json").write_text('{"pid": ' + "9" * 5000 + "}")
    state = Follower(run).poll()
    assert state.step == 3
    assert state.updated == BEGAN + 3


def test_an_attempt_is_read_to_its_end_before_the_next_one(run: Path) -> None:
    train = encode("train", t=BEGAN + 2.5, rank=0, step=2, loss=4.0)
    write(run, 1, line(1, rank=1, t=9.0, attempt=1))
    write(run, 0, line(1, t=1.0) + train + line(1, t=9.0, attempt=1))
    state = Follower(run).poll()
    assert state.losses == ((2, 4.0),)
    assert state.attempt == 1


def test_a_run_whose_processes_vanished_without_a_word_is_lost(run: Path) -> None:
    write(run, 0, line(1))
    launch = {"pid": os.getpid(), "start_time": 1, "boot_id": process.boot_id()}
    (run / "launch.json").write_text(json.dumps(launch))
    state = Follower(run).poll()
    assert state.lost
    assert state.ended
    (run / "state.json").write_text(json.dumps({"exit_code": 0, "phase": "done"}))
    state = Follower(run).poll()
    assert not state.lost
    assert state.exit_code == 0


def test_a_recorded_run_that_lost_a_rank_and_went_on_reads_as_it_happened(tmp_path: Path) -> None:
    run = tmp_path / "restarted"
    shutil.copytree(RECORDED / "restarted", run)
    state = Follower(run).poll()
    assert (state.exit_code, state.phase, state.attempt) == (0, "done", 1)
    assert state.step == state.total_steps
    assert [step for step, _ in state.losses] == sorted({step for step, _ in state.losses})
    assert {rank.exit_code for rank in state.ranks.values()} == {0}
    assert any("killed" in note.text for note in state.warnings)


def test_a_long_run_shows_its_present_at_once_and_its_history_when_it_is_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "GLANCE_BYTES", 16 * 1024)
    monkeypatch.setattr(follow, "GLANCE_BYTES", 16 * 1024)
    monkeypatch.setattr(follow, "BATCH_EVENTS", 100)
    for rank in range(2):
        write(run, rank, encode("hello", t=BEGAN, rank=rank, host="node"))
        write(run, rank, encode("phase", t=BEGAN, rank=rank, phase="training", total_steps=2000))
        for number in range(1, 1001):
            write(run, rank, line(number, rank=rank))
            if rank == 0:
                write(run, 0, encode("train", t=BEGAN + number, rank=0, step=number, loss=1.0))
    follower = Follower(run)

    state = follower.poll(0.0)

    assert state.history_share == 0.0
    assert (state.step, state.total_steps) == (1000, 2000)
    assert [rank.host for rank in state.ranks.values()] == ["node", "node"]
    assert 1 < len(state.history) < 1000
    write(run, 1, line(1001, rank=1))
    shares = [state.history_share]
    while state.history_share < 1:
        state = follower.poll(0.0)
        assert state.step == 1001
        assert [step for step, _ in state.losses] == sorted({step for step, _ in state.losses})
        shares.append(state.history_share)
    assert len(shares) > 5
    assert shares == sorted(shares)
    assert state == Follower(run).poll()


def test_a_short_run_is_read_to_its_end_however_little_time_is_given(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "BATCH_EVENTS", 10)
    write(run, 0, "".join(line(number) for number in range(1, 200)))
    assert Follower(run).poll(0.0) == Follower(run).poll()


def test_a_stream_that_is_written_anew_is_read_anew(run: Path) -> None:
    write(run, 0, line(1) + line(2) + line(3))
    follower = Follower(run)
    follower.poll()
    (run / "events" / "rank-00000.jsonl").write_text(line(4))
    assert follower.poll().step == 4


def test_a_run_that_ended_is_shown_again_from_its_beginning_to_its_end() -> None:
    shown = follow.frames(RECORDED / "restarted", 20)
    times = [state.updated for state in shown]
    assert 10 < len(shown) <= 42
    assert times == sorted(times, key=lambda t: t or 0)
    assert shown[0].step is None
    assert {state.attempt for state in shown} == {0, 1}
    assert shown[-1] == Follower(RECORDED / "restarted").poll()


def test_a_run_without_events_has_nothing_to_show_again(tmp_path: Path) -> None:
    assert follow.frames(tmp_path) == ()


def test_a_run_of_several_machines_is_seen_whole_from_the_folder_of_any(tmp_path: Path) -> None:
    """Each has a folder; phases and end are those of the one looked at, failures of all."""
    for rank, node in enumerate(("node-0", "node-1")):
        folder = tmp_path / "wide" / node
        (folder / "events").mkdir(parents=True)
        (folder / "run.sh").touch()
        log = folder / "logs" / "id" / "attempt_0" / "0" / "stderr.log"
        log.parent.mkdir(parents=True)
        log.write_text(f"said on {node}\n")
        write(folder, rank, encode("hello", t=BEGAN, rank=rank, host=node) + line(4, rank))
        said: dict[str, Any] = {"t": BEGAN + 9, "rank": None}
        text = encode("phase", phase=f"phase of {node}", **said)
        text += encode("warn", text=f"warning of {node}", **said)
        (folder / "events" / "launcher.jsonl").write_text(text)
    first = find_run(tmp_path, "wide")
    assert first == list_runs(tmp_path)[0].folder == tmp_path / "wide" / "node-0"
    state = Follower(first).poll()
    assert {rank.host for rank in state.ranks.values()} == {"node-0", "node-1"}
    assert state.name == "wide/node-0"
    assert state.phase == "phase of node-0"
    assert {note.text for note in state.warnings} == {"warning of node-0", "warning of node-1"}
    other = Follower(tmp_path / "wide" / "node-1").poll()
    assert (other.phase, len(other.ranks)) == ("phase of node-1", 2)
    assert tail(first, 1, 5) == ("said on node-1",)
    assert set(tail(first, "all", 9)) == {f"[node-{n} 0] said on node-{n}" for n in (0, 1)}


def test_a_restarted_run_s_numbers_are_of_all_attempts_without_the_time_it_stood() -> None:
    state = Follower(RECORDED / "restarted").poll()
    told = _told(state)
    assert told["steps"] == 30
    assert told["train_loss_first"] == state.losses[0][1]
    assert state.updated is not None
    assert state.started is not None
    assert 0 < told["seconds"] < state.updated - state.started
    last = {"train_loss_first": 9.0, "train_loss_last": 9.0, "seconds": 1.0, "steps": 1}
    shown = {one.name: one.measured for one in compared(state, Predicted(), {"measured": last})}
    assert shown["first loss"] == state.losses[0][1]
    assert shown["time"] == told["seconds"]
