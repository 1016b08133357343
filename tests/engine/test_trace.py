"""The trace of a step on fake tensors: what it counts, and that the simulation agrees with it."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import engine.trace
from engine.spec import Spec
from wizard.planner.defaults import WITHOUT_SDPA
from wizard.planner.shape import shape_of
from wizard.planner.simulated import setup_of
from wizard.planner.tape.simulation import simulate
from wizard.probe.model import read_model
from wizard.probe.trace import trace
from wizard.problem import ProblemError

pytestmark = pytest.mark.engine
SIZES = {
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
}
PAIR = {"per_device_train_batch_size": 2, "effective_batch_size": 4}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("Llama", {"method": "full"}, {}),
    ("Qwen2", {"method": "lora"}, PAIR),
    ("Qwen3", {"method": "qlora"}, {"gradient_checkpointing": False}),
    ("Mistral", {"method": "lora", "lora_dropout": 0.1}, {"optim": "adamw_bnb_8bit"}),
    ("Phi3", {"method": "full"}, {"optim": "adamw_torch_fused"}),
    ("Gemma2", {"method": "full"}, {"attn_implementation": "eager"}),
    ("Gemma3Text", {"method": "lora"}, {}),
    ("Mixtral", {"method": "qlora", "target_modules": "q_proj,o_proj"}, {}),
    ("Qwen3Moe", {"method": "lora"}, {"gradient_checkpointing": False}),
    (
        "Qwen3Moe",
        {"method": "qlora"},
        {"per_device_train_batch_size": 2, "effective_batch_size": 4},
    ),
    ("Llama", {"method": "lora", "stage": "dpo"}, {}),
    ("Qwen2", {"method": "full", "stage": "reward"}, {}),
    ("Qwen2Moe", {"method": "full"}, {}),
    ("GptOss", {"method": "lora"}, {"attn_implementation": "eager"}),
]
KINDS: dict[str, dict[str, Any]] = {
    "Phi3": {"pad_token_id": 0},
    "Gemma3Text": {"sliding_window": 256, "num_hidden_layers": 7, "head_dim": 32},
    "Gemma2": {"head_dim": 32},
    "Mixtral": {"num_local_experts": 4},
    "GptOss": {
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "sliding_window": 256,
        "head_dim": 32,
        "pad_token_id": 0,
    },
    "Qwen3Moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128},
    "Qwen2Moe": {
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 320,
    },
}
"""What a family has beyond `SIZES`: rows longer than a window, and experts."""
TIED: tuple[str, dict[str, Any], dict[str, Any]] = ("Qwen3", {"method": "full"}, {})
"""In float32 its two gradients are summed in place, a whole embedding less at the peak."""


def folder_of(family: str, folder: Path, **changes: Any) -> Path:
    """A model folder whose weights have their true names and shapes, and no bytes on the disk."""
    import torch
    import transformers

    sizes: dict[str, Any] = {
        **SIZES,
        **KINDS.get(family, {}),
        **changes,
    }
    config = getattr(transformers, f"{family}Config")(**sizes)
    config.save_pretrained(folder)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    header, at = {}, 0
    for name, weight in model.named_parameters():
        end = at + weight.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(weight.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    return folder


def spec_of(method: dict[str, Any], training: dict[str, Any], dtype: str = "bfloat16") -> Spec:
    training = dict(training)
    attention = training.pop("attn_implementation", "sdpa")
    return Spec.model_validate(
        {
            "model": {"model": "m", "dtype": dtype, "attn_implementation": attention},
            "data": {"data": "d.jsonl", "max_length": 384},
            "method": method,
            "parallel": {"strategy": "single", "device_kind": "cuda"},
            "training": {
                "effective_batch_size": 2,
                "gradient_accumulation_steps": 2,
                **training,
            },
        }
    )


@pytest.mark.xdist_group("trace")
@pytest.mark.parametrize(
    "cases",
    [
        pytest.param([*CASES[1::3], CASES[-2], TIED], id="some"),
        pytest.param([*CASES, TIED], id="all", marks=pytest.mark.slow),
    ],
)
def test_the_simulated_step_is_the_traced_one(
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]], tmp_path: Path
) -> None:
    found = []
    for number, (family, method, training) in enumerate(cases):
        tied = number == len(cases) - 1
        folder = folder_of(family, tmp_path / str(number), tie_word_embeddings=tied)
        spec = spec_of(method, training, "float32" if tied else "bfloat16")
        model = read_model(str(folder))
        shape = shape_of(model)
        assert shape is not None
        setup = setup_of(spec, model, shape)
        assert setup is not None
        traced = engine.trace.trace(spec, folder)["allocated_peak_bytes"]
        found.append(abs(simulate(setup).allocated_peak_bytes / traced - 1))
        print(family, method, training, f"{100 * found[-1]:.4f} %")
    assert median(found) <= 0.005
    assert max(found) <= 0.01


WIDE = {"hidden_size": 512, "intermediate_size": 1408, "vocab_size": 512, "num_hidden_layers": 4}
"""Layers that are large beside the head, so that what is gathered of them is the peak."""


@pytest.mark.xdist_group("trace")
@pytest.mark.parametrize(
    ("family", "method", "ranks", "sizes"),
    [
        pytest.param("Llama", "full", 8, {}, marks=pytest.mark.slow),
        ("Llama", "full", 8, WIDE),
        ("Llama", "lora", 8, WIDE),
        pytest.param("Qwen3", "full", 4, {"tie_word_embeddings": True}, marks=pytest.mark.slow),
        ("Qwen3", "qlora", 4, {}),
    ],
)
def test_the_simulated_share_of_fsdp_is_that_of_torch(
    family: str, method: str, ranks: int, sizes: dict[str, Any], tmp_path: Path
) -> None:
    folder = folder_of(family, tmp_path, **sizes)
    spec = spec_of({"method": method}, {})
    shared = {"strategy": "fsdp", "num_devices": ranks}
    spec = spec.model_copy(update={"parallel": spec.parallel.model_copy(update=shared)})
    model = read_model(str(folder))
    shape = shape_of(model)
    assert shape is not None
    setup = setup_of(spec, model, shape)
    assert setup is not None
    traced = engine.trace.trace(spec, folder)
    simulated = simulate(setup)
    step = dict(simulated.moments)["optimizer step"]
    assert step == pytest.approx(traced["moments"]["optimizer step"], rel=0.02)
    assert simulated.allocated_peak_bytes == pytest.approx(traced["allocated_peak_bytes"], rel=0.03)


@pytest.mark.xdist_group("trace")
def test_layers_the_simulation_does_not_know_are_traced(tmp_path: Path) -> None:
    folder = folder_of("Olmo2", tmp_path, pad_token_id=0, eos_token_id=0)
    model = read_model(str(folder))
    shape = shape_of(model)
    assert shape is not None
    spec = spec_of({"method": "lora"}, {})
    assert setup_of(spec, model, shape) is None
    traced = engine.trace.trace(spec, folder)
    assert traced["parameters"] == model.parameters
    weights = 2 * traced["parameters"]
    assert weights + 4 * 3 * traced["trainable"] < traced["allocated_peak_bytes"]


@pytest.mark.xdist_group("trace")
def test_what_cannot_be_traced_is_said_in_one_sentence(tmp_path: Path) -> None:
    folder = folder_of("Llama", tmp_path)
    spec = spec_of({"method": "full"}, {})
    shared = spec.model_copy(
        update={"parallel": spec.parallel.model_copy(update={"strategy": "zero3"})}
    )
    with pytest.raises(ProblemError, match=r"strategy=zero3 is not traced.*DeepSpeed lays"):
        trace(shared, read_model(str(folder)))
    moved = {"strategy": "fsdp", "num_devices": 2, "offload": "parameters"}
    there = spec.model_copy(update={"parallel": spec.parallel.model_copy(update=moved)})
    with pytest.raises(engine.trace.UntraceableError, match="offload=parameters is not traced"):
        engine.trace.trace(there, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "none-such"}))
    with pytest.raises(engine.trace.UntraceableError, match="transformers makes no model of it"):
        engine.trace.trace(spec, folder)


@pytest.mark.xdist_group("trace")
def test_the_command_shows_the_traced_step_beside_the_predicted_one(tmp_path: Path) -> None:
    folder, data = folder_of("Llama", tmp_path / "model"), tmp_path / "rows.jsonl"
    row = {"messages": [{"role": "user", "content": "1"}, {"role": "assistant", "content": "2"}]}
    data.write_text("\n".join([json.dumps(row)] * 40), encoding="utf-8")
    command = [sys.executable, "-m", "wizard", "plan", "--model", str(folder), "--data", str(data)]
    ran = subprocess.run(
        [*command, "--machine", "1x NVIDIA L40S", "--trace"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traced step of 1" in ran.stdout
    assert "per rank, fits" in ran.stdout


def test_the_decoders_without_fused_attention_are_those_of_the_library() -> None:
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    for kind in WITHOUT_SDPA:
        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
        assert not getattr(transformers, name)._supports_sdpa, kind
    for kind in ("llama", "qwen2", "qwen3", "mistral", "gemma3_text", "phi3", "qwen3_moe"):
        name = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind]
        assert getattr(transformers, name)._supports_sdpa, kind
