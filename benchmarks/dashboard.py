"""What a dashboard costs: `python benchmarks/dashboard.py [fold|open|watch RANKS SECONDS]`.

Streams are synthetic: each rank writes a step a second and a pulse every five seconds, as a real
one does, in a folder that is removed afterwards. Figures are of the machine this runs on; without
arguments everything is measured, which takes some minutes.
"""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.events import decode, encode
from wizard.app import TunewrightApp
from wizard.commands.verbs import verbs
from wizard.dashboard.screen import Dashboard
from wizard.dashboard.state import RunState, fold_all
from wizard.dashboard.view import View
from wizard.runner.follow import Follower

GIB = 1024**3
FOLDED_EVENTS = 100_000
OPENED_STEPS, OPENED_RANKS = 100_000, 8
PARTS = (
    ("fold",), ("open",), ("watch", "8", "30"), ("watch", "64", "30"), ("watch", "1024", "30"),
)  # fmt: skip
WRITTEN_STEPS = 100
"""What a watched run has behind it,"""
SIZE = (140, 40)
"""and the terminal it is watched in."""


def lines(rank: int, step: int, t: float) -> Iterator[str]:
    """What a rank writes in the second in which it finishes a step."""
    yield encode("step", t=t, rank=rank, step=step, steps=1, seconds=1.0,
                 own_seconds=0.8 + step % 7 / 100, wait_seconds=0.2 - step % 7 / 100,
                 data_seconds=0.01, tokens=8000 + step % 90,
                 padded_tokens=8192, memory_allocated_bytes=40 * GIB + step % 100,
                 memory_reserved_bytes=44 * GIB, memory_peak_bytes=43 * GIB,
                 process_memory_bytes=5 * GIB, process_memory_peak_bytes=6 * GIB)  # fmt: skip
    if rank == 0:
        yield encode("train", t=t, rank=rank, step=step, loss=1 + 1 / (1 + step / 50),
                     learning_rate=1e-4,
                     grad_norm=0.5, tokens_seen=8000 * step, epoch=step / 1000)  # fmt: skip
    if step % 5 == rank % 5:
        yield encode("pulse", t=t, rank=rank, step=step, phase="training", seconds=float(step),
                     utilization_percent=97, sm_clock_mhz=1700 + step % 9, temperature_c=66,
                     power_w=650.0, power_cap_w=700.0, memory_used_bytes=45 * GIB,
                     process_memory_bytes=5 * GIB, xid=0)  # fmt: skip


def beginning(rank: int, ranks: int, t: float) -> Iterator[str]:
    """Who a rank is, and that it trains."""
    yield encode("hello", t=t, rank=rank, world_size=ranks, local_rank=rank % 8, pid=1000 + rank,
                 host=f"node{rank // 8:03d}", device="NVIDIA H100 80GB HBM3", uuid=f"GPU-{rank}",
                 memory_total_bytes=80 * GIB)  # fmt: skip
    yield encode("phase", t=t, rank=rank, step=0, phase="training", total_steps=1_000_000)


def written(folder: Path, ranks: int, steps: int) -> float:
    """A run of so many steps; the time of its last one, unix seconds: now."""
    (folder / "events").mkdir()
    began = time.time() - steps
    for rank in range(ranks):
        with (folder / "events" / f"rank-{rank:05d}.jsonl").open("w") as file:
            file.writelines(beginning(rank, ranks, began))
            for step in range(1, steps + 1):
                file.writelines(lines(rank, step, began + step))
    return began + steps


def measure_fold() -> None:
    """Events through the fold alone, and with decoding, in a second of processor time."""
    texts = [line for step in range(FOLDED_EVENTS // 10) for rank in range(8)
             for line in lines(rank, step, 1.8e9 + step)][:FOLDED_EVENTS]  # fmt: skip
    decoding, folding = [], []
    for _ in range(3):
        start = time.process_time()
        events = [event for text in texts if (event := decode(text)) is not None]
        decoded = time.process_time()
        fold_all(RunState(), events)
        decoding.append(decoded - start)
        folding.append(time.process_time() - decoded)
    print(f"fold: {len(texts) / min(folding):,.0f} events in a second of a core; decoding first: "
          f"{len(texts) / (min(folding) + min(decoding)):,.0f}")  # fmt: skip


def measure_open() -> None:
    """Seconds until the present of a long run is known, and until all its history is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written(folder, OPENED_RANKS, OPENED_STEPS)
        size = sum(path.stat().st_size for path in (folder / "events").iterdir())
        follower, longest = Follower(folder), 0.0
        start = time.perf_counter()
        state = follower.poll(0.2)
        present = time.perf_counter() - start
        assert state.step == OPENED_STEPS
        assert len(state.ranks) == OPENED_RANKS
        while state.history_share < 1:
            began = time.perf_counter()
            state = follower.poll(0.2)
            longest = max(longest, time.perf_counter() - began)
        whole = time.perf_counter() - start
        print(f"open: {OPENED_STEPS:,} steps of {OPENED_RANKS} ranks, {size / 1e6:,.0f} MB: the "
              f"present after {present:.2f} s, the whole history after {whole:.1f} s, "
              f"at most {longest:.2f} s at a time")  # fmt: skip


class Writer(threading.Thread):
    """Writes a step a second for every rank; its processor time is known, so it can be left out."""

    def __init__(self, folder: Path, ranks: int, step: int) -> None:
        super().__init__(daemon=True)
        self._files = [(folder / "events" / f"rank-{rank:05d}.jsonl") for rank in range(ranks)]
        self._step = step
        self.seconds = 0.0
        self.ended = threading.Event()

    def run(self) -> None:
        """Until it is told to end."""
        while not self.ended.wait(1.0):
            self._step += 1
            start = time.thread_time()
            for rank, path in enumerate(self._files):
                with path.open("a") as file:
                    file.write("".join(lines(rank, self._step, time.time())))
            self.seconds += time.thread_time() - start


async def measure_watch(ranks: int, seconds: float) -> None:
    """Processor time, memory and time to draw of a dashboard of a run that goes on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        folder.mkdir()
        written(folder, ranks, WRITTEN_STEPS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        app = TunewrightApp(verbs(), attach=folder)
        async with app.run_test(size=SIZE) as pilot:
            while not (isinstance(app.screen, Dashboard) and len(app.screen.state.ranks) == ranks):
                await pilot.pause(0.1)
            screen = app.screen
            draws = timed_draws(screen)
            writer = Writer(folder, ranks, WRITTEN_STEPS)
            writer.start()
            cpu, wall, drawn = time.process_time(), time.perf_counter(), len(draws)
            await asyncio.sleep(seconds)
            cpu = time.process_time() - cpu - writer.seconds
            wall = time.perf_counter() - wall
            writer.ended.set()
            writer.join()
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            draws = draws[drawn:]
        print(f"watch: {ranks:,} ranks at 1 Hz for {wall:.0f} s: {100 * cpu / wall:.1f} % of a "
              f"core, {(peak - before) / 1024:.0f} MiB more than before, {len(draws)} draws of "
              f"{1000 * statistics.median(draws):.0f} ms")  # fmt: skip


def timed_draws(screen: Dashboard) -> list[float]:
    """Seconds of each time that the boxes are filled, from now on."""
    taken: list[float] = []
    watch_view = screen.watch_view

    def timed(view: View) -> None:
        start = time.perf_counter()
        watch_view(view)
        taken.append(time.perf_counter() - start)

    screen.watch_view = timed  # type: ignore[method-assign]
    return taken


def main(words: list[str]) -> None:
    """The one that is named, or each in a process of its own: what one leaves slows the next."""
    match words:
        case ["fold"]:
            measure_fold()
        case ["open"]:
            measure_open()
        case ["watch", ranks, seconds]:
            asyncio.run(measure_watch(int(ranks), float(seconds)))
        case []:
            for part in PARTS:
                subprocess.run([sys.executable, __file__, *part], check=True)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
