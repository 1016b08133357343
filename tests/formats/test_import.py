"""Imports: every key is carried over or said not to be, and nothing is run or leaks."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.settings import parse_setting
from tests.formats.planned import exported, job
from wizard import presets
from wizard.commands import import_ as command
from wizard.formats.importing import READERS, import_preset, preset_text, recognise
from wizard.formats.reader import fields
from wizard.formats.values import Imported
from wizard.problem import ProblemError

LLAMAFACTORY = """\
### model
model_name_or_path: meta-llama/Meta-Llama-3-8B-Instruct
trust_remote_code: true
### method
stage: sft
do_train: true
finetuning_type: lora
quantization_bit: 4
quantization_method: bnb
lora_rank: 8
lora_target: q_proj,v_proj
deepspeed: examples/deepspeed/ds_z3_config.json
### dataset
dataset: identity,alpaca_en_demo
template: llama3
cutoff_len: 2048
max_samples: 1000
### output
output_dir: saves/llama3-8b/lora/sft
hf_hub_token: hf_secret
### train
per_device_train_batch_size: 1
gradient_accumulation_steps: 8
learning_rate: 1.0e-4
num_train_epochs: 3.0
lr_scheduler_type: cosine
warmup_ratio: 0.1
bf16: true
ddp_timeout: 18000
resume_from_checkpoint: null
"""
AXOLOTL = """\
base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: data/rows.jsonl
    type: alpaca
val_set_size: 0.1
output_dir: ./outputs/lora-out
adapter: qlora
load_in_4bit: true
sequence_len: 2048
sample_packing: true
lora_r: 16
lora_alpha: 32
lora_dropout: 0.05
lora_target_modules: [gate_proj, down_proj]
wandb_project:
gradient_accumulation_steps: 2
micro_batch_size: 2
num_epochs: 1
optimizer: adamw_8bit
lr_scheduler: cosine
learning_rate: 2e-4
bf16: auto
tf32: false
gradient_checkpointing: true
attn_implementation: flash_attention_2
warmup_ratio: 0.1
plugins: [my.plugin]
special_tokens: {pad_token: "<|end_of_text|>"}
"""
SWIFT = """\
#!/bin/bash
export HF_TOKEN=hf_secret
CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2 \\
swift sft \\
    --model Qwen/Qwen2.5-7B-Instruct \\
    --tuner_type lora \\
    --dataset rows.jsonl \\
    --torch_dtype bfloat16 \\
    --num_train_epochs 1 \\
    --per_device_train_batch_size 1 \\
    --learning_rate 1e-4 \\
    --lora_rank 8 --lora_alpha 32 \\
    --target_modules q_proj k_proj \\
    --gradient_accumulation_steps 16 \\
    --attn_impl flash_attn --packing_length=4096 \\
    --system 'You are a helpful assistant.' \\
    --output_dir "$OUTPUT" \\
    --warmup_ratio 0.05
"""
TRL = """\
model_name_or_path: Qwen/Qwen2-0.5B
dataset_name: trl-lib/Capybara
learning_rate: 2.0e-5
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
gradient_checkpointing: true
use_peft: true
lora_r: 32
lora_alpha: 16
eos_token: '<|im_end|>'
max_length: 1024
warmup_steps: 0.1
report_to: none
"""
ACCELERATE = """\
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  offload_optimizer_device: cpu
  offload_param_device: none
  zero3_init_flag: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 4
rdzv_backend: static
same_network: true
use_cpu: false
"""
EXAMPLES = {
    "llamafactory": LLAMAFACTORY,
    "axolotl": AXOLOTL,
    "swift": SWIFT,
    "trl": TRL,
    "accelerate": ACCELERATE,
}


def read(text: str, **options: Any) -> Imported:
    return import_preset(text, file="config", name="mine", **options)


def told_of(imported: Imported) -> list[str]:
    """Every key something was said about, as often as it was."""
    carried = {key for one in imported.carried for key in one.keys}
    return sorted([*carried, *{one.key for one in imported.left} - carried])


def refusal(text: str, **options: Any) -> str:
    with pytest.raises(ProblemError) as caught:
        read(text, **options)
    assert caught.value.problem.exit_code == 2
    return str(caught.value)


@pytest.mark.parametrize("peer", EXAMPLES)
def test_it_shows_whose_a_configuration_is(peer: str) -> None:
    assert read(EXAMPLES[peer]).format == peer


@pytest.mark.parametrize("peer", EXAMPLES)
def test_the_preset_of_an_import_is_one_that_loads(peer: str) -> None:
    imported = read(EXAMPLES[peer])
    again = presets.loads(preset_text(imported), "mine", "file")
    assert again == imported.preset
    assert again.settings


def test_a_llama_factory_configuration_becomes_its_settings() -> None:
    imported = read(LLAMAFACTORY)
    assert imported.preset.settings == {
        "model": "meta-llama/Meta-Llama-3-8B-Instruct",
        "method": "qlora",
        "lora_rank": 8,
        "target_modules": "q_proj,v_proj",
        "strategy": "zero3",
        "max_length": 2048,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "learning_rate": 1e-4,
        "num_train_epochs": 3.0,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.1,
        "dtype": "bfloat16",
        "ddp_timeout": 18000,
    } | ({"stage": "sft"} if "stage" in imported.preset.settings else {})
    assert told_of(imported) == sorted(yaml.safe_load(LLAMAFACTORY))


def test_an_axolotl_configuration_becomes_its_settings() -> None:
    imported = read(AXOLOTL)
    settings = dict(imported.preset.settings)
    for later in ("packing", "stage"):
        settings.pop(later, None)
    assert settings == {
        "model": "NousResearch/Llama-3.2-1B",
        "data": "data/rows.jsonl",
        "eval_split": 0.1,
        "method": "qlora",
        "max_length": 2048,
        "lora_rank": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.05,
        "target_modules": "gate_proj,down_proj",
        "gradient_accumulation_steps": 2,
        "per_device_train_batch_size": 2,
        "num_train_epochs": 1.0,
        "optim": "adamw_bnb_8bit",
        "lr_scheduler_type": "cosine",
        "learning_rate": 2e-4,
        "gradient_checkpointing": True,
        "tf32": False,
        "attn_implementation": "flash_attention_2",
        "warmup_ratio": 0.1,
    }
    assert {*told_of(imported)} == {*yaml.safe_load(AXOLOTL), "datasets.type"}


def test_a_swift_command_becomes_its_settings() -> None:
    imported = read(SWIFT)
    settings = dict(imported.preset.settings)
    settings.pop("stage", None)
    assert settings == {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "data": "rows.jsonl",
        "method": "lora",
        "dtype": "bfloat16",
        "num_train_epochs": 1.0,
        "per_device_train_batch_size": 1,
        "learning_rate": 1e-4,
        "lora_rank": 8,
        "lora_alpha": 32,
        "target_modules": "q_proj,k_proj",
        "gradient_accumulation_steps": 16,
        "attn_implementation": "flash_attention_2",
        "system": "You are a helpful assistant.",
        "warmup_ratio": 0.05,
        "num_devices": 2,
    }
    left = {one.key: one.why for one in imported.left}
    assert "variable of the shell" in left["output_dir"]
    assert "devices of one machine" in left["CUDA_VISIBLE_DEVICES"]
    assert left["line 2"] == "not a training command"


def test_a_trl_configuration_becomes_its_settings() -> None:
    settings = dict(read(TRL).preset.settings)
    settings.pop("stage", None)
    assert settings == {
        "model": "Qwen/Qwen2-0.5B",
        "method": "lora",
        "learning_rate": 2e-5,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 8,
        "gradient_checkpointing": True,
        "lora_rank": 32,
        "lora_alpha": 16,
        "max_length": 1024,
        "warmup_ratio": 0.1,
    }
    assert told_of(read(TRL)) == sorted(yaml.safe_load(TRL))


def test_an_accelerate_configuration_becomes_its_settings() -> None:
    assert read(ACCELERATE).preset.settings == {
        "strategy": "zero3",
        "offload": "optimizer",
        "num_devices": 4,
        "dtype": "bfloat16",
        "gradient_accumulation_steps": 4,
        "max_grad_norm": 1.0,
    }


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
    | st.sampled_from(
        ["lora", "full", "4", "auto", "true", "/root/x.jsonl", "zero3", "bf16", "no"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=4,
)


@pytest.mark.parametrize("peer", READERS)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_no_key_is_lost_whatever_its_value(peer: str, data: st.DataObject) -> None:
    known = sorted(fields(peer)[1])
    names = st.sampled_from(known) | st.text(st.characters(codec="ascii"), max_size=8)
    values = data.draw(st.dictionaries(names, plain, min_size=1, max_size=12))
    imported = read(yaml.safe_dump(values), peer=peer)
    keys = {key.partition(".")[0] if "_config." in key else key for key in told_of(imported)}
    keys = {key for key in keys if not key.startswith(("datasets.", "pretraining_dataset."))}
    empty = {k for k, v in values.items() if k.endswith("_config") and v == {}}
    assert keys | empty == {str(key) for key in values}
    for setting, value in imported.preset.settings.items():
        assert parse_setting(setting, value) == (setting, value)
        assert presets.why_not_carried(setting, value) == ""
    assert presets.loads(preset_text(imported), "mine", "file") == imported.preset


@pytest.mark.parametrize("peer", EXAMPLES)
def test_no_secret_and_no_value_of_what_is_left_is_in_the_preset(peer: str) -> None:
    text = preset_text(read(EXAMPLES[peer]))
    assert "hf_secret" not in text
    assert "saves/llama3" not in text
    assert "trust_remote_code =" not in text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds no settings"),
        ("- a\n- b\n", "holds no settings"),
        ("just words", "holds no settings"),
        ("a: [", "not valid YAML: line"),
        ("learning_rate: 1\nlearning_rate: 2\n", "line 2: `learning_rate` is given twice"),
        ('{"model": "a", "model": "b"}', "`model` is given twice"),
        ("a: &x [1]\nb: *x\n", "anchors are not followed"),
        ("a: !!python/object/apply:os.system ['touch RAN']\n", "not valid YAML: line 1"),
        pytest.param("a: " + "[" * 2000, "nested too deeply", id="deep"),
        ("nothing: of ours\n", "whose configuration"),
        ("learning_rate: 1e-4\n", "say it with --from"),
        ("#!/bin/bash\npython train.py\n", "no training command"),
        ("swift sft --model a\nswift sft --model b\n", "2 training commands"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(text: str, what: str) -> None:
    assert what in refusal(text)


def test_another_trainers_command_is_not_taken_for_the_named_one() -> None:
    assert "a command of ms-swift, not of axolotl" in refusal("swift sft --model a", peer="axolotl")


def test_a_path_into_one_machine_and_a_foreign_value_are_left_with_a_reason() -> None:
    text = "model_name_or_path: /home/me/model\nfinetuning_type: freeze\nlearning_rat: 1\n"
    left = {one.key: one.why for one in read(text).left}
    assert left["model_name_or_path"] == "is a path on one machine"
    assert "input should be" in left["finetuning_type"]
    assert "did you mean `learning_rate`" in left["learning_rat"]


def test_an_option_given_twice_is_told_and_the_later_one_counts() -> None:
    imported = read("swift sft --model a/b --lora_rank 4 --lora_rank 8")
    assert imported.preset.settings["lora_rank"] == 8
    assert [(one.key, one.value) for one in imported.left if one.key == "lora_rank"] == [
        ("lora_rank", "4")
    ]


@pytest.mark.parametrize("peer", ["swift", "llamafactory", "axolotl"])
@pytest.mark.parametrize(
    "made",
    [
        lambda: job("rtx4090"),
        lambda: job("t4x2", method="qlora"),
        lambda: job("h100x8", method="full", strategy="zero3"),
    ],
)
def test_what_is_exported_is_read_back_as_it_was_planned(peer: str, made: Any) -> None:
    done = exported(made(), peer)
    imported = read(done.files[done.main])
    assert imported.format == peer
    planned = {
        k: v
        for table in made().plan.spec.model_dump(exclude={"version"}).values()
        for k, v in table.items()
    }
    planned["source"] = "huggingface"  # where ms-swift is told to look
    for setting, value in imported.preset.settings.items():
        assert value == planned[setting], setting
    assert {"model", "method", "learning_rate", "max_length", "dtype"} <= set(
        imported.preset.settings
    )


def test_accelerate_is_told_by_what_only_it_has() -> None:
    assert recognise({"distributed_type": "NO"}, "file") == "accelerate"


def test_the_command_offers_the_trainers_there_are() -> None:
    assert set(command.SOURCES) == set(READERS)
