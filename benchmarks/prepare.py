"""How fast data is prepared, and in how much memory: `python -m benchmarks.prepare --model M`.

Writes JSON Lines files of the asked sizes with rows of mixed lengths, and prepares them with one
process and with as many as there are cores, in turns. It prints MB, rows and tokens a second,
the ratio, and the most memory that all processes together held. With `--beside`, `datasets.map`
makes tokens of the smallest file with as many processes: without checks, loss mask or report. Times
from a shared machine vary: compare processor time, or turns that stood side by side.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
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
from engine import lean, prepare, tokenise
lean.only_tokenizers()
processes = int(sys.argv[2])
tokenise.processes_for = lambda size: processes
report = prepare.prepare(prepare.read_spec(Path("spec.toml")), Path(sys.argv[1]))
print(json.dumps({k: report[k] for k in ("rows", "kept", "total_tokens", "lengths")}))
"""


BESIDE = """
import json, sys
from pathlib import Path
from datasets import load_dataset
from datasets.utils.logging import disable_progress_bar
from engine.prepare import load_tokenizer
folder, processes = Path(sys.argv[1]), int(sys.argv[2])
disable_progress_bar()
tokenizer = load_tokenizer(Path(sys.argv[3]))
rows = load_dataset("json", data_files=sys.argv[4], split="train", cache_dir=str(folder))
def tokens(row):
    ids = tokenizer.apply_chat_template(row["messages"], tokenize=True, return_dict=True)
    return {"input_ids": ids["input_ids"]}
made = rows.map(tokens, num_proc=processes, remove_columns=rows.column_names)
print(json.dumps({"rows": len(made), "total_tokens": sum(map(len, made["input_ids"]))}))
"""


def rows(size_bytes: int, answer_texts: int | None = None) -> Iterator[str]:
    """Lines of conversations until there are as many bytes; the same ones each time.

    An answer is made of `answer_texts` sentences or so; of few or some when None.
    """
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
            said = " ".join(chance.choices(texts, k=answer_texts or chance.choice((1, 2, 4, 8))))
            turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": said}]
        line = json.dumps({"messages": turns}, ensure_ascii=False) + "\n"
        written += len(line.encode())
        yield line


def spec(folder: Path, model: Path, data: Path, max_length: int) -> None:
    """The run folder that preparing needs: a spec and a fetched model."""
    from engine.record import write_json
    from engine.spec import Spec, dumps

    folder.mkdir(parents=True)
    made = Spec.model_validate(
        {
            "model": {"model": str(model)},
            "data": {"data": str(data), "max_length": max_length},
            "method": {"method": "lora"},
            "parallel": {"strategy": "single", "device_kind": "cpu"},
            "training": {"effective_batch_size": 1},
        }
    )
    (folder / "spec.toml").write_text(dumps(made), encoding="utf-8")
    where = {"path": str(model), "revision": None, "source": "local"}
    write_json(folder / "fetched.json", where)


def measured(code: str, folder: Path, processes: int, *words: str) -> dict[str, Any]:
    """One preparation in a process of its own: seconds, processor time, tokens, most memory."""
    began, used = time.monotonic(), _processor_seconds()
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", code, str(folder), str(processes), *words]
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    held = []
    while child.poll() is None:
        held.append(_memory_bytes(child.pid))
        time.sleep(SAMPLE_SECONDS)
    seconds = time.monotonic() - began
    assert child.stdout is not None
    if child.returncode:
        raise SystemExit(f"preparing failed with {child.returncode}")
    said = json.loads(child.stdout.read().strip().splitlines()[-1])
    own = _processor_seconds() - used
    return {**said, "seconds": seconds, "processor_seconds": own, "memory_bytes": held}


def _processor_seconds() -> float:
    """Of all children that have ended, theirs included."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def _memory_bytes(pid: int) -> int:
    """Memory of a process and its children; pages that they share count once (PSS)."""
    try:
        parent = psutil.Process(pid)
        found = [parent, *parent.children(recursive=True)]
        return sum(int(p.memory_full_info().pss) for p in found)
    except psutil.Error:
        return 0


def tell(what: str, megabytes: float, found: dict[str, Any]) -> None:
    """Print one measurement."""
    seconds, held = found["seconds"], found["memory_bytes"]
    parts = [held[len(held) * n // 10 : len(held) * (n + 1) // 10] for n in range(10)]
    tenths = ", ".join(f"{max(part) / MEGABYTE:,.0f}" for part in parts if part)
    print(
        f"{what}: {megabytes:,.0f} MB in {seconds:.1f} s ({found['processor_seconds']:.1f} s of "
        f"processor time), {megabytes / seconds:.2f} MB/s, {found['rows'] / seconds:,.0f} rows/s, "
        f"{found['total_tokens'] / seconds:,.0f} tokens/s, "
        f"at most {max(held) / MEGABYTE:,.0f} MB of memory; in each tenth of the time: {tenths}",
        flush=True,
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a folder with a tokenizer")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[100])
    parser.add_argument("--processes", type=int, nargs="+", default=[1, psutil.cpu_count() or 1])
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--answer-texts", type=int, help="sentences of an answer; else 1 to 8")
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--folder", type=Path, help="where the files are written meanwhile")
    parser.add_argument("--beside", action="store_true", help="datasets.map, too")
    options = parser.parse_args()
    model = options.model.absolute()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        root = Path(name)
        for megabytes in options.megabytes:
            data = root / f"{megabytes}.jsonl"
            with data.open("w", encoding="utf-8") as file:
                file.writelines(rows(megabytes * MEGABYTE, options.answer_texts))
            beside = options.beside and megabytes == min(options.megabytes)
            one_size(root / str(megabytes), model, data, options, beside=beside)
            data.unlink()


def one_size(
    root: Path, model: Path, data: Path, options: argparse.Namespace, *, beside: bool
) -> None:
    """Prepare one file in every way, in turns; the ratios to the first way."""
    size = data.stat().st_size / MEGABYTE
    seconds: dict[str, list[tuple[float, float]]] = {}
    for turn in range(options.turns):
        for processes in options.processes:
            # Each has a folder of its own: one beside the other would take its rows over.
            run = root / f"{processes}-{turn}" / "run"
            spec(run, model, data, options.max_length)
            ways = {f"{processes} processes": measured(CHILD, run, processes)}
            if beside:
                there = root / f"beside-{processes}-{turn}"
                said = measured(BESIDE, there, processes, str(model), str(data))
                ways[f"datasets.map, {processes} processes"] = said
            for what, found in ways.items():
                tell(what, size, found)
                both = found["seconds"], found["processor_seconds"]
                seconds.setdefault(what, []).append(both)
    first, *others = seconds
    for other in others:
        pairs = [*zip(seconds[first], seconds[other], strict=True)]
        clock, own = ([b[n] / a[n] for a, b in pairs] for n in (0, 1))
        print(
            f"{other}: {min(clock):.2f} to {max(clock):.2f} × the seconds of {first}, "
            f"{min(own):.2f} to {max(own):.2f} × its processor time"
        )


if __name__ == "__main__":
    main()
