"""A set larger than memory trains, is killed and goes on: `benchmarks/larger_than_memory.py`.

Two CPU ranks of a tiny model train on prepared rows of which a control group (cgroup v1, memory)
may hold only a part. Every row begins with its own number; what each rank learnt is written down.
Half way through, all ranks are killed; `--resume` goes on from the checkpoint. Printed: size of
the rows, the limit, the most memory the group held and how much of it no file backs, and whether
the rows learnt are those of a run that nobody killed, each once. Needs the right to make a group.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

GROUPS = Path("/sys/fs/cgroup/memory")
MEBIBYTE = 1024**2
TOKENS = 512
ROWS_PER_BATCH = 4096
EFFECTIVE_BATCH = 32
TRAIN = """
import json, os, sys
from trl import SFTTrainer
learn = SFTTrainer.compute_loss
def witnessed(self, model, inputs, *others, **named):
    rows = [int("".join(f"{n:02x}" for n in row[:4].tolist()), 16) for row in inputs["input_ids"]]
    with open(f"witness-{os.environ['RANK']}.jsonl", "a") as file:
        file.write(json.dumps([self.state.global_step + 1, rows]) + chr(10))
    return learn(self, model, inputs, *others, **named)
SFTTrainer.compute_loss = witnessed
from engine.train import main
sys.exit(main())
"""


def write_rows(path: Path, count: int) -> None:
    """Prepared rows of random tokens, each beginning with its number."""
    import pyarrow as pa

    from engine.tokenise import schema

    chance = np.random.default_rng(0)
    layout = schema(("input_ids", "labels"))
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, layout) as stream:
        for first in range(0, count, ROWS_PER_BATCH):
            numbers = np.arange(first, min(first + ROWS_PER_BATCH, count), dtype=">u4")
            ids = chance.integers(0, 256, (len(numbers), TOKENS), dtype=np.int32)
            ids[:, :4] = numbers.view(np.uint8).reshape(-1, 4)
            offsets = pa.array(np.arange(0, ids.size + 1, TOKENS, dtype=np.int32))
            column = pa.ListArray.from_arrays(offsets, pa.array(ids.ravel()))
            stream.write_batch(pa.record_batch([column, column], schema=layout))


def make_run(folder: Path, model: Path, count: int, steps: int) -> None:
    """A run folder whose rows are prepared."""
    from engine.record import write_json
    from engine.spec import Spec, dumps

    spec = {
        "model": {"model": str(model), "dtype": "float32"},
        "data": {"data": "rows.jsonl", "max_length": TOKENS},
        "method": {"method": "full"},
        "parallel": {"strategy": "ddp", "device_kind": "cpu", "num_devices": 2},
        "training": {
            "effective_batch_size": EFFECTIVE_BATCH,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": EFFECTIVE_BATCH // 8,
            "gradient_checkpointing": False,
            "max_steps": steps,
            "save_steps": 5,
        },
    }
    (folder / "prepared").mkdir(parents=True)
    (folder / "spec.toml").write_text(dumps(Spec.model_validate(spec)), encoding="utf-8")
    (folder / "train.py").write_text(TRAIN, encoding="utf-8")
    write_json(folder / "fetched.json", {"path": str(model), "revision": None, "source": "local"})
    said = {"data_hash": "0", "examples": count, "kept": count, "cut_rows": 0}
    write_json(folder / "prepared/report.json", said)


class Group:
    """A control group of this machine that may hold so much memory."""

    def __init__(self, limit_bytes: int) -> None:
        own = next(
            line.split(":", 2)[2].strip()
            for line in Path("/proc/self/cgroup").read_text().splitlines()
            if ":memory:" in line
        )
        self.folder = GROUPS / own.strip("/") / f"tunewright-{os.getpid()}"
        if not self.folder.parent.is_dir():
            self.folder = GROUPS / f"tunewright-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / "memory.limit_in_bytes").write_text(str(limit_bytes))

    def start(self, command: list[str], folder: Path) -> subprocess.Popen[bytes]:
        """Start a command in the group."""
        join = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
        log = (folder / "log").open("ab")
        return subprocess.Popen(
            ["bash", "-c", join, str(self.folder), *command],
            cwd=folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def read(self, name: str) -> int:
        """One of the kernel's numbers."""
        return int((self.folder / name).read_text())

    def stat(self, name: str) -> int:
        """One of the kernel's statistics, in bytes."""
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.split()[0] == name))

    def kill(self) -> None:
        """End all that is in it, at once."""
        while found := (self.folder / "cgroup.procs").read_text().split():
            for pid in found:
                os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.1)

    def remove(self) -> None:
        """Take the group away."""
        self.kill()
        self.folder.rmdir()


def train(group: Group, folder: Path, *words: str, kill_at: int | None = None) -> int:
    """Train in the group, killed when a step is reached; the most anonymous memory seen."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "train.py", "spec.toml", *words]
    child, most = group.start(command, folder), 0
    while child.poll() is None:
        most = max(most, group.stat("total_rss"))
        if kill_at is not None and steps_made(folder) >= kill_at:
            group.kill()
        time.sleep(0.2)
    if child.returncode and kill_at is None:
        raise SystemExit((folder / "log").read_text()[-3000:])
    return most


def steps_made(folder: Path) -> int:
    """The last step that a rank has begun."""
    lines = [f.read_text().splitlines() for f in folder.glob("witness-*.jsonl")]
    return max((json.loads(line[-1])[0] for line in lines if line), default=0)


def learnt(folder: Path) -> dict[int, list[int]]:
    """Step → numbers of the rows that all ranks learnt in it, the last time it was made."""
    found: dict[int, list[int]] = {}
    for file in sorted(folder.glob("witness-*.jsonl")):
        own: dict[int, list[list[int]]] = {}
        for line in file.read_text().splitlines():
            step, rows = json.loads(line)
            own.setdefault(step, []).append(rows)
        for step, batches in own.items():
            last = batches[-EFFECTIVE_BATCH // 8 :]
            found[step] = sorted([*found.get(step, []), *(n for rows in last for n in rows)])
    return found


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows-mebibytes", type=int, default=4096)
    parser.add_argument("--limit-mebibytes", type=int, default=1536)
    parser.add_argument("--steps", type=int, default=30)
    options = parser.parse_args()
    from tests.fakes.tiny import make

    count = options.rows_mebibytes * MEBIBYTE // (TOKENS * 8)
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        model = make.model_folder(root / "model")
        rows = root / "rows.arrow"
        write_rows(rows, count)
        for kind in ("unbroken", "killed"):
            folder = root / kind
            make_run(folder, model, count, options.steps)
            os.link(rows, folder / "prepared/rows.arrow")
            group = Group(options.limit_mebibytes * MEBIBYTE)
            try:
                began = time.monotonic()
                if kind == "killed":
                    train(group, folder, kill_at=options.steps // 2)
                most = train(group, folder, *(["--resume"] if kind == "killed" else []))
                results[kind] = {
                    "rows": learnt(folder),
                    "rss": most,
                    "held": group.read("memory.max_usage_in_bytes"),
                    "full": group.read("memory.failcnt"),
                    "seconds": time.monotonic() - began,
                }
            finally:
                group.remove()
            shutil.rmtree(folder)
    report(count, options, results)


def report(count: int, options: argparse.Namespace, results: dict[str, Any]) -> None:
    """Print the lines of docs/results."""
    size = count * TOKENS * 8 / MEBIBYTE
    print(f"{count:,} rows, {size:,.0f} MiB; the group may hold {options.limit_mebibytes:,} MiB")
    for kind, one in results.items():
        print(
            f"{kind}: {len(one['rows'])} steps in {one['seconds']:.0f} s; the group held at most "
            f"{one['held'] / MEBIBYTE:,.0f} MiB (its limit was met {one['full']:,} times), of "
            f"which {one['rss'] / MEBIBYTE:,.0f} MiB were the processes' own"
        )
    same = results["killed"]["rows"] == results["unbroken"]["rows"]
    times = Counter(n for rows in results["killed"]["rows"].values() for n in rows)
    print(f"rows of each step as in the unbroken run: {same}")
    print(f"{len(times):,} rows learnt, each at most {max(times.values())} time")


if __name__ == "__main__":
    main()
