"""How fast data is prepared, and in how much memory: `python benchmarks/prepare.py --model M`.

Writes a JSON Lines file of the asked size with rows of mixed lengths, prepares it with one process
and with as many as there are cores, in turns, and prints megabytes, rows and tokens a second, the
ratio, and the most memory that all processes together held. Times from a shared machine vary:
the ratio of turns that stood side by side is what to compare.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

MEGABYTE = 1_000_000
WORDS = Path(__file__).parent.parent / "presets" / "data" / "ordinary-en.jsonl"
SAMPLE_SECONDS = 0.25
CHILD = """
import json, sys
from pathlib import Path
from engine import prepare, tokenise
processes = int(sys.argv[2])
tokenise.processes_for = lambda size: processes
report = prepare.prepare(prepare.read_spec(Path("spec.toml")), Path(sys.argv[1]))
print(json.dumps({k: report[k] for k in ("rows", "kept", "total_tokens", "lengths")}))
"""


def rows(size_bytes: int) -> Iterator[str]:
    """Lines of conversations until there are as many bytes; the same ones each time."""
    chance = random.Random(0)
    texts = [
        turn["content"]
        for line in WORDS.read_text(encoding="utf-8").splitlines()
        for turn in json.loads(line)["messages"]
    ]
    written = 0
    while written < size_bytes:
        turns = []
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            asked = " ".join(chance.choices(texts, k=chance.choice((1, 1, 2))))
            said = " ".join(chance.choices(texts, k=chance.choice((1, 2, 4, 8))))
            turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
        line = json.dumps({"messages": turns}, ensure_ascii=False) + "\n"
        written += len(line.encode())
        yield line


def spec(folder: Path, model: Path, data: Path) -> None:
    """The run folder that preparing needs: a spec and a fetched model."""
    from engine.record import write_json
    from engine.spec import Spec, dumps

    folder.mkdir(parents=True)
    made = Spec.model_validate(
        {
            "model": {"model": str(model)},
            "data": {"data": str(data), "max_length": 2048},
            "method": {"method": "lora"},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
    )
    (folder / "spec.toml").write_text(dumps(made), encoding="utf-8")
    where = {"path": str(model), "revision": None, "source": "local"}
    write_json(folder / "fetched.json", where)


def measured(folder: Path, processes: int) -> dict[str, Any]:
    """One preparation in a process of its own: seconds, rows, tokens, most memory."""
    began = time.monotonic()
    command = [sys.executable, "-c", CHILD, str(folder), str(processes)]
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    most = 0
    while child.poll() is None:
        most = max(most, _memory_bytes(child.pid))
        time.sleep(SAMPLE_SECONDS)
    seconds = time.monotonic() - began
    assert child.stdout is not None
    if child.returncode:
        raise SystemExit(f"preparing failed with {child.returncode}")
    said = json.loads(child.stdout.read().strip().splitlines()[-1])
    return {**said, "processes": processes, "seconds": seconds, "memory_bytes": most}


def _memory_bytes(pid: int) -> int:
    """Memory of a process and its children; pages that they share count once (PSS)."""
    try:
        parent = psutil.Process(pid)
        found = [parent, *parent.children(recursive=True)]
        return sum(int(p.memory_full_info().pss) for p in found)
    except psutil.Error:
        return 0


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a folder with a tokenizer")
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, psutil.cpu_count() or 1])
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "rows.jsonl"
        with data.open("w", encoding="utf-8") as file:
            file.writelines(rows(options.megabytes * MEGABYTE))
        size = data.stat().st_size / MEGABYTE
        seconds: dict[int, list[float]] = {}
        for turn in range(options.turns):
            for processes in options.processes:
                # Each has a folder of its own: one beside the other would take its rows over.
                run = folder / f"{processes}-{turn}" / "run"
                spec(run, options.model.absolute(), data)
                found = measured(run, processes)
                seconds.setdefault(processes, []).append(found["seconds"])
                print(
                    f"{processes} processes: {size:,.0f} MB in {found['seconds']:.1f} s, "
                    f"{size / found['seconds']:.2f} MB/s, "
                    f"{found['rows'] / found['seconds']:,.0f} rows/s, "
                    f"{found['total_tokens'] / found['seconds']:,.0f} tokens/s, "
                    f"at most {found['memory_bytes'] / MEGABYTE:,.0f} MB of memory",
                    flush=True,
                )
        first, *others = options.processes
        for other in others:
            ratios = [a / b for a, b in zip(seconds[first], seconds[other], strict=True)]
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{other} processes are {spread} × as fast as {first}")


if __name__ == "__main__":
    main()
