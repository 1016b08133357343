"""Exceptions become classes, classes become exit codes."""

from __future__ import annotations

import errno
import json
import signal
from pathlib import Path

import pytest

from engine.events import EXIT_OK, FAILURE_EXIT
from engine.failure import RunError, Termination, classify, command, write_exit_file
from engine.report import Report
from engine.spec import SpecError


class OutOfMemoryError(RuntimeError):
    """Named as torch's own."""


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (RunError("nan", "loss is nan"), "nan"),
        (SpecError("unknown key"), "bad_spec"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (OSError(errno.EROFS, "Read-only file system"), "disk_full"),
        (RuntimeError("SafetensorError: I/O error: No space left on device"), "disk_full"),
        (MemoryError(), "host_oom"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), "host_oom"),
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "gpu_oom"),
        (RuntimeError("[gloo] Connection closed by peer [127.0.0.1]:1"), "comm_failed"),
        (RuntimeError("Watchdog caught collective operation timeout"), "comm_timeout"),
        (RuntimeError("Expected to mark a variable ready only once."), "ddp_graph"),
        (RuntimeError("CUDA error: unspecified launch failure"), "lost_device"),
        (KeyboardInterrupt(), "killed"),
        (ZeroDivisionError("division by zero"), "unknown"),
    ],
)
def test_an_exception_has_one_class_and_its_code(error: BaseException, failure: str) -> None:
    said = classify(error)

    assert (said.failure, said.code) == (failure, FAILURE_EXIT[failure])
    assert said.message


def test_what_is_understood_needs_no_traceback() -> None:
    assert classify(RunError("bad_data", "no rows")).traceback == ""
    assert "ZeroDivisionError" in classify(ZeroDivisionError()).traceback


def test_a_command_that_fails_says_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise RunError("bad_data", "x.jsonl: has no rows")

    assert command(fails) == 65
    assert capsys.readouterr().err == "x.jsonl: has no rows\n"
    assert command(lambda: None) == EXIT_OK


def test_the_exit_file_is_whole_and_names_the_end(tmp_path: Path) -> None:
    failure = classify(RunError("nan", "loss is nan"))

    write_exit_file(tmp_path, attempt=2, rank=1, failure=failure, code=74, last="training", step=9)

    assert [path.name for path in (tmp_path / "exit/2").iterdir()] == ["rank-00001.json"]
    said = json.loads((tmp_path / "exit/2/rank-00001.json").read_text())
    assert (said["code"], said["failure"], said["last"], said["step"]) == (74, "nan", "training", 9)


def test_a_run_folder_that_is_gone_is_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone"

    write_exit_file(gone, attempt=0, rank=0, failure=None, code=0, last="done", step=1)
    Report(gone, rank=0, attempt=0, rung=0).start()

    assert not gone.exists()
    assert "cannot write" in capsys.readouterr().err


def test_a_message_that_is_no_unicode_is_written(tmp_path: Path) -> None:
    failure = classify(RunError("bad_data", "\udcff.jsonl: no rows"))

    write_exit_file(tmp_path, attempt=0, rank=0, failure=failure, code=65, last="x", step=0)

    said = json.loads((tmp_path / "exit/0/rank-00000.json").read_text())
    assert said["message"] == failure.message


def test_an_exit_file_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "exit").write_text("in the way")

    write_exit_file(tmp_path, attempt=0, rank=0, failure=None, code=0, last="done", step=1)

    assert (tmp_path / "exit").read_text() == "in the way"


def test_a_second_signal_does_not_cut_short_what_a_rank_says_of_its_end(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        Termination().heed(tmp_path)
        with pytest.raises(RunError, match="ended from outside by SIGTERM"):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
