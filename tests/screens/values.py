"""A machine, a model, a data file, plans and a run, as fixed values for screens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from engine.methods import MethodTable
from engine.spec import DataTable, ModelTable, ParallelTable, Spec, TrainingTable
from wizard.answers import Answers
from wizard.dashboard.state import RunState, fold
from wizard.facts import GIB, Dataset, Device, Facts, Host, KnownModel, Model, Software
from wizard.plan import Decision, Memory, MemoryPart, Plan
from wizard.problem import Problem
from wizard.screens.verbs import Machines

NOW = 1_800_000_000.0
HOSTILE = "[/bold] [red]x \x1b[31m\n\r\x07\u202e{}' ; $(id)"

HOST = Host(
    hostname="bench",
    system="Linux 6.8",
    cpu_name="AMD EPYC 7763 64-Core Processor",
    cpu_cores=32,
    memory_total_bytes=256 * GIB,
    memory_available_bytes=240 * GIB,
    disk_path="/data",
    disk_free_bytes=800 * GIB,
)
SOFTWARE = Software(
    python="3.11.7",
    versions={
        "torch": "2.13.0+cu130",
        "transformers": "5.24.0",
        "trl": "1.16.0",
        "peft": "0.21.0",
        "deepspeed": None,
        "bitsandbytes": "0.50.0",
    },
    driver="580.65.06",
    cuda="13.0",
)
MODEL = Model(
    name="Qwen/Qwen3-8B",
    path=None,
    architecture="qwen3",
    parameters=8_190_735_360,
    embedding_parameters=622_329_856,
    hidden_size=4096,
    intermediate_size=12288,
    num_layers=36,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=151_936,
    max_positions=40_960,
    tied_embeddings=False,
    dtype="bfloat16",
    has_chat_template=True,
    disk_bytes=16_381_470_720,
    licence="apache-2.0",
    source="shipped table",
)
KNOWN = (
    KnownModel(name="./my-model", on_disk=True),
    KnownModel(
        name="Qwen/Qwen3-8B", parameters=8_190_735_360, licence="apache-2.0", kind="instruct"
    ),
    KnownModel(
        name="meta-llama/Llama-3.1-8B",
        parameters=8_030_261_248,
        licence="llama3.1",
        gated=True,
        kind="base",
    ),
)
DATASET = Dataset(
    path="/data/train.jsonl",
    format="messages",
    rows=1200,
    dropped_rows=2,
    disk_bytes=1_400_000,
    longest_row_chars=5210,
    total_chars=900_000,
    problems=(
        Problem(what="no assistant turn", where="line 118", severity="warning"),
        Problem(what="not JSON: trailing comma", where="line 204", severity="warning"),
    ),
    first_rows=(
        {
            "messages": [
                {"role": "user", "content": "How do I list open ports on Linux?"},
                {"role": "assistant", "content": "Use `ss -tulpn`.\nIt shows [listening] sockets."},
            ]
        },
    ),
)


def _said_sample(line: int, question: str, answer: str) -> dict[str, Any]:
    """A row as `engine.preview` tells it; a word is a token."""
    context = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    learnt = f"{answer}<|im_end|>"
    words = [(word, False) for word in context.split(" ")] + [(w, True) for w in learnt.split(" ")]
    return {
        "kind": "sample",
        "file": "/data/train.jsonl",
        "unit": "line",
        "line": line,
        "format": "messages",
        "turns": 2,
        "tokens": len(words),
        "length": len(words),
        "trained": len(learnt.split(" ")),
        "cut": False,
        "row": {"messages": [{"role": "user", "content": question}]},
        "pieces": [{"text": context, "learnt": False}, {"text": learnt, "learnt": True}],
        "ids": [[900 + number, word, on] for number, (word, on) in enumerate(words)],
    }


SAID: tuple[dict[str, Any], ...] = (
    _said_sample(1, "How do I list open ports on Linux?", "Use `ss -tulpn`.\nIt shows sockets."),
    _said_sample(2, "And on a Mac?", "Use `lsof -i -P`."),
    {"kind": "problem", "file": "/data/train.jsonl", "unit": "line", "line": 118,
     "reason": "no assistant turn: there is nothing to learn"},
    {"kind": "problem", "file": "/data/train.jsonl", "unit": "line", "line": 204,
     "reason": "not JSON: trailing comma"},
    {"kind": "warning", "text": "3 answers are cut: they do not teach to stop"},
    {
        "kind": "report", "rows": 1202, "kept": 1200, "dropped_rows": 2, "cut_rows": 3,
        "whole_lengths": {"min": 20, "p50": 190, "p90": 610, "p95": 820, "p99": 1400, "max": 2100},
        "histogram": [
            {"over": 0, "upto": 128, "rows": 310}, {"over": 128, "upto": 256, "rows": 520},
            {"over": 256, "upto": 512, "rows": 240}, {"over": 512, "upto": 1024, "rows": 100},
            {"over": 1024, "upto": 2048, "rows": 27}, {"over": 2048, "upto": 4096, "rows": 3},
        ],
        "cuts": {"128": 890, "256": 370, "512": 130, "1024": 30, "2048": 3, "4096": 0},
        "total_tokens": 301_000, "trained_tokens": 207_000, "usable": True, "reason": None,
    },
)  # fmt: skip
"""What the child says of that file."""
ANSWERS = Answers(model=MODEL.name, data=DATASET.path)


def device(index: int, name: str = "NVIDIA GeForce RTX 4090") -> Device:
    return Device(
        kind="cuda",
        index=index,
        name=name,
        uuid=f"GPU-{index}",
        memory_total_bytes=24 * GIB,
        memory_free_bytes=int(23.4 * GIB),
        compute_capability=(8, 9),
        bf16_native=True,
        memory_bandwidth_gbs=1008.0,
        bf16_tflops=165.2,
        source="nvml",
    )


MACHINE = Facts(
    devices=(device(0), device(1)),
    host=HOST,
    software=SOFTWARE,
    problems=(
        Problem(
            what="a display uses device 0",
            fix="leave some of its memory free",
            severity="warning",
        ),
    ),
)
FACTS = replace(MACHINE, model=MODEL, dataset=DATASET)
MACHINES = Machines(
    snapshots=("8xH100-SXM", "4xA10G"),
    devices=("NVIDIA L40S", "NVIDIA H100 80GB HBM3"),
    sold_with=lambda text: ("NVIDIA L40S",) if text == "48" else (),
    find=lambda name: replace(MACHINE, machine=name),
)


def plan(title: str, parts_gib: dict[str, float], method: str = "lora", **parallel: Any) -> Plan:
    """A plan for two devices of 22.1 GiB, as the planner would make it."""
    spec = Spec(
        model=ModelTable(model=MODEL.name),
        data=DataTable(data=DATASET.path),
        method=MethodTable.model_validate({"method": method}),
        parallel=ParallelTable.model_validate(
            {"strategy": "ddp", "device_kind": "cuda", "num_devices": 2, **parallel}
        ),
        training=TrainingTable(effective_batch_size=16, gradient_accumulation_steps=8),
    )
    parts = tuple(
        MemoryPart(name=name, bytes=int(size * GIB), formula=f"{size} GiB, as measured")
        for name, size in parts_gib.items()
    )
    return Plan(
        title=title,
        spec=spec,
        decisions=(
            Decision(setting="learning_rate", value=1e-4, reason="the usual rate for LoRA"),
            Decision(setting="num_train_epochs", value=3.0, reason="1,200 rows: seen three times"),
            Decision(setting="max_length", value=1024, reason="no row is longer"),
        ),
        memory=Memory(
            parts=parts,
            device_bytes=sum(part.bytes for part in parts),
            device_budget_bytes=int(22.1 * GIB),
            host_bytes=20 * GIB,
            host_budget_bytes=240 * GIB,
            left_out=("evaluation and saving",),
        ),
        steps=225,
        why=("for: the whole model fits on one device", "against: the result needs its base model"),
    )


PLANS = (
    plan(
        "LoRA r16 bf16, DDP on 2 devices",
        {"weights": 15.3, "adapter": 0.5, "activations": 1.9, "logits": 1.1, "context": 0.6},
    ),
    plan(
        "QLoRA r16 bf16, DDP on 2 devices",
        {"weights": 5.6, "adapter": 0.5, "activations": 1.9, "logits": 1.1, "context": 0.6},
        method="qlora",
    ),
    plan(
        "Full bf16, ZeRO-3, optimizer on the host on 2 devices",
        {"weights": 10.6, "gradients": 8.8, "activations": 1.9, "context": 0.6},
        method="full",
        strategy="zero3",
        offload="optimizer",
    ),
    plan(
        "Full bf16, DDP on 2 devices",
        {"weights": 15.3, "optimizer": 45.8, "gradients": 15.3, "activations": 2.4},
        method="full",
    ),
)


def events(ranks: int = 2, steps: int = 90, on_device: bool = True) -> list[dict[str, Any]]:
    """The events of a run in its midst."""
    began = NOW - 240
    shared = {"attempt": 0, "rung": 0}
    found: list[dict[str, Any]] = [
        {"t": began, "kind": "phase", "rank": None, "step": None, "phase": "fetching"},
        {"t": began + 9, "kind": "phase", "rank": None, "step": None, "phase": "preparing"},
        {"t": began + 20, "kind": "phase", "rank": 0, "step": None, "phase": "loading model"},
        {"t": began + 55, "kind": "warn", "rank": 1, "step": None, "text": "slow disk: 41 MB/s"},
    ]
    for rank in range(ranks):
        found += [
            {
                "t": began + 21,
                "kind": "hello",
                "rank": rank,
                "step": None,
                "world_size": ranks,
                "host": "bench",
                "pid": 4100 + rank,
                "device": "NVIDIA GeForce RTX 4090" if on_device else "cpu",
            },
            {
                "t": began + 60,
                "kind": "phase",
                "rank": rank,
                "step": 0,
                "phase": "training",
                "total_steps": 225,
            },
        ]
        for step in range(1, steps + 1):
            found += _step(began + 60 + 2 * step, rank, step, on_device)
    found.append(
        {"t": NOW - 2, "kind": "saved", "rank": 0, "step": steps, "path": f"checkpoint-{steps}",
         "bytes": 84e6, "seconds": 0.8}
    )  # fmt: skip
    return [{**shared, **event} for event in found]


def _step(t: float, rank: int, step: int, on_device: bool) -> list[dict[str, Any]]:
    shared = {"t": t, "rank": rank, "step": step}
    line = {
        **shared,
        "kind": "step",
        "steps": 1,
        "seconds": 2.0,
        "own_seconds": 1.8 + 0.1 * rank,
        "wait_seconds": 0.2 - 0.1 * rank,
        "tokens": 6100 + 37 * (step % 5),
        "process_memory_bytes": 3 * GIB,
        "process_memory_peak_bytes": 3.2 * GIB,
    }
    pulse = {**shared, "kind": "pulse", "phase": "training", "seconds": 2.0 * step}
    if on_device:
        line |= {"memory_allocated_bytes": 17.9 * GIB, "memory_peak_bytes": 19.6 * GIB}
        pulse |= {"utilization_percent": 97, "temperature_c": 71}
        pulse |= {"power_w": 402.0, "power_cap_w": 450.0}
    train = {
        **shared,
        "kind": "train",
        "loss": 0.6 + 1.9 * 0.97**step + 0.05 * ((step * 7) % 5 - 2) / 2,
        "learning_rate": 1e-4 * (1 - step / 225),
        "grad_norm": 0.8,
        "epoch": step / 75,
    }
    return [line, pulse] if rank else [line, pulse, train]


def state_after(found: list[dict[str, Any]]) -> RunState:
    state = RunState(name="qwen3-8b-lora-1129-1")
    for event in found:
        state = fold(state, event)
    return state


def finished(state: RunState) -> RunState:
    state = fold(state, {"t": NOW, "kind": "phase", "rank": None, "phase": "done"})
    return replace(state, exit_code=0, step=225)


PLAN_JSON = {
    "title": PLANS[0].title,
    "memory": {
        "device_bytes": PLANS[0].memory.device_bytes,
        "device_budget_bytes": PLANS[0].memory.device_budget_bytes,
    },
}
RESULT_JSON = {
    "measured": {
        "memory_peak_bytes": [19.6 * GIB, 19.4 * GIB],
        "process_memory_peak_bytes": [3.2 * GIB, 3.2 * GIB],
        "tokens_per_second": 6163.0,
        "step_seconds": 2.0,
        "steps": 225,
        "train_loss_first": 2.43,
        "train_loss_last": 0.61,
        "seconds": 510.0,
    }
}
SMOKE_JSON = {
    "predicted": {"device_bytes": PLANS[0].memory.device_bytes},
    "measured": {"memory_peak_bytes": [int(19.6 * GIB), None]},
}
SCRIPT = """#!/usr/bin/env bash
# qwen3-8b-lora-1129-1: LoRA r16 bf16, DDP on 2 devices
set -euo pipefail
cd "$(dirname "$0")"
PYTHON=/opt/tunewright/bin/python
export CUDA_VISIBLE_DEVICES=GPU-0,GPU-1
export OMP_NUM_THREADS=16            # 32 cores / 2 ranks
export PYTHONSAFEPATH=1              # `engine` is ours, whatever lies in this folder
"$PYTHON" -m engine.fetch spec.toml
"$PYTHON" -m engine.prepare spec.toml
torchrun --standalone --nproc-per-node 2 --max-restarts 0 \\
  --log-dir logs --redirects 3 \\
  -m engine.train spec.toml --attempt 0 --rung 0
"""
FILES = {"run.sh": SCRIPT, "spec.toml": 'version = 1\n[model]\nmodel = "Qwen/Qwen3-8B"\n'}
LOG = tuple(f"12:0{i}:00 step {i} loss {2.4 - i / 10:.3f}" for i in range(9))
