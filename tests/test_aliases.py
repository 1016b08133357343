"""Names and values of other trainers: what `settings show` knows, `--set` takes or explains."""

from __future__ import annotations

import pytest

from engine.settings import parse_setting, setting_name
from engine.spec import SETTINGS, SpecError
from wizard import api
from wizard.commands.settings import named
from wizard.probe.machine import find
from wizard.problem import ProblemError
from wizard.settings import NAMES, every_setting


def test_every_name_that_is_shown_can_be_set() -> None:
    for name, elsewhere in NAMES.items():
        for called in filter(None, elsewhere):
            assert setting_name(called) == name or called in SETTINGS
    for one in every_setting():
        for alias in one.aliases:
            assert setting_name(alias) == one.name
            assert one in named(alias)


@pytest.mark.parametrize(
    ("pair", "setting"),
    [
        ("lora_target=all", ("target_modules", "all-linear")),
        ("num_epochs=2", ("num_train_epochs", 2.0)),
        ("bf16=true", ("dtype", "bfloat16")),
        ("torch_dtype=fp16", ("dtype", "float16")),
        ("deepspeed=examples/ds_z3_config.json", ("strategy", "zero3")),
        ("deepspeed=zero2", ("strategy", "zero2")),
        ("val_set_size=0.05", ("eval_split", 0.05)),
        ("warmup_steps=0.1", ("warmup_ratio", 0.1)),
        ("load_in_4bit=True", ("method", "qlora")),
        ("flash_attn=fa2", ("attn_implementation", "flash_attention_2")),
        ("NPROC_PER_NODE=4", ("num_devices", 4)),
    ],
)
def test_a_value_is_translated(pair: str, setting: tuple[str, object]) -> None:
    assert parse_setting(*pair.split("=")) == setting


@pytest.mark.parametrize(
    ("pair", "instead"),
    [
        ("bf16=false", "dtype=float32"),
        ("bf16=auto", "dtype=float32"),
        ("deepspeed=ds_z3_offload_config.json", "offload=optimizer"),
        ("deepspeed=mine.json", "strategy=zero1"),
        ("warmup_steps=100", "warmup_ratio"),
        ("val_set_size=500", "eval_split"),
        ("CUDA_VISIBLE_DEVICES=0,1", "--devices 0,1"),
    ],
)
def test_a_value_without_one_meaning_is_refused_with_what_to_set(pair: str, instead: str) -> None:
    with pytest.raises(SpecError, match=instead):
        parse_setting(*pair.split("="))


def test_a_word_of_the_field_is_taken_and_one_that_is_near_is_offered() -> None:
    assert parse_setting("strategy", "fsdp2") == ("strategy", "fsdp")
    with pytest.raises(SpecError, match="did you mean `pretrain`"):
        parse_setting("stage", "pretraining")


def test_a_machine_is_named_with_or_without_an_x() -> None:
    named = {find(text).machine for text in ("8 H100", "8xH100", "8 x H100")}
    assert named == {"8x NVIDIA H100 80GB HBM3"}
    with pytest.raises(ProblemError, match="so much memory"):
        find("24 GB")


def test_one_setting_has_one_value() -> None:
    with pytest.raises(ProblemError, match=r"given twice, as 0\.0001 and as 0\.0002"):
        api.parse_settings(["learning_rate=1e-4", "lr=2e-4"])
    assert api.parse_settings(["lr=1e-4", "lr=0.0001"]) == {"learning_rate": 1e-4}
