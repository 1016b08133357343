"""Real runs on one GPU beside what was predicted of them: `gpu_check.sh` starts it.

    python -m benchmarks.gpu_check OUT [--rehearse] [--seconds 330]

Models have public shapes and random weights, made on the disk in RAM; each run is planned and run
as any other: `tunewright run --write-only`, then its run.sh. No case is begun that may not end in
time. OUT/results.json has the columns of benchmarks/points/, and what was predicted beside them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engine import ended

STEPS = 12
WARM_STEPS = 3
CASE_SECONDS = 75
"""What a case may take; one is only begun while so much is left."""
LORA_RANK = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One run."""

    model: str
    """Whose dimensions it has, as in the shipped table."""
    method: str
    length: int
    micro_batch: int
    checkpointing: bool
    accumulation: int = 1


CASES = (
    Case(model="Qwen/Qwen2.5-0.5B", method="full", length=2048, micro_batch=4, checkpointing=False),
    Case(
        model="Qwen/Qwen2.5-0.5B",
        method="lora",
        length=2048,
        micro_batch=4,
        checkpointing=True,
        accumulation=2,
    ),
    Case(model="Qwen/Qwen2.5-1.5B", method="full", length=2048, micro_batch=4, checkpointing=True),
    Case(
        model="meta-llama/Llama-3.1-8B",
        method="lora",
        length=2048,
        micro_batch=4,
        checkpointing=True,
    ),
    Case(
        model="meta-llama/Llama-3.1-8B",
        method="qlora",
        length=2048,
        micro_batch=4,
        checkpointing=True,
    ),
    Case(
        model="meta-llama/Llama-3.1-8B",
        method="lora",
        length=2048,
        micro_batch=2,
        checkpointing=False,
    ),
)
TINY = {"hidden_size": 64, "intermediate_size": 176, "num_layers": 2, "vocab_size": 512}
REHEARSED_CASES = (0, 1, 4)
"""One of each method."""
REHEARSED_SECONDS = 500
"""A rehearsal is not about time."""
REHEARSED = {"length": 64, "micro_batch": 2}


def shape_of(case: Case, *, tiny: bool) -> dict[str, Any]:
    """The dimensions of a case's model."""
    from wizard.probe import catalog

    row = catalog.model(case.model)
    assert row is not None, case.model
    names = ("hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads")
    found: dict[str, Any] = {name: int(row[name]) for name in (*names, "vocab_size")}
    if tiny:
        found |= {**TINY, "num_heads": 4, "num_kv_heads": 2}
    tied = row["tied_embeddings"] == "yes"
    return {**found, "architecture": row["architecture"], "tied": tied}


def make_model(shape: Mapping[str, Any], folder: Path, device: str) -> Path:
    """A model folder of these dimensions with random bfloat16 weights, made once."""
    if folder.exists():
        return folder
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    from tests.fakes.tiny.make import IM_END, IM_START, tokenizer

    config = AutoConfig.for_model(
        shape["architecture"],
        hidden_size=shape["hidden_size"],
        intermediate_size=shape["intermediate_size"],
        num_hidden_layers=shape["num_layers"],
        num_attention_heads=shape["num_heads"],
        num_key_value_heads=shape["num_kv_heads"],
        vocab_size=shape["vocab_size"],
        max_position_embeddings=8192,
        tie_word_embeddings=shape["tied"],
        bos_token_id=IM_START,
        eos_token_id=IM_END,
        pad_token_id=IM_END,
    )
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="4GB")
    tokenizer().save_pretrained(folder)
    return folder


def make_rows(path: Path, rows: int, tokens: int) -> Path:
    """Rows of exactly that many tokens, one for each byte; half of them are learnt."""
    from tests.fakes.tiny.make import tokenizer

    def row(asked: int) -> dict[str, Any]:
        texts = {"user": "a" * asked, "assistant": "b" * (tokens // 2)}
        return {"messages": [{"role": role, "content": text} for role, text in texts.items()]}

    made = tokenizer()
    frame = len(made.encode(made.apply_chat_template(row(1)["messages"], tokenize=False))) - 1
    path.write_text((json.dumps(row(tokens - frame)) + "\n") * rows)
    return path


def run(case: Case, model: Path, folder: Path, limit_seconds: float) -> Path:
    """Plan and run a case; its run folder.

    Raises RuntimeError with the end of what it printed.
    """
    folder.mkdir(parents=True)
    step = case.micro_batch * case.accumulation
    rows = make_rows(folder / "rows.jsonl", STEPS * step, case.length)
    settings = {
        "method": case.method,
        "dtype": "bfloat16",
        "num_devices": 1,
        "strategy": "single",
        "max_steps": STEPS,
        "max_length": case.length,
        "effective_batch_size": step,
        "per_device_train_batch_size": case.micro_batch,
        "gradient_accumulation_steps": case.accumulation,
        "gradient_checkpointing": str(case.checkpointing).lower(),
        "save_steps": 10 * STEPS,
        "optim": "adamw_torch_fused",
    }
    if case.method != "full":
        settings["lora_rank"] = LORA_RANK
    words = [word for pair in settings.items() for word in ("--set", "{}={}".format(*pair))]
    plan = [
        *(sys.executable, "-m", "wizard", "run", "--write-only", "--yes", "--no-history"),
        *("--model", str(model), "--data", str(rows), "--output", str(folder), "--name", "run"),
        *words,
    ]
    for command in (plan, ["bash", str(folder / "run/run.sh")]):
        with (folder / "output").open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            code = ended(process, limit_seconds)
        if code != 0:
            said = (folder / "output").read_text(errors="replace")[-1500:]
            how = "took too long" if code is None else f"ended with {code}"
            raise RuntimeError(f"{how}: {said}")
    return folder / "run"


def measured(run_folder: Path, case: Case, shape: Mapping[str, Any]) -> dict[str, Any]:
    """What the rank's events say of the steady steps and of memory, beside the plan."""
    from engine.events import decode_all

    events = list(decode_all((run_folder / "events/rank-00000.jsonl").read_bytes()))
    steps = [e for e in events if e["kind"] == "step"]
    hello = next(e for e in events if e["kind"] == "hello")
    lines = [e for e in steps if e["step"] > WARM_STEPS] or steps[-1:]
    seconds = sum(e["seconds"] for e in lines)
    tokens = sum(e["tokens"] for e in lines)
    plan = json.loads((run_folder / "plan.json").read_text())
    used = [e["memory_used_bytes"] for e in events if e["kind"] == "pulse"]
    name = hello["device_name"]
    flops = flops_per_token(case, shape)
    peak = peak_flops(name)
    return {
        "model": case.model,
        "method": case.method,
        "lora_rank": None if case.method == "full" else LORA_RANK,
        "seq_len": case.length,
        "per_device_batch": case.micro_batch,
        "grad_accum": case.accumulation,
        "gradient_checkpointing": case.checkpointing,
        "gpu_model": name,
        "steps": sum(e["steps"] for e in steps),
        "allocated_peak_bytes": _most(e["memory_peak_bytes"] for e in steps),
        "reserved_bytes": _most(e["memory_reserved_bytes"] for e in steps),
        "device_used_bytes": _most(used),
        "device_used_before_bytes": next((u for u in used if u is not None), None),
        "process_peak_bytes": _most(e["process_memory_peak_bytes"] for e in steps),
        "predicted": {
            "device_bytes": plan["memory"]["device_bytes"],
            "parts": {part["name"]: part["bytes"] for part in plan["memory"]["parts"]},
            "tokens_per_second": plan["tokens_per_second"],
        },
        "tok_s_per_gpu": tokens / seconds,
        "step_seconds_median": statistics.median(e["seconds"] / e["steps"] for e in lines),
        "flops_per_token": flops,
        "mfu_pct": 100 * flops * tokens / seconds / peak if peak else None,
        "versions": hello["versions"],
        "last_loss_is_finite": all(
            math.isfinite(e["loss"]) for e in events if e["kind"] == "train"
        ),
    }


def _most(values: Any) -> int | None:
    return max((value for value in values if value is not None), default=None)


def flops_per_token(case: Case, shape: Mapping[str, Any]) -> float:
    """Of forward and backward without what is computed again: 6 (full) or 4 (frozen weights) times
    the weights of the matrices, and causal attention, which has gradients either way."""
    width, mlp = shape["hidden_size"], shape["intermediate_size"]
    head = 64 if shape["hidden_size"] == 896 else shape["hidden_size"] // shape["num_heads"]
    attention, keys = head * shape["num_heads"], head * shape["num_kv_heads"]
    layer = 2 * width * attention + 2 * width * keys + 3 * width * mlp
    matrices = shape["num_layers"] * layer + shape["vocab_size"] * width / 2  # half is learnt
    passes = 6 if case.method == "full" else 4
    return passes * matrices + 6 * attention * case.length * shape["num_layers"]


def peak_flops(device: str | None) -> float | None:
    """bfloat16 FLOP/s of a known device."""
    from wizard.probe import catalog

    row = catalog.accelerator(device) if device else None
    rate = catalog.number(row, "bf16_tflops") if row else None
    return rate * 1e12 if rate else None


def cases(out: Path, *, rehearse: bool, until: float) -> Iterator[dict[str, Any]]:
    """Run what there is time for; a case that fails is told with its reason."""
    shared = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else out
    with tempfile.TemporaryDirectory(dir=shared) as models:
        for number, case in enumerate(CASES):
            if rehearse and number not in REHEARSED_CASES:
                continue
            if time.monotonic() > until:
                yield {"model": case.model, "method": case.method, "skipped": "no time was left"}
                continue
            folder = out / f"case-{number}"
            shutil.rmtree(folder, ignore_errors=True)
            shape = shape_of(case, tiny=rehearse)
            if rehearse:
                values = {name: getattr(case, name) for name in case.__slots__}
                case = Case(**{**values, **REHEARSED})
            place = Path(models) / case.model.rpartition("/")[2]
            for other in Path(models).iterdir():
                if other != place:
                    shutil.rmtree(other)
            try:
                began = time.monotonic()
                model = make_model(shape, place, "cpu" if rehearse else "cuda")
                limit = REHEARSED_SECONDS if rehearse else 2 * CASE_SECONDS
                said = measured(run(case, model, folder, limit), case, shape)
            except Exception as error:
                said = {"model": case.model, "method": case.method, "failed": str(error)}
            said["seconds"] = round(time.monotonic() - began, 1)
            print(json.dumps(said), flush=True)
            yield said


def main() -> int:
    """Write results.json; 1 where a case failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="tiny shapes on a CPU")
    parser.add_argument("--seconds", type=float, default=330)
    options = parser.parse_args()
    import torch

    if not options.rehearse and not torch.cuda.is_available():
        print("no GPU is here: --rehearse runs tiny shapes on the CPU", file=sys.stderr)
        return 1
    until = time.monotonic() + options.seconds - CASE_SECONDS
    found = list(cases(options.out.absolute(), rehearse=options.rehearse, until=until))
    result = {
        "date": datetime.date.today().isoformat(),
        "rehearsal": options.rehearse,
        "device": None if options.rehearse else torch.cuda.get_device_name(),
        "driver_cuda": torch.version.cuda,
        "cases": found,
    }
    (options.out / "results.json").write_text(json.dumps(result, indent=1) + "\n")
    return int(any("failed" in case for case in found))


if __name__ == "__main__":
    sys.exit(main())
