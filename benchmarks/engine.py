"""How fast the engine trains beside a plain TRL script, LLaMA-Factory and ms-swift.

    python -m benchmarks.engine FOLDER >docs/results/$(date +%F)-engine.md

FOLDER takes an environment for each trainer (some hundred MB each), the models and the runs. The
trainers take turns, so that a machine that becomes slower does so for all of them; what is told
are ratios to Tunewright in the same round. `--only NAME` times some of them, `--jobs` some jobs.
Every run is kept in FOLDER/timings.jsonl, and the tables are of all that is there for this number
of ranks: a machine that is only free for minutes can be asked a round at a time. `--rounds 0` only
prints them.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.job_rows import equal_rows, natural_rows, small_model, with_template
from benchmarks.peer_trainers import TRAINERS, Job, environment, variables

STOPWATCH = Path(__file__).resolve().parent / "stopwatch"
OURS = "Tunewright"
LIMIT_SECONDS = 280
WARM_STEPS = 3
"""Steps before the clock starts; the rest is steady."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """What one run of one trainer came to, over all its ranks."""

    first_step_seconds: float
    """From its start until its first optimizer step has ended."""
    step_seconds: float
    """Mean of the steady steps."""
    trained_a_second: float
    """Tokens that carry a loss, over the steady steps."""
    real_a_second: float
    """Tokens that are no padding, over the steady steps."""
    rows: int
    trained: int
    """Tokens that carried a loss, over the whole run."""
    digest: int
    """Of all rows' token ids and labels, whatever their order."""
    cpu_seconds: float
    """Of the processor, in a steady step and over all ranks: what other programs take is not in."""
    other_cpu_seconds: float
    """Of the processor, for everything but the steps behind the first: to start, and to end."""
    settings: Mapping[str, Any]


class RunFailedError(Exception):
    """A trainer did not do its job; the message is the end of what it printed."""


def timed(name: str, job: Job, folder: Path, python: Path) -> Timing:
    """Run one trainer once in an empty folder.

    Raises RunFailedError.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    words, more = TRAINERS[name].command(job, folder, python)
    stopwatch = folder / "stopwatch"
    watched = {
        "PYTHONPATH": str(STOPWATCH),
        "STOPWATCH_FILE": str(stopwatch),
        "STOPWATCH_SYNCED": f"1,{WARM_STEPS},{job.steps}",
    }
    with (folder / "output").open("wb") as output:
        began, before = time.time(), _children_seconds()
        process = subprocess.Popen(
            words,
            env={**variables(job, python), **more, **watched},
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        code = ended(process, LIMIT_SECONDS)
    ranks = [json.loads(path.read_text()) for path in sorted(folder.glob("stopwatch.*.json"))]
    if code != 0 or not ranks:
        said = (folder / "output").read_text(errors="replace")
        raise RunFailedError(f"{name} ended with {code}:\n{said[-3000:]}")
    return read(ranks, began, _children_seconds() - before)


def _children_seconds() -> float:
    """Processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ended(process: subprocess.Popen[Any], limit_seconds: float) -> int | None:
    """Its exit code; None where it was ended, with all it started, after its time."""
    try:
        return process.wait(limit_seconds)
    except subprocess.TimeoutExpired:
        family = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for child in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                child.kill()
        process.wait()
        return None


def read(ranks: Sequence[Mapping[str, Any]], began: float, cpu_seconds: float) -> Timing:
    """The timing of what the stopwatches of all ranks wrote."""
    ends = ranks[0]["ends"]
    seconds = ends[-1] - ends[WARM_STEPS - 1]

    def total(what: str, first: int = 0) -> int:
        return sum(step[what] for rank in ranks for step in rank["steps"][first:])

    return Timing(
        first_step_seconds=ends[0] - began,
        step_seconds=seconds / (len(ends) - WARM_STEPS),
        trained_a_second=total("trained", WARM_STEPS) / seconds,
        real_a_second=total("tokens", WARM_STEPS) / seconds,
        rows=total("rows"),
        trained=total("trained"),
        digest=total("digest"),
        cpu_seconds=sum(r["cpu"][-1] - r["cpu"][WARM_STEPS - 1] for r in ranks)
        / (len(ends) - WARM_STEPS),
        other_cpu_seconds=cpu_seconds - sum(r["cpu"][-1] - r["cpu"][0] for r in ranks),
        settings=ranks[0]["settings"],
    )


def jobs(folder: Path, ranks: int, kind: str, model: Path) -> Iterator[tuple[str, Job]]:
    """(what it is, job): equal work by equal settings, then by each trainer's own defaults."""
    threads = max(1, len(os.sched_getaffinity(0)) // ranks)
    small = small_model(folder / "5M")
    large = with_template(model, folder / "SmolLM2-135M")
    shared: dict[str, Any] = {"ranks": ranks, "kind": kind, "threads": threads}
    for name, path, steps, at_once in (("5M", small, 17, 4), ("SmolLM2-135M", large, 9, 2)):
        step = at_once * ranks
        rows = folder / f"{name}-{ranks}.jsonl"
        if not rows.exists():
            equal_rows(path, rows, rows=steps * step, tokens=256, learnt=120)
        yield (
            f"{name}, equal settings",
            Job(
                model=path,
                data=rows,
                rows_at_once=at_once,
                rows_a_step=step,
                steps=steps,
                **shared,
            ),
        )
    steps, step = 9, 16
    rows = natural_rows(folder / "natural.jsonl", rows=steps * step)
    yield (
        "SmolLM2-135M, own defaults",
        Job(
            model=large,
            data=rows,
            rows_at_once=4,
            rows_a_step=step,
            steps=steps,
            own_defaults=True,
            **shared,
        ),
    )


def play(
    names: Sequence[str], what: str, job: Job, folder: Path, pythons: Mapping[str, Path]
) -> None:
    """Every trainer once, the one with the fewest rounds first; each is kept when it is done."""
    file = folder / "timings.jsonl"
    before = kept(file, what, job.ranks)
    done = {name: sum(name in turn for turn in before) for name in names}
    turns = len(before)
    for name in sorted(
        names, key=lambda name: (done[name], (names.index(name) - turns) % len(names))
    ):
        try:
            timing = timed(name, job, folder / "run", pythons[name])
        except (RunFailedError, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            continue
        said = {"job": what, "ranks": job.ranks, "round": done[name], "trainer": name}
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps({**said, **asdict(timing)}) + "\n")
        print(f"{name}: {timing}", file=sys.stderr, flush=True)


def kept(file: Path, what: str, ranks: int) -> list[dict[str, Timing]]:
    """The rounds of a job that are in the file: trainer → timing in each."""
    found: dict[int, dict[str, Timing]] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        said = json.loads(line)
        if (said.pop("job"), said.pop("ranks")) == (what, ranks):
            turn, name = said.pop("round"), said.pop("trainer")
            found.setdefault(turn, {})[name] = Timing(**said)
    return [found[turn] for turn in sorted(found)]


def table(found: Sequence[Mapping[str, Timing]], *, useful: bool) -> Iterator[str]:
    """Rates, and their ratios to Tunewright's round by round: median (least to most)."""
    rate = "trained tokens" if useful else "tokens"
    yield (
        f"| trainer | {rate} a second | Tunewright is × | by processor time × | first step, s "
        "| processor beside the steps, s | trained tokens, and their digest |"
    )
    yield "|---|---|---|---|---|---|---|"
    for name in TRAINERS:
        timings = [turn[name] for turn in found if name in turn]
        if not timings:
            yield f"| {name} | not timed | | | | | |"
            continue
        pairs = [(turn[OURS], turn[name]) for turn in found if name in turn and OURS in turn]
        cells = (
            _spread([_rate(timing, useful) for timing in timings], 0),
            _spread([_rate(own, useful) / _rate(other, useful) for own, other in pairs], 2),
            _spread([_per_cpu(own, useful) / _per_cpu(other, useful) for own, other in pairs], 2),
            _spread([timing.first_step_seconds for timing in timings], 1),
            _spread([timing.other_cpu_seconds for timing in timings], 1),
            f"{timings[-1].trained:,} of {timings[-1].rows} rows, {timings[-1].digest:x}",
        )
        yield f"| {name} | {' | '.join(cells)} |"


def _rate(timing: Timing, useful: bool) -> float:
    return timing.trained_a_second if useful else timing.real_a_second


def _per_cpu(timing: Timing, useful: bool) -> float:
    """Tokens that a second of the processor does."""
    return _rate(timing, useful) * timing.step_seconds / timing.cpu_seconds


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "–"
    middle = f"{statistics.median(values):,.{digits}f}"
    return f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def machine(kind: str) -> str:
    """What this ran on, in a line."""
    import torch

    if kind != "cpu":
        return f"{torch.cuda.device_count()} × {torch.cuda.get_device_name()}"
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return f"{len(os.sched_getaffinity(0))} cores of {model}, no accelerator"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, help="a folder of SmolLM2-135M; else it is fetched")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=list(TRAINERS), default=list(TRAINERS))
    parser.add_argument("--jobs", default="", help="jobs whose names contain this")
    options = parser.parse_args()
    import torch

    folder: Path = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "timings.jsonl"
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    model = options.model or _fetched(folder)
    slug = {name: name.lower().replace(" ", "-") for name in TRAINERS}
    pythons = {n: environment(TRAINERS[n], folder / "venvs" / slug[n]) for n in options.only}
    print(f"# The engine beside other trainers, {datetime.date.today()}\n")
    print(f"`python -m benchmarks.engine FOLDER --ranks {options.ranks}`, on {machine(kind)}.")
    for name, job in jobs(folder, options.ranks, kind, model):
        if options.jobs not in name:
            continue
        print(f"\n## {name}\n", flush=True)
        for _ in range(options.rounds):
            play(options.only, name, job, folder, pythons)
        rounds = kept(file, name, options.ranks)
        print(f"{len(rounds)} rounds.\n")
        print("\n".join(table(rounds, useful=job.own_defaults)), flush=True)


def _fetched(folder: Path) -> Path:
    from wizard.demo.model import ensure_model

    return ensure_model(folder, lambda text: print(text, file=sys.stderr))


if __name__ == "__main__":
    main()
