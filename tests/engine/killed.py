"""Runs that are killed at a chosen moment and resumed: torchrun and the watch, imports paid once.

One process imports the libraries and forks every torchrun, which forks its ranks: they are
processes of their own and die by a real SIGKILL, but start in a second instead of ten.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from engine.record import read_json, write_json
from engine.spec import loads
from tests.engine.conftest import Run
from tests.engine.together import keep_rows

HOWS = ("rank", "torchrun", "group")
"""Who is killed: one rank, torchrun alone, or it and its ranks at once."""
PLACES = ("step", "step", "step", "weights", "optimizer", "writing", "mark", "removal", "model")
"""Where: in a step; in a save once the weights, once the optimizer's state, at any moment, before
the checkpoint is marked, once it is; and when the model is written and not yet in its place."""
SECONDS = 500
SLOW_SECONDS = 0.05
"""What a micro-batch waits where torchrun is to be killed."""
ORPHAN_SECONDS = 1.0
"""What it waits once torchrun is: its ranks live until the watch sees it, five times a second."""
REAPED_SECONDS = 30.0
"""Until init has reaped what has no parent any more; a loaded machine takes its time."""
PR_SET_PDEATHSIG = 1
LIBRARIES = (
    *("datasets", "deepspeed", "deepspeed.ops.op_builder.all_ops", "peft.tuners.lora.bnb"),
    *("transformers.models.llama.modeling_llama", "transformers.integrations.bitsandbytes"),
    *("torch.distributed.launcher.api", "engine.save", "engine.recipes.sft"),
)
"""What ranks import of what does not look at which rank it is in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """Who is killed, where, and how often the run saves."""

    how: str
    place: str
    step: int
    micro_batch: int
    rank: int
    save_steps: int
    seconds: float
    """From the beginning of a save to the kill, for a kill at any moment of it."""

    def __str__(self) -> str:
        where = {
            "step": f"in step {self.step}, micro-batch {self.micro_batch + 1}",
            "weights": f"saving step {self.step}, weights written",
            "optimizer": f"saving step {self.step}, optimizer written",
            "writing": f"saving step {self.step}, after {1000 * self.seconds:.0f} ms",
            "mark": f"saving step {self.step}, not marked yet",
            "removal": f"saving step {self.step}, marked, older ones not removed",
            "model": "model written, not in its place",
        }
        whom = f"rank {self.rank}" if self.how == "rank" else self.how
        return f"{whom}, {where[self.place]}"

    def checkpoint(self) -> int | None:
        """The step that is gone on from, 0 for the first; None where that is a matter of luck."""
        if self.how == "torchrun" or self.place == "writing":
            return None
        if self.place in ("removal", "model"):
            return self.step
        return (self.step - 1) // self.save_steps * self.save_steps


@dataclass(frozen=True, kw_only=True, slots=True)
class Killed:
    """A run that was killed and then resumed, beside one that was not."""

    straight: Run
    run: Run
    kill: Kill

    def said(self) -> str:
        """A line of the table in docs/results."""
        how, spec = self.run.read("killed.json"), loads((self.run.folder / "spec.toml").read_text())
        kept = spec.parallel.offload
        offload = "" if kept == "none" else f", {kept} offloaded"
        watch = "–" if how["watch"] is None else f"{how['watch']} `{how['failure']}`"
        return (
            f"| {spec.parallel.strategy}, {spec.method.method}{offload} | {self.kill} "
            f"| {self.kill.save_steps} | {watch} | {self.from_step()} |"
        )

    def from_step(self) -> int:
        """The step of the checkpoint that was gone on from; the last where nothing was left."""
        last = max(self.straight.losses())
        return min(self.run.losses(1), default=last + 1) - 1


def kills(number: int, ranks: int, steps: int, micro_batches: int, seed: int) -> Iterator[Kill]:
    """Kills of runs of so many ranks and steps, at random but the same for the same seed."""
    dice = random.Random(seed)
    for count in range(number):
        how, place = HOWS[(seed + count) % len(HOWS)], dice.choice(PLACES)
        save_steps = dice.randint(1, steps - 1)
        saved = [step for step in range(1, steps + 1) if step % save_steps == 0 or step == steps]
        step = {"step": dice.randint(1, steps), "model": steps}.get(place, dice.choice(saved))
        yield Kill(
            how=how,
            place=place,
            step=step,
            micro_batch=dice.randrange(micro_batches),
            rank=0 if place in ("removal", "model") else dice.randrange(ranks),
            save_steps=save_steps,
            seconds=round(dice.uniform(0, 0.2), 3),
        )


def kill_all(runs: Iterable[tuple[Path, int, Kill]]) -> str:
    """Start each run (folder, ranks), kill it, and resume it; what the one that does it printed.

    Fails where that one itself did not come to its end.
    """
    cases = [[str(folder), ranks, asdict(kill)] for folder, ranks, kill in runs]
    done = subprocess.run(
        [sys.executable, "-m", __name__, json.dumps(cases)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stdout)
    return done.stdout


class Killer:
    """Waits in a rank for the moment, and sends SIGKILL."""

    def __init__(self, kill: Kill, rank: int) -> None:
        self.kill = kill
        self.mine = rank == kill.rank
        self.micro_batches = 0
        self.torchrun = os.getppid()

    def at(self, place: str, step: int) -> None:
        """The rank has come to a place; does not return where it is the one that dies here."""
        kill = self.kill
        if self.mine and (place, step) == (kill.place, kill.step):
            self.strike()

    def strike(self) -> None:
        """Kill those who are to be killed."""
        if self.kill.how == "torchrun":
            self.mine = False
            os.kill(os.getppid(), signal.SIGKILL)
        elif self.kill.how == "group":
            os.killpg(0, signal.SIGKILL)
        else:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Stand at every place of the trainer and of what saves."""
        from transformers import Trainer

        from engine import save

        step, self.before = Trainer.training_step, 0

        def training_step(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            number = trainer.state.global_step + 1
            self.micro_batches = self.micro_batches + 1 if number == self.before else 0
            self.before = number
            if self.kill.how == "torchrun":
                is_orphan = os.getppid() != self.torchrun
                time.sleep(ORPHAN_SECONDS if is_orphan else SLOW_SECONDS)
            if self.micro_batches == self.kill.micro_batch:
                self.at("step", number)
            return step(trainer, *args, **kwargs)

        Trainer.training_step = training_step
        self._before(Trainer, "_save_checkpoint", "writing")
        self._before(Trainer, "_save_optimizer_and_scheduler", "weights")
        self._before(Trainer, "_save_rng_state", "optimizer")
        on_save, remove, write = save.Checkpoints.on_save, save._remove_old, save.write_weights

        def marking(self_: Any, args: Any, state: Any, *rest: Any, **more: Any) -> None:
            self.at("mark", state.global_step)
            self.saved = state.global_step
            on_save(self_, args, state, *rest, **more)

        def removing(*args: Any, **more: Any) -> None:
            self.at("removal", self.saved)
            remove(*args, **more)

        def writing(trainer: Any, *args: Any) -> None:
            write(trainer, *args)
            self.at("model", trainer.state.global_step)

        changed: Any = save
        changed.Checkpoints.on_save = marking
        changed._remove_old, changed.write_weights = removing, writing

    def _before(self, trainer: Any, name: str, place: str) -> None:
        whole = getattr(trainer, name)

        def wrapped(self_: Any, *args: Any, **kwargs: Any) -> Any:
            here = (place, self_.state.global_step) == (self.kill.place, self.kill.step)
            if place == "writing" and here and self.mine:
                threading.Timer(self.kill.seconds, self.strike).start()
            elif place != "writing":
                self.at(place, self_.state.global_step)
            return whole(self_, *args, **kwargs)

        setattr(trainer, name, wrapped)


def rank(folder: str, kill: Kill | None) -> None:
    """One rank: `engine.train` in the folder, until the moment; without one it resumes the run."""
    # torch ends ranks that are functions with their parent; those that are programs live on.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0)
    os.chdir(folder)
    sys.argv = ["engine.train", "spec.toml", *(() if kill else ("--resume", "--attempt", "1"))]
    from engine import shard, train

    shard.PERSISTENT_ELEMENTS = 0
    keep_rows()
    if kill:
        Killer(kill, train.RANK).install()
    status = train.main()
    sys.stdout.flush()
    sys.stderr.flush()
    if status:
        os._exit(status)


def torchrun(folder: str, ranks: int, kill: Kill | None) -> int:
    """What torchrun does for one machine, with ranks that are forked."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id=Path(folder).name,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        start_method="fork",
    )
    elastic_launch(config, rank)(folder, kill)
    return 0


def watch(folder: str, pid: int, ranks: int) -> int:
    """The watch that run.sh starts beside it."""
    from engine.watch import main

    return main(
        [
            *("--run", folder, "stage", "--phase", "training"),
            *("--pid", str(pid), "--ranks", str(ranks)),
        ]
    )


def fork(body: Any, log: Path, *args: Any) -> int:
    """Run a function in a process and group of its own, which prints into a file; its pid."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.setpgid(0, 0)
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        status = body(*args)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def killed(folder: str, ranks: int, kill: Kill) -> dict[str, Any]:
    """Start a run, wait until it is dead; how torchrun ended, and what the watch said.

    The whole group has no watch: that is in it too.
    """
    logs = Path(folder) / "logs"
    logs.mkdir(exist_ok=True)
    launcher = fork(torchrun, logs / "0-training.log", folder, ranks, kill)
    code = None
    if kill.how == "group":
        status = os.waitpid(launcher, 0)[1]
    else:
        watching = fork(watch, logs / "launcher.log", folder, launcher, ranks)
        status = os.waitpid(launcher, 0)[1]
        code = os.waitstatus_to_exitcode(os.waitpid(watching, 0)[1])
    said = read_json(Path(folder) / "state.json")
    return {
        "left": is_alive(launcher),
        "torchrun": os.waitstatus_to_exitcode(status),
        "watch": code,
        **{name: said.get(name) for name in ("failure", "failed_rank", "message")},
    }


def is_alive(group: int) -> bool:
    """Whether any process of a group that is to be gone still lives, which ends it."""
    until = time.monotonic() + REAPED_SECONDS
    try:
        while time.monotonic() < until:
            os.killpg(group, 0)
            time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def import_libraries() -> None:
    """Once, so that no rank has to."""
    for name in LIBRARIES:
        importlib.import_module(name)


def main() -> None:
    """Kill the runs that the one argument says and resume them, one after the other."""
    import_libraries()
    for folder, ranks, kill in json.loads(sys.argv[1]):
        began = time.monotonic()
        said = killed(folder, ranks, Kill(**kill))
        write_json(Path(folder) / "killed.json", said)
        log = Path(folder) / "logs/1-training.log"
        status = os.waitpid(fork(torchrun, log, folder, ranks, None), 0)[1]
        code, seconds = os.waitstatus_to_exitcode(status), time.monotonic() - began
        print(f"{Path(folder).name}: resumed, {code}, after {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
