"""What does not combine is refused with its reason and the nearest thing that does."""

from __future__ import annotations

from typing import Any

import pytest

from engine import rules
from engine.spec import SETTINGS, TABLES, Spec, SpecError, parse_setting

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


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("seed", "4294967296", "less than or equal to 4294967295"),
        ("target_modules", "", "empty module name"),
        ("target_modules", "q_proj,,v_proj", "empty module name"),
        ("max_steps", "0", "-1 to follow the epochs"),
        ("ddp_timeout", "1e20", "valid integer"),
        ("ddp_timeout", "604801", "604800"),
        ("devices", "GPU-1,GPU-1", "named twice"),
        ("num_devices", "99999999999", "65536"),
        ("lora_rank", "2147483647", "1048576"),
        ("effective_batch_size", "99999999999", "2147483647"),
        ("num_train_epochs", "1e300", "1000000"),
        ("system", "\udcff", "not valid UTF-8"),
    ],
)
def test_a_value_the_trainer_cannot_use_is_refused(setting: str, value: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        parse_setting(setting, value)
    assert "Value error" not in str(caught.value)


FLOATS = [
    name for name, table in SETTINGS.items() if TABLES[table].model_fields[name].annotation is float
]


@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
@pytest.mark.parametrize("setting", FLOATS)
def test_a_number_that_is_not_finite_is_refused(setting: str, value: str) -> None:
    with pytest.raises(SpecError, match=setting):
        parse_setting(setting, value)
    with pytest.raises(ValueError, match=setting):
        spec(**{setting: float(value)})
