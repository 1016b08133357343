"""The memory estimate of a CPU rank against the peak that the engine measures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.spec import dumps
from tests.fakes import machines
from tests.fakes.tiny.make import tokenizer
from wizard.answers import Answers
from wizard.plan import Plan
from wizard.planner import plans
from wizard.probe.dataset import read_dataset
from wizard.probe.model import read_model

LENGTH = 256
TOLERATED = (0.85, 1.35)
"""Predicted over measured: a plan that is too small fails, one too large only wastes."""


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model in the shape of SmolLM2-135M, a third as deep, with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("model")
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=10,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def plan_for(model: Path, folder: Path, settings: dict[str, Any]) -> Plan:
    turns = [
        {"role": "user", "content": "q" * 60},
        {"role": "assistant", "content": "answer " * 60},
    ]
    data = folder / "rows.jsonl"
    data.write_text((json.dumps({"messages": turns}) + "\n") * 16, encoding="utf-8")
    facts = replace(
        machines.machine("cpu"), model=read_model(str(model)), dataset=read_dataset(str(data))
    )
    return plans(facts, Answers(settings=settings))[0]


def peak_bytes(plan: Plan, run: Path) -> int:
    """The peak that the rank reports after two steps."""
    (run / "spec.toml").write_text(dumps(plan.spec), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    rank = ["torch.distributed.run", "--standalone", "--nproc-per-node", "1", "-m", "engine.train"]
    for module in (["engine.fetch"], ["engine.prepare"], rank):
        command = [sys.executable, "-m", *module, "spec.toml"]
        subprocess.run(command, cwd=run, env=environment, check=True, capture_output=True)
    measured = json.loads((run / "result.json").read_text(encoding="utf-8"))["measured"]
    return int(measured["process_memory_peak_bytes"][0])


@pytest.mark.engine
@pytest.mark.parametrize(
    ("method", "checkpointing", "micro"),
    [
        ("lora", False, 2),
        ("full", True, 2),
        pytest.param("lora", True, 4, marks=pytest.mark.slow),
        pytest.param("full", False, 1, marks=pytest.mark.slow),
    ],
)
def test_a_cpu_rank_peaks_near_its_estimate(
    model_folder: Path, tmp_path: Path, method: str, checkpointing: bool, micro: int
) -> None:
    settings = {
        "method": method,
        "strategy": "single",
        "gradient_checkpointing": checkpointing,
        "per_device_train_batch_size": micro,
        "effective_batch_size": micro,
        "max_length": LENGTH,
        "max_steps": 2,
    }
    plan = plan_for(model_folder, tmp_path, settings)
    ratio = plan.memory.device_bytes / peak_bytes(plan, tmp_path)
    print(f"{plan.title}: predicted / measured = {ratio:.2f}")
    assert TOLERATED[0] <= ratio <= TOLERATED[1]


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "method", "micro"),
    [("dpo", "lora", 2), ("dpo", "full", 1), ("kto", "lora", 2), ("reward", "lora", 2)],
)
def test_a_rank_that_learns_preferences_peaks_near_its_estimate(
    model_folder: Path, tmp_path: Path, stage: str, method: str, micro: int
) -> None:
    asked, good, bad = "q" * 60, "answer " * 60, "reply " * 60
    pair = {"prompt": asked, "chosen": good, "rejected": bad}
    judged = {"prompt": asked, "completion": good}
    labels = [{**judged, "label": bool(n % 2)} for n in range(16)]
    data = tmp_path / "rows.jsonl"
    rows = labels if stage == "kto" else [pair] * 16
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    facts = replace(
        machines.machine("cpu"),
        model=read_model(str(model_folder)),
        dataset=read_dataset(str(data)),
    )
    settings = {
        "stage": stage,
        "method": method,
        "strategy": "single",
        "gradient_checkpointing": True,
        "per_device_train_batch_size": micro,
        "effective_batch_size": micro,
        "max_length": LENGTH,
        "max_steps": 2,
    }
    plan = plans(facts, Answers(settings=settings))[0]
    ratio = plan.memory.device_bytes / peak_bytes(plan, tmp_path)
    print(f"{plan.title}: predicted / measured = {ratio:.2f}")
    assert TOLERATED[0] <= ratio <= TOLERATED[1]
