"""Outcome: what a run says of itself when it is over: the model's card, and what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from engine.fetch import Fetched
from engine.spec import Spec


def model_card(spec: Spec, fetched: Fetched) -> str:
    """README.md of the tuned model: what it was made from, and how."""
    name = spec.model.model
    licence = base_licence(fetched.path)
    front = {
        "base_model": name if fetched.source != "local" else None,
        "license": licence,
        "library_name": "transformers" if spec.method.method == "full" else "peft",
    }
    lines = [f"{key}: {json.dumps(value)}" for key, value in front.items() if value]
    training = spec.training
    facts = {
        "Base model": name,
        "Base revision": fetched.revision or "unknown",
        "Base licence": licence or "unknown",
        "Stage": spec.method.stage,
        "Method": spec.method.method
        + ("" if spec.method.method == "full" else f", rank {spec.method.lora_rank}"),
        "Effective batch size": training.effective_batch_size,
        "Learning rate": f"{training.learning_rate:g}, {training.lr_scheduler_type}",
        "Tokens per row": f"at most {spec.data.max_length}",
        "Seed": training.seed,
    }
    table = [f"- {key}: {value}" for key, value in facts.items()]
    return "\n".join(["---", *lines, "---", "", "# Fine-tuned model", "", *table, ""])


def base_licence(folder: Path) -> str | None:
    """The licence that the base model's own card names."""
    try:
        text = (folder / "README.md").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    front = re.match(r"---\n(.*?)\n---", text, re.DOTALL)
    found = re.search(r"^license:\s*(\S+)\s*$", front[1], re.MULTILINE) if front else None
    return found[1].strip("'\"") if found else None


def result(
    run: Path, ranks: list[dict[str, Any]], seconds: float, best: dict[str, Any] | None
) -> dict[str, Any]:
    """`result.json`: what every rank measured beside what the plan predicted.

    Numbers are of this attempt: a resumed run counts the steps it made itself. `best` is the
    checkpoint that `model/` was made of, where the run evaluated.
    """
    first = ranks[0]
    busy = first["training_seconds"]
    losses = first["losses"] or [None]
    return {
        "schema": 1,
        "measured": {
            "memory_peak_bytes": [rank["memory_peak_bytes"] for rank in ranks],
            "process_memory_peak_bytes": [rank["process_memory_peak_bytes"] for rank in ranks],
            "tokens_per_second": sum(rank["tokens"] for rank in ranks) / busy if busy else None,
            "step_seconds": first["step_seconds"],
            "steps": first["steps"],
            "train_loss_first": losses[0],
            "train_loss_last": losses[-1],
            "seconds": round(seconds, 3),
        },
        "best": best,
        "predicted": _predicted(run),
    }


def best_of(trainer: Any) -> dict[str, Any] | None:
    """The step whose checkpoint became the model, and the metric that chose it."""
    state, args = trainer.state, trainer.args
    if not args.load_best_model_at_end or state.best_model_checkpoint is None:
        return None
    return {
        "step": state.best_global_step,
        "metric": args.metric_for_best_model,
        "value": state.best_metric,
        "checkpoint": Path(state.best_model_checkpoint).name,
    }


def _predicted(run: Path) -> dict[str, Any] | None:
    try:
        memory = json.loads((run / "plan.json").read_text(encoding="utf-8"))["memory"]
        return {"device_bytes": memory["device_bytes"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None
