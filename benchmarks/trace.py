"""The simulated step against traces of the real one, on random configurations.

    python -m benchmarks.trace [N] [--seed S] [--json OUT]

Draws N configurations (50): family, dimensions, method, batch, length, number format, optimizer,
attention, checkpointing, dropout. Each is traced on fake tensors by the installed libraries and
simulated by the planner; prints the error of the peak of live tensors.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import median, quantiles
from typing import Any

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ.setdefault("OMP_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from engine.spec import Spec
from engine.trace import trace
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.tape.simulation import simulate
from wizard.probe.model import of_config

FAMILIES = (
    "Llama", "Qwen2", "Qwen3", "Mistral", "Phi3", "Gemma", "Gemma2", "Gemma3Text", "Mixtral",
    "Qwen2Moe", "Qwen3Moe", "GptOss",
)  # fmt: skip
ROUTED = ("Mixtral", "Qwen2Moe", "Qwen3Moe", "GptOss")
ATTENTION = "q_proj,k_proj,v_proj,o_proj"


def main() -> None:
    """Trace and simulate, print the errors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("n", nargs="?", type=int, default=50, help="configurations (50)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write every configuration with its error")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    draw = random.Random(options.seed)
    rows = [compared(draw) for _ in range(options.n)]
    errors = [abs(row["percent"]) for row in rows]
    print(f"{len(rows)} configurations, seed {options.seed}")
    p90 = quantiles(errors, n=10)[-1] if len(errors) > 1 else errors[0]
    print(
        f"absolute error: median {median(errors):.4f} %, p90 {p90:.4f} %, worst {max(errors):.4f} %"
    )
    for row in sorted(rows, key=lambda row: -abs(row["percent"]))[:5]:
        print(f"{row['percent']:+.4f} %  {row['what']}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def compared(draw: random.Random) -> dict[str, Any]:
    """One configuration: its description, both peaks, the error."""
    family = draw.choice(FAMILIES)
    sizes = dimensions(draw, family)
    spec = spec_of(draw, family)
    with tempfile.TemporaryDirectory() as folder:
        parameters = save(family, sizes, Path(folder))
        traced = trace(spec, Path(folder))
        config = json.loads((Path(folder) / "config.json").read_text(encoding="utf-8"))
    assert traced["parameters"] == parameters
    model = of_config("m", config, parameters=parameters)
    shape = shape_of(model)
    assert shape is not None
    setup = setup_of(spec, model, shape)
    assert setup is not None, (family, sizes)
    simulated = simulate(setup).allocated_peak_bytes
    changed = {**spec.method.model_dump(), **spec.training.model_dump()}
    keys = (
        "method",
        "lora_rank",
        "target_modules",
        "lora_dropout",
        "optim",
        "gradient_checkpointing",
    )
    batch = f"{spec.training.per_device_train_batch_size} × {spec.data.max_length}"
    words = ", ".join(f"{key}={changed[key]}" for key in keys)
    return {
        "what": f"{family} {sizes}, {spec.model.dtype}, {spec.model.attn_implementation}, "
        f"{batch}, accumulation {spec.training.gradient_accumulation_steps}, {words}",
        "traced_bytes": traced["allocated_peak_bytes"],
        "simulated_bytes": simulated,
        "percent": 100 * (simulated / traced["allocated_peak_bytes"] - 1),
    }


def dimensions(draw: random.Random, family: str) -> dict[str, Any]:
    """A decoder's sizes, from small ones to those of real models."""
    key_heads, head = draw.choice([1, 2, 4, 8]), draw.choice([32, 64, 128])
    heads = key_heads * draw.choice([1, 2, 4, 7])
    hidden = heads * head
    return {
        "hidden_size": hidden,
        "intermediate_size": 64 * draw.randint(1 + hidden // 64, 1 + 4 * hidden // 64),
        "num_hidden_layers": draw.randint(2, 6),
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": head,
        "vocab_size": draw.choice([8192, 32000, 49152, 128256, 151936]),
        "tie_word_embeddings": draw.random() < 0.5 and family != "Phi3",
        **kinds(draw, family, 64 * draw.randint(1, 1 + hidden // 64)),
    }


def kinds(draw: random.Random, family: str, expert: int) -> dict[str, Any]:
    """What only some families have: windows, and experts of a width."""
    if family in ("Mistral", "Gemma3Text"):
        return {"sliding_window": draw.choice([256, 1024, 4096])}
    if family not in ROUTED:
        return {}
    count = draw.choice([4, 8, 32])
    sizes = {"num_experts_per_tok": draw.choice([1, 2, 4])}
    if family == "Mixtral":
        return {**sizes, "num_local_experts": count}
    if family == "GptOss":
        return {**sizes, "num_local_experts": count, "sliding_window": draw.choice([128, 1024])}
    shared = {"shared_expert_intermediate_size": 2 * expert} if family == "Qwen2Moe" else {}
    return {**sizes, "num_experts": count, "moe_intermediate_size": expert, **shared}


def spec_of(draw: random.Random, family: str) -> Spec:
    """A way to train it on one device; PEFT puts no dropout before routed experts."""
    attentions = ["eager"] if family in ("Gemma2", "GptOss") else ["sdpa", "sdpa", "sdpa", "eager"]
    targets = ["all-linear"] if family == "Phi3" else ["all-linear", "all-linear", ATTENTION]
    method = draw.choice(["full", "lora", "qlora"])
    micro, accumulation = draw.choice([1, 1, 2, 4]), draw.choice([1, 2])
    dtype = draw.choice(["bfloat16", "bfloat16", "float32"])
    return Spec.model_validate(
        {
            "model": {
                "model": "m",
                "dtype": dtype,
                "attn_implementation": draw.choice(attentions),
            },
            "data": {"data": "d", "max_length": draw.choice([128, 256, 512, 1000, 2048])},
            "method": {
                "method": method,
                "lora_rank": draw.choice([4, 16, 64]),
                "lora_dropout": 0.0 if family in ROUTED else draw.choice([0.0, 0.0, 0.1]),
                "target_modules": draw.choice(targets),
            },
            "parallel": {"strategy": "single", "device_kind": "cuda"},
            "training": {
                "effective_batch_size": micro * accumulation,
                "per_device_train_batch_size": micro,
                "gradient_accumulation_steps": accumulation,
                "gradient_checkpointing": draw.random() < 0.6,
                "optim": draw.choice(["adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit"]),
            },
        }
    )


def save(family: str, sizes: dict[str, Any], folder: Path) -> int:
    """Write the config.json; the model's number of parameters."""
    import torch
    import transformers

    config = getattr(transformers, f"{family}Config")(**sizes, pad_token_id=0)
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(weight.numel() for weight in model.parameters())


if __name__ == "__main__":
    main()
