"""What libraries, kernel and signals say, as classes with evidence."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from engine import processes
from engine.causes import kernel_lines, killed_for_memory, port_owner, select_lines
from engine.events import EXIT_MEANING, FAILURE_EXIT
from engine.evidence import gather
from engine.verdict import Evidence, judge
from wizard.advice import CAUSES, advise

RECORDS = (
    "6,339,5000000,-;EXT4-fs (vda): mounted filesystem",
    "3,340,6000000,-;Memory cgroup out of memory: Killed process 4242 (python3) total-vm:9kB\n"
    " SUBSYSTEM=memory",
    "4,341,7000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=4242, GPU has fallen off the bus.",
    "nonsense",
)


def test_of_the_kernel_s_log_only_what_matters_and_is_new_is_taken() -> None:
    lines = list(select_lines(RECORDS, since=5.5))
    assert [line[:12] for line in lines] == ["Memory cgrou", "NVRM: Xid (P"]
    assert not list(select_lines(RECORDS, since=7.5))
    assert killed_for_memory(lines, [4242])
    assert not killed_for_memory(lines, [42, 424])
    assert isinstance(kernel_lines(0.0), list)


def test_a_lost_device_is_told_by_the_kernel_whatever_the_rank_made_of_it() -> None:
    exits = {0: {"code": 70, "failure": "unknown", "message": "CUDA error", "t": 1}}
    verdict = judge(
        Evidence(command_code=1, ranks=range(1), exits=exits, kernel=[RECORDS[2].split(";")[1]])
    )
    assert (verdict.code, verdict.failure, verdict.rank) == (76, "lost_device", 0)
    assert verdict.evidence


def test_a_crash_in_native_code_is_not_restarted_and_names_its_signal() -> None:
    verdict = judge(
        Evidence(
            command_code=1,
            ranks=range(2),
            exits={0: {"code": 76, "failure": "comm_failed", "t": 1}},
            first_lost=(1, -signal.SIGSEGV),
            said={1: "loading\nFatal Python error: Segmentation fault\n"},
        )
    )
    assert (verdict.code, verdict.failure, verdict.rank) == (70, "unknown", 1)
    assert verdict.message == (
        "rank 1 ended with SIGSEGV (a crash in native code) and left no exit file: "
        "“Fatal Python error: Segmentation fault”"
    )


def test_an_abort_by_the_watchdog_is_a_hang() -> None:
    said = "[rank1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2)\n"
    verdict = judge(
        Evidence(command_code=1, ranks=range(2), first_lost=(1, -signal.SIGABRT), said={1: said})
    )
    assert (verdict.code, verdict.failure, verdict.rank) == (76, "comm_timeout", 1)


def test_a_killed_rank_is_not_judged_by_old_warnings_in_its_log() -> None:
    said = "find_unused_parameters: no unused parameters\nNCCL error: none\n"
    verdict = judge(
        Evidence(command_code=1, ranks=range(2), first_lost=(1, -signal.SIGKILL), said={1: said})
    )
    assert verdict.failure == "killed"


def test_a_hang_that_the_watch_ended_outranks_the_ends_it_caused() -> None:
    exits = {0: {"code": 76, "failure": "killed", "t": 1}}
    verdict = judge(
        Evidence(command_code=None, ranks=range(2), exits=exits, hang=(1, "rank 1 is silent"))
    )
    assert (verdict.code, verdict.failure, verdict.rank) == (76, "comm_timeout", 1)


def test_who_holds_a_port_is_found() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert port_owner(port).startswith(f"process {os.getpid()} (")
    assert port_owner(1) == ""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("port: 1, useIpv6: false, code: -98, name: EADDRINUSE", ""),
        ("RendezvousConnectionError: The connection to the C10d store has failed", ""),
    ],
)
def test_an_error_of_torchrun_itself_is_told_by_its_own_line(
    said: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "logs").mkdir()
    log = f"Traceback:\ntorch.distributed.DistNetworkError: {said}\nnote: see docs\n"
    (tmp_path / "logs" / "0-training.log").write_text(log)
    (tmp_path / "exit" / "0").mkdir(parents=True)
    (tmp_path / "exit" / "0" / "training").write_text("1")
    verdict = judge(
        gather(tmp_path, phase="training", attempt=0, ranks=range(2), began=0.0, oom_kills=0)
    )
    assert said in verdict.message


V2 = """low 0
high 0
max 12
oom 3
oom_kill 2
oom_group_kill 0
"""


def test_both_versions_of_control_groups_count_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recorded tree of version 2, and version 1 beside it."""
    (tmp_path / "app.slice").mkdir()
    (tmp_path / "app.slice" / "memory.events").write_text(V2)
    own = tmp_path / "cgroup"
    own.write_text("0::/app.slice\n")
    assert processes.oom_kills(tmp_path, own) == 2
    (tmp_path / "memory" / "box").mkdir(parents=True)
    (tmp_path / "memory" / "box" / "memory.oom_control").write_text("under_oom 0\noom_kill 5\n")
    own.write_text("9:memory:/box\n0::/\n")
    assert processes.oom_kills(tmp_path, own) == 5
    assert processes.oom_kills(tmp_path / "none", own) == 0


def test_every_class_has_a_cause_and_every_end_a_command() -> None:
    assert set(CAUSES) == set(FAILURE_EXIT)
    for failure, code in FAILURE_EXIT.items():
        found = advise("it's mine", exit_code=code, failure=failure, rank=1, learning_rate=3e-4)
        assert found.cause.endswith(".")
        assert found.actions
        for action in found.actions:
            assert action.command.startswith("tunewright ")
    for ended in (*EXIT_MEANING, None):
        assert advise("r", exit_code=ended, failure=None).actions
    (log, resume) = advise("it's mine", exit_code=76, failure="comm_timeout", rank=1).actions
    assert log.command == """tunewright logs 'it'"'"'s mine' --rank 1"""
    assert resume.command == """tunewright resume 'it'"'"'s mine'"""
    assert "restarted" in advise("r", exit_code=None, failure=None, rebooted=True).cause
