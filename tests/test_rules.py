"""What does not combine is refused with its reason and the nearest thing that does."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from engine import rules
from engine.settings import parse_setting
from engine.spec import SETTINGS, TABLES, Spec, SpecError, dumps, loads

BASE: dict[str, dict[str, Any]] = {
    "model": {"model": "/m"},
    "data": {"data": "/d"},
    "method": {"method": "lora"},
    "parallel": {"strategy": "single", "device_kind": "cuda"},
    "training": {"effective_batch_size": 1},
}


def spec(**changes: Any) -> Spec:
    tables = {name: dict(BASE.get(name, {})) for name in TABLES}
    for setting, value in changes.items():
        tables[SETTINGS[setting]][setting] = value
    return Spec.model_validate(tables)


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"strategy": "zero3", "optim": "adamw_bnb_8bit"}, "optim"),
        (
            {"device_kind": "cpu", "attn_implementation": "flash_attention_2"},
            "attn_implementation",
        ),
        ({"device_kind": "cpu", "dtype": "float16"}, "dtype"),
        ({"method": "full", "dtype": "float16"}, "dtype"),
        ({"dtype": "float32", "attn_implementation": "flash_attention_2"}, "attn_implementation"),
        ({"target_modules": "q_proj, lm_head"}, "target_modules"),
        ({"device_kind": "cpu", "optim": "paged_adamw_32bit"}, "optim"),
        ({"strategy": "zero2", "offload": "optimizer", "optim": "adamw_bnb_8bit"}, "optim"),
        ({"strategy": "fsdp", "optim": "paged_adamw_8bit"}, "optim"),
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


def test_every_forbidden_spec_has_remedies_that_lead_to_an_allowed_one() -> None:
    settings = {
        name: get_args(TABLES[SETTINGS[name]].model_fields[name].annotation)
        for name in ("strategy", "offload", "method", "optim", "dtype", "device_kind")
    }
    refused = 0
    for values in itertools.product(*settings.values()):
        changes: dict[str, Any] = dict(zip(settings, values, strict=True))
        if changes["strategy"] == "layer_split":
            changes |= {"num_devices": 2, "devices_per_rank": 2}
        try:
            made = spec(**changes)
        except ValidationError:
            continue
        refused += bool(rules.check(made))
        while broken := rules.check(made):
            name, value = parse_setting(*broken[0].nearest.split("=", 1))
            assert changes[name] != value
            changes[name] = value
            made = spec(**changes)
    assert refused > 100


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": "full", "dtype": "float16", "strategy": "zero3"},
        {"method": "full", "dtype": "float16", "strategy": "fsdp"},
        {"method": "qlora", "strategy": "fsdp", "offload": "parameters"},
        {"method": "qlora", "strategy": "layer_split", "num_devices": 2, "devices_per_rank": 2},
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
    assert set(rules.packages(spec(optim="paged_adamw_32bit"))) == {"bitsandbytes"}
    for strategy in ("zero1", "zero2", "zero3"):
        assert set(rules.packages(spec(strategy=strategy))) == {"deepspeed"}
    assert rules.packages(spec(strategy="fsdp")) == {}
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


SPLIT = {"strategy": "layer_split", "num_devices": 4, "devices_per_rank": 2}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices_per_rank": 2}, "which only layer_split uses"),
        ({"strategy": "layer_split", "num_devices": 2}, "set devices_per_rank=2"),
        ({**SPLIT, "num_devices": 3}, "not a multiple of devices_per_rank 2"),
        ({"strategy": "ddp", "offload": "optimizer"}, "needs strategy=zero2 or zero3"),
        ({"strategy": "zero2", "offload": "parameters"}, "needs strategy=zero3 or fsdp"),
        ({"strategy": "fsdp", "offload": "parameters", "offload_device": "nvme"}, "zero3"),
        ({"strategy": "zero3", "offload_device": "nvme", "nvme_path": "/n"}, "and an offload"),
        ({"strategy": "zero3", "offload": "parameters", "offload_device": "nvme"}, "together"),
        ({"strategy": "zero3", "offload": "parameters", "nvme_path": "/n"}, "together"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        spec(**changes)


def test_layers_over_two_devices_each_make_half_as_many_ranks() -> None:
    made = spec(**SPLIT, effective_batch_size=2)
    assert made.parallel.ranks == 2


def test_a_spec_written_before_the_newer_strategies_loads_as_it_is() -> None:
    old = """version = 1
[model]
model = "m"
[data]
data = "d"
[method]
method = "full"
[parallel]
strategy = "zero3"
device_kind = "cuda"
num_devices = 2
devices = ["GPU-1", "GPU-2"]
offload = "optimizer"
[training]
effective_batch_size = 2
"""
    made = loads(old)
    assert (made.parallel.ranks, made.parallel.offload_device) == (2, "cpu")
    assert loads(dumps(made)) == made
