"""What the libraries and the kernel say → failure classes. Standard library only."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path

MESSAGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "host_oom",
        (
            "DefaultCPUAllocator: can't allocate memory",
            "not enough memory: you tried",
            "std::bad_alloc",
        ),
    ),
    ("gpu_oom", ("CUDA out of memory", "NPU out of memory", "HIP out of memory")),
    ("gpu_oom", ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")),
    (
        "lost_device",
        (
            "CUDA error: uncorrectable ECC",
            "unspecified launch failure",
            "GPU is lost",
            "fallen off the bus",
        ),
    ),
    (
        "ddp_graph",
        (
            "mark a variable ready only once",
            "Expected to have finished reduction",
            "unused parameters",
        ),
    ),
    (
        "comm_timeout",
        (
            "Watchdog caught collective operation timeout",
            "Timed out waiting",
            "wait timeout",
            "client socket has timed out",
        ),
    ),
    (
        "comm_failed",
        (
            "Connection closed by peer",
            "Connection reset by peer",
            "NCCL error",
            "gloo",
            "EADDRINUSE",
            "address already in use",
            "HCCL",
            "Broken pipe",
        ),
    ),
    (
        "disk_full",
        ("No space left on device", "PytorchStreamWriter failed writing", "Read-only file system"),
    ),
)
"""Failure class → texts the libraries use for it; the first match counts."""

SIGNALS: dict[int, str] = {
    signal.SIGABRT: "a failed check in native code, or NCCL's watchdog after a hang",
    signal.SIGBUS: "memory that is mapped and not there: /dev/shm or the disk may be full",
    signal.SIGSEGV: "a crash in native code",
    signal.SIGILL: "this processor lacks an instruction the build uses",
    signal.SIGHUP: "its terminal was closed",
}
"""What a signal that ended a rank usually means."""

KERNEL = re.compile(
    r"out of memory|oom-kill|killed process|NVRM: Xid|segfault|general protection"
    r"|I/O error|remounting filesystem read-only|blocked for more than",
    re.IGNORECASE,
)
LOST_DEVICE = re.compile(r"NVRM: Xid \(.*?\): (?:48|62|63|64|74|79|92|94|95|119|120|140),")
"""Xid codes after which a device must be reset or replaced (NVIDIA's Xid catalog)."""
KERNEL_LINES = 200


def class_of_text(text: str) -> str | None:
    """The failure class a library's words stand for; None when none is known."""
    return next((name for name, parts in MESSAGES if any(p in text for p in parts)), None)


def last_line(text: str) -> str:
    """The last line that says anything."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def kernel_lines(since: float) -> list[str]:
    """What the kernel said of memory, devices, disks and crashes since `since` (monotonic seconds).

    Empty where its log may not be read.
    """
    try:
        log = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return []
    try:
        return list(select_lines(_records(log), since))[-KERNEL_LINES:]
    finally:
        os.close(log)


def select_lines(records: Iterable[str], since: float) -> Iterable[str]:
    """Texts of kernel records (`priority,number,microseconds,flags;text`) that matter."""
    for record in records:
        head, _, text = record.partition(";")
        fields = head.split(",")
        stamped = len(fields) > 2 and fields[2].isdigit()
        if stamped and int(fields[2]) / 1e6 >= since and KERNEL.search(text):
            yield text.partition("\n")[0].strip()


def _records(log: int) -> Iterable[str]:
    while True:
        try:
            yield os.read(log, 8192).decode("utf-8", "replace")
        except BrokenPipeError:  # the oldest records were overwritten meanwhile
            continue
        except OSError:
            return


def killed_for_memory(lines: Iterable[str], pids: Iterable[int]) -> bool:
    """Whether the kernel says that it killed one of these processes because memory was full."""
    named = {int(pid) for line in lines for pid in re.findall(r"[Kk]illed process (\d+)", line)}
    return not named.isdisjoint(pids)


def port_owner(port: int) -> str:
    """Who listens on a TCP port of this machine, in words; empty when that cannot be seen."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in _lines(Path("/proc/net") / table)[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for entry in filter(str.isdigit, os.listdir("/proc")) if inodes else ():
        if inodes & set(_links(Path("/proc") / entry / "fd")):
            name = "".join(_lines(Path("/proc") / entry / "comm"))
            return f"process {entry} ({name})"
    return ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _links(folder: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):  # closed meanwhile
                found.append(os.readlink(folder / name))
    return found
