"""Milliseconds of a full search for a 72B model on 8 × H100, of a re-plan, and of accelerate.

Run: python benchmarks/planner.py [rounds] [--json OUT]. Every cold search runs in a process of its
own, which reports the seconds from after its imports; the median of the rounds is printed. What
accelerate does for its estimate (the empty model, its sizes, its rule) is timed beside it, without
the hub that its command needs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SEARCH = """
import json, sys, time
from dataclasses import replace
sys.path.insert(0, {root!r})
from wizard.answers import Answers
from wizard.facts import Dataset, Device, Facts, Host, Island, Model, Software
from wizard.planner import plans
from wizard.probe import catalog

row = catalog.model("Qwen/Qwen2.5-72B")
card = catalog.accelerator("NVIDIA H100 80GB HBM3")
whole = lambda name: int(row[name])
model = Model(
    name="Qwen/Qwen2.5-72B", path=None, architecture=row["architecture"],
    parameters=whole("parameters"), embedding_parameters=whole("embedding_parameters"),
    hidden_size=whole("hidden_size"), intermediate_size=whole("intermediate_size"),
    num_layers=whole("num_layers"), num_heads=whole("num_heads"),
    num_kv_heads=whole("num_kv_heads"), head_dim=whole("head_dim"),
    vocab_size=whole("vocab_size"), max_positions=whole("max_positions"),
    tied_embeddings=row["tied_embeddings"] == "yes", dtype="bfloat16", has_chat_template=True,
)
memory = round(catalog.number(card, "memory_mib")) * 1024**2
devices = tuple(
    Device(kind="cuda", index=i, name=card["name"], uuid=f"GPU-{{i}}", compute_capability=(9, 0),
           bf16_native=True, memory_total_bytes=memory, memory_free_bytes=memory,
           bf16_tflops=catalog.number(card, "bf16_tflops"),
           memory_bandwidth_gbs=catalog.number(card, "memory_bandwidth_gbs"))
    for i in range(8)
)
packages = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "bitsandbytes",
            "deepspeed", "ninja")
facts = Facts(
    devices=devices,
    host=Host(hostname="h", system="Linux", cpu_cores=128, memory_total_bytes=2 * 1024**4,
              memory_available_bytes=2 * 1024**4),
    software=Software(python="3.11", versions=dict.fromkeys(packages, "1")),
    model=model,
    dataset=Dataset(path="/data/rows.jsonl", format="messages", rows=20000, longest_row_chars=8000,
                    total_chars=40_000_000),
)
start = time.perf_counter()
found = plans(facts, Answers())
cold = time.perf_counter() - start
start = time.perf_counter()
plans(facts, Answers(settings={{"max_length": 1536}}))
again = time.perf_counter() - start
start = time.perf_counter()
plans(facts, Answers(goal="fastest", settings={{"max_length": 1536}}))
goal = time.perf_counter() - start
start = time.perf_counter()
plans(facts, Answers(settings={{"max_length": 1536, "num_train_epochs": 2.0}}))
epochs = time.perf_counter() - start
print(json.dumps({{"cold": cold, "again": again, "goal": goal, "epochs": epochs,
                  "plans": len(found),
                  "best": found[0].title, "torch": "torch" in sys.modules}}))
"""

ACCELERATE = """
import json, time
start = time.perf_counter()
from accelerate import init_empty_weights
from accelerate.commands.estimate import estimate_training_usage
from accelerate.utils import calculate_maximum_sizes
from transformers import AutoModelForCausalLM, Qwen2Config
config = Qwen2Config(
    hidden_size=8192, intermediate_size=29568, num_hidden_layers=80, num_attention_heads=64,
    num_key_value_heads=8, vocab_size=152064, tie_word_embeddings=False,
)
with init_empty_weights():
    model = AutoModelForCausalLM.from_config(config)
total, _ = calculate_maximum_sizes(model)
estimate_training_usage(total, "float32")
print(json.dumps({"cold": time.perf_counter() - start}))
"""


def measure(code: str) -> dict[str, float]:
    """What a child reports."""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, text=True, cwd=ROOT, stdout=subprocess.PIPE
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the medians; write JSON where it is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    runs = [measure(SEARCH.format(root=str(ROOT))) for _ in range(options.rounds)]
    found = {
        "search_ms": 1000 * statistics.median(run["cold"] for run in runs),
        "replan_ms": 1000 * statistics.median(run["again"] for run in runs),
        "other_goal_ms": 1000 * statistics.median(run["goal"] for run in runs),
        "other_epochs_ms": 1000 * statistics.median(run["epochs"] for run in runs),
        "accelerate_ms": 1000 * measure(ACCELERATE)["cold"],
    }
    loaded = "with torch loaded" if runs[0]["torch"] else "no torch loaded"
    print(f"Qwen2.5-72B on 8 × H100 80GB: {runs[0]['plans']} plans, best: {runs[0]['best']}")
    print(f"full search, cold             {found['search_ms']:8.0f} ms  ({loaded})")
    print(f"re-plan, max_length changed   {found['replan_ms']:8.0f} ms")
    print(f"re-plan, another goal         {found['other_goal_ms']:8.0f} ms")
    print(f"re-plan, epochs changed       {found['other_epochs_ms']:8.0f} ms")
    print(f"accelerate's estimate         {found['accelerate_ms']:8.0f} ms  (imports included)")
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
