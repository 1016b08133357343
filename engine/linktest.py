"""Moves data between ranks for real: every pair, then all at once; a hang is said, not sat out.

`python -m engine.linktest --ranks N` starts the ranks under torchrun and prints their lines:
  rank        rank, pid, device, backend
  peer        pair, allowed: what the device's runtime says of reading the other's memory
  copy        pair, gbs, intact: data sent from the first to the second
  all_reduce  ranks, gbs, intact: what each rank sends and receives per second
  hang        rank, during, pair, seconds     failed   rank, during, pair, text
  late        seconds: nothing came to an end in time, and all of it was ended
  end         code: exit code of torchrun
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

from engine import processes
from engine.events import EXIT_COMM, EXIT_NO_DEVICES, EXIT_OK
from engine.theirs import why

VISIBLE = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "rocm": "HIP_VISIBLE_DEVICES",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
    "xpu": "ZE_AFFINITY_MASK",
}
BACKENDS = {"cuda": "nccl", "rocm": "nccl", "npu": "hccl", "xpu": "xccl", "cpu": "gloo"}
TORCH_NAMES = {"rocm": "cuda"}
DEVICE_BYTES, CPU_BYTES = 128 * 1024**2, 16 * 1024**2
MEASURED_SECONDS = 0.4
ALL_PAIRS_SECONDS = 24.0
MOST_REPEATS = 40
MOST_RANKS_IN_PAIRS = 16
AFTER_A_HANG_SECONDS = 2.0
"""What the other ranks still have to say."""
ALARM_SECONDS = 5.0
"""After the limit: the kernel's alarm ends a rank whose interpreter no longer runs."""


def main(given: list[str] | None = None) -> int:
    """Test the links of this machine, or be one rank of such a test."""
    options = _options(given)
    return _be_a_rank(options) if options.rank else _supervise(options)


def _options(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m engine.linktest", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device-kind", choices=sorted(BACKENDS), default="cpu")
    parser.add_argument("--devices", default="", help="what to make visible, in ranks' order")
    parser.add_argument("--exchange-seconds", type=float, default=30.0, help="limit of one step")
    parser.add_argument("--total-seconds", type=float, default=180.0, help="limit of it all")
    parser.add_argument("--without-peer-access", action="store_true")
    parser.add_argument("--rank", action="store_true", help="be a rank; torchrun does this")
    return parser.parse_args(given)


def _supervise(options: argparse.Namespace) -> int:
    """Run the ranks, pass on what they say, and end all of them in time."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "0"]
    command += ["--nproc-per-node", str(options.ranks), "-m", "engine.linktest", "--rank"]
    command += ["--device-kind", options.device_kind]
    command += ["--exchange-seconds", str(options.exchange_seconds)]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        launcher = subprocess.Popen(
            command,
            stdout=output,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            env=_environment(options),
        )
        lines = Lines(output)
        try:
            hung = _follow(launcher, lines, options.total_seconds)
        finally:
            _end(launcher)
        lines.pass_on()
        _say("end", code=launcher.returncode, text="" if hung else _last_words(errors))
    return EXIT_OK if launcher.returncode == 0 else EXIT_COMM


def _environment(options: argparse.Namespace) -> dict[str, str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if options.without_peer_access:
        environment["NCCL_P2P_DISABLE"] = "1"
    variable = VISIBLE.get(options.device_kind)
    if variable and options.devices:
        environment |= {variable: options.devices, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return environment


class Lines:
    """What ranks write into a file, passed on line by line."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._place = 0
        self.hung = False
        """Whether a line told of a hang."""

    def pass_on(self) -> None:
        """Print the whole lines that have come in since; libraries' own lines are left out."""
        text = os.pread(self._file.fileno(), 1 << 20, self._place)
        whole = text[: text.rfind(b"\n") + 1]
        self._place += len(whole)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                os.write(1, line + b"\n")
                self.hung |= b'"kind": "hang"' in line


def _follow(launcher: subprocess.Popen[bytes], lines: Lines, limit_seconds: float) -> bool:
    """Pass lines on until it ends; whether it had to be given up."""
    until, parent = time.monotonic() + limit_seconds, os.getppid()
    while launcher.poll() is None:
        if os.getppid() != parent:  # nobody is left to be told
            return True
        before = lines.hung
        lines.pass_on()
        if lines.hung and not before:
            until = min(until, time.monotonic() + AFTER_A_HANG_SECONDS)
        if time.monotonic() > until:
            if not lines.hung:
                _say("late", seconds=limit_seconds)
            return True
        time.sleep(0.05)
    return lines.hung


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """End torchrun and its ranks, which are sessions of their own, by pid and start time."""
    if launcher.poll() is None:
        processes.end(processes.family(launcher.pid), grace_seconds=0.5)
        # A rank stuck inside a driver cannot be killed; it is left, not waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            launcher.wait(2.0)


def _last_words(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").splitlines()
    named = [line for line in lines if "Error" in line and "ChildFailedError" not in line]
    return (named or lines or [""])[-1].strip()[:500]


def _be_a_rank(options: argparse.Namespace) -> int:
    ranks = Ranks(options.device_kind, options.exchange_seconds)
    try:
        ranks.start()
        for pair in pairs(ranks.count):
            ranks.copy(pair)
        ranks.all_reduce()
        ranks.stop()
    except Exception as error:
        _say("failed", rank=ranks.rank, **ranks.step, text=why(error))
        return EXIT_NO_DEVICES if ranks.step["during"] == "starting" else EXIT_COMM
    return EXIT_OK


def pairs(count: int) -> list[tuple[int, int]]:
    """Every pair of ranks; of more than sixteen the neighbours only: more takes too long."""
    if count > MOST_RANKS_IN_PAIRS:
        return [(rank, rank + 1) for rank in range(count - 1)]
    return list(itertools.combinations(range(count), 2))


class Ranks:
    """This rank among the others: what it exchanges, each step with a time limit."""

    def __init__(self, device_kind: str, exchange_seconds: float) -> None:
        self.kind = device_kind
        self.limit_seconds = exchange_seconds
        self.rank = int(os.environ["RANK"])
        self.count = int(os.environ["WORLD_SIZE"])
        self.step: dict[str, Any] = {"during": "starting", "pair": None}
        self.bytes = CPU_BYTES if device_kind == "cpu" else DEVICE_BYTES
        self.torch: Any = None
        self.device: Any = None
        self._runtime: Any = None

    def start(self) -> None:
        """Join the others. Importing torch and opening devices take their time: twice the limit."""
        with self._limited("starting", None, times=2):
            import torch
            import torch.distributed

            self.torch = torch
            self._open_device()
            _say(
                "rank",
                rank=self.rank,
                pid=os.getpid(),
                device=str(self.device),
                backend=BACKENDS[self.kind],
            )
            self._join()
        self._say_peers()

    def _open_device(self) -> None:
        name = TORCH_NAMES.get(self.kind, self.kind)
        if name == "npu":
            __import__("torch_npu")
        if name == "cpu":
            self.device = self.torch.device("cpu")
            return
        self._runtime = getattr(self.torch, name)
        self._runtime.set_device(int(os.environ["LOCAL_RANK"]))
        self.device = self.torch.device(name, int(os.environ["LOCAL_RANK"]))

    def _join(self) -> None:
        name, backend = self.device.type, BACKENDS[self.kind]
        # Ranks agree over the processor, so that a broken link is found where it is tested.
        both = backend if name == "cpu" else f"cpu:gloo,{name}:{backend}"
        self.torch.distributed.init_process_group(both)

    def _say_peers(self) -> None:
        if self.rank or self.device.type != "cuda":
            return
        for one, other in itertools.permutations(range(self.count), 2):
            allowed = self.torch.cuda.can_device_access_peer(one, other)
            _say("peer", pair=(one, other), allowed=bool(allowed))

    def copy(self, pair: tuple[int, int]) -> None:
        """Send a buffer from the first to the second rank of a pair, and look at what came."""
        sender, receiver = pair
        value = float(1 + sender * self.count + receiver)
        buffer = self._buffer(value if self.rank == sender else 0.0)

        def exchange() -> None:
            if self.rank == sender:
                self.torch.distributed.send(buffer, receiver)
            elif self.rank == receiver:
                self.torch.distributed.recv(buffer, sender)

        with self._limited("copy", pair):
            seconds, repeats, intact = self._timed(exchange, lambda: self._holds(buffer, value))
        if self.rank == receiver:
            _say("copy", pair=pair, gbs=self.bytes * repeats / seconds / 1e9, intact=intact)

    def all_reduce(self) -> None:
        """Add a buffer up over all ranks; the rate is what each rank sends, as NCCL counts it."""
        buffer = self._buffer(1.0)

        with self._limited("all-reduce", None):
            seconds, repeats, intact = self._timed(
                lambda: self.torch.distributed.all_reduce(buffer),
                lambda: self._holds(buffer, float(self.count)),
            )
        if self.rank == 0:
            share = 2 * (self.count - 1) / self.count
            rate = share * self.bytes * repeats / seconds / 1e9
            _say("all_reduce", ranks=self.count, gbs=rate, intact=intact)

    def stop(self) -> None:
        """Leave the others."""
        with self._limited("stopping", None):
            self.torch.distributed.destroy_process_group()

    def _buffer(self, value: float) -> Any:
        return self.torch.full((self.bytes // 4,), value, device=self.device)

    def _holds(self, buffer: Any, value: float) -> bool:
        return bool((buffer == value).all())

    def _timed(
        self, exchange: Callable[[], None], check: Callable[[], bool]
    ) -> tuple[float, int, bool]:
        """(seconds, how often it was done in them, whether the data came over whole).

        The first time makes connections; the second says how often is enough, for all ranks.
        """
        self._seconds(exchange, 1)
        intact = check()
        slowest = self._slowest(self._seconds(exchange, 1))
        wanted = min(MEASURED_SECONDS, ALL_PAIRS_SECONDS / len(pairs(self.count)))
        repeats = max(1, min(MOST_REPEATS, int(wanted / slowest)))
        return self._slowest(self._seconds(exchange, repeats)), repeats, intact

    def _seconds(self, exchange: Callable[[], None], times: int) -> float:
        self._wait()
        begun = time.perf_counter()
        for _ in range(times):
            exchange()
        self._wait()
        return time.perf_counter() - begun

    def _wait(self) -> None:
        if self._runtime is not None:
            self._runtime.synchronize()

    def _slowest(self, seconds: float) -> float:
        slowest = self.torch.tensor([seconds], dtype=self.torch.float64)
        self.torch.distributed.all_reduce(slowest, op=self.torch.distributed.ReduceOp.MAX)
        return float(slowest)

    @contextmanager
    def _limited(self, during: str, pair: tuple[int, int] | None, times: int = 1) -> Iterator[None]:
        self.step = {"during": during, "pair": pair}
        seconds = self.limit_seconds * times
        timer = threading.Timer(seconds, self._hung, (seconds,))
        timer.daemon = True
        timer.start()
        signal.setitimer(signal.ITIMER_REAL, seconds + ALARM_SECONDS)
        yield
        timer.cancel()
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _hung(self, seconds: float) -> None:
        _say("hang", rank=self.rank, **self.step, seconds=seconds)
        if os.getpgrp() == os.getpid():  # as torchrun starts it: nobody else is in the group
            os.killpg(os.getpgrp(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def _say(kind: str, **fields: Any) -> None:
    """One line in one write: several ranks share the file."""
    os.write(1, (json.dumps({"kind": kind, **fields}) + "\n").encode())


if __name__ == "__main__":
    sys.exit(main())
