"""What does not combine is refused with its reason and the nearest thing that does."""

from __future__ import annotations

from typing import Any

import pytest

from engine import rules
from engine.spec import SETTINGS, TABLES, Spec, parse_setting

BASE: dict[str, dict[str, Any]] = {
    "model": {"model": "/m"},
    "data": {"data": "/d"},
    "method": {"method": "lora"},
    "parallel": {"strategy": "single", "device_kind": "cuda"},
    "training": {"effective_batch_size": 1},
}


def spec(**changes: Any) -> Spec:
    tables = {name: dict(BASE[name]) for name in TABLES}
    for setting, value in changes.items():
        tables[SETTINGS[setting]][setting] = value
    return Spec.model_validate(tables)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"method": "qlora", "strategy": "zero3"}, "strategy"),
        ({"strategy": "zero3", "optim": "adamw_bnb_8bit"}, "optim"),
        (
            {"device_kind": "cpu", "attn_implementation": "flash_attention_2"},
            "attn_implementation",
        ),
        ({"device_kind": "cpu", "dtype": "float16"}, "dtype"),
        ({"method": "full", "dtype": "float16"}, "dtype"),
        ({"dtype": "float32", "attn_implementation": "flash_attention_2"}, "attn_implementation"),
        ({"target_modules": "q_proj, lm_head"}, "target_modules"),
    ],
)
def test_a_forbidden_combination_is_named_and_its_remedy_helps(
    changes: dict[str, Any], setting: str
) -> None:
    broken = rules.check(spec(**changes))
    assert setting in [violation.setting for violation in broken]
    for violation in broken:
        name, value = parse_setting(*violation.nearest.split("=", 1))
        changes = {**changes, name: value}
    assert rules.check(spec(**changes)) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": "full", "dtype": "float16", "strategy": "zero3"},
        {"method": "qlora", "strategy": "single"},
        {"method": "full", "target_modules": "lm_head"},
        {"device_kind": "cpu", "dtype": "bfloat16"},
        {"strategy": "zero3", "offload": "parameters"},
    ],
)
def test_what_combines_is_allowed(changes: dict[str, Any]) -> None:
    assert rules.check(spec(**changes)) == ()


def test_extra_packages_are_named_with_their_reason() -> None:
    assert rules.packages(spec()) == {}
    assert set(rules.packages(spec(method="qlora"))) == {"bitsandbytes"}
    assert set(rules.packages(spec(strategy="zero3"))) == {"deepspeed"}
    flash = rules.packages(spec(attn_implementation="flash_attention_2"))
    assert "flash_attention_2" in flash["flash-attn"]
