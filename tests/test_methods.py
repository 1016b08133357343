"""A spec says which stage trains, refuses what that stage does not use, and old ones still load."""

from __future__ import annotations

from typing import Any

import pytest

from engine import rules
from engine.methods import ADAPTER_ONLY, LOSSES, METRICS, STAGE_FORMAT, STAGE_SETTINGS
from engine.settings import parse_setting
from engine.spec import Spec, SpecError, dumps, loads

OLD = """
version = 1
[model]
model = "/m"
[data]
data = "/d"
[method]
method = "lora"
[parallel]
strategy = "single"
device_kind = "cpu"
[training]
effective_batch_size = 4
per_device_train_batch_size = 4
"""


def spec(
    method: str = "lora",
    *,
    data: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    strategy: str = "single",
    **options: Any,
) -> Spec:
    return Spec.model_validate(
        {
            "model": {"model": "/m", "dtype": "float32"},
            "data": {"data": "/d", **(data or {})},
            "method": {"method": method, **options},
            "parallel": {"strategy": strategy, "device_kind": "cpu"},
            "training": {
                "effective_batch_size": 4,
                "per_device_train_batch_size": 4,
                **(training or {}),
            },
        }
    )


def refusal(*args: Any, **values: Any) -> str:
    with pytest.raises(ValueError, match="Value error, ") as caught:
        spec(*args, **values)
    return str(caught.value)


def test_a_spec_from_before_there_were_stages_trains_answers() -> None:
    made = loads(OLD)

    assert made.method.stage == "sft"
    assert not made.data.evaluates
    assert loads(dumps(made)) == made


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        (("stage", "pt"), "stage", "pretrain"),
        (("stage", "rm"), "stage", "reward"),
        (("rlhf_type", "kto"), "stage", "kto"),
        (("pref_beta", "0.3"), "beta", 0.3),
        (("pref_loss", "ipo"), "loss_type", "ipo"),
        (("val_size", "0.1"), "eval_split", 0.1),
        (("adapter_name_or_path", "a"), "adapter", "a"),
        (("additional_target", "embed_tokens"), "modules_to_save", "embed_tokens"),
        (("init_lora_weights", "true"), "init_lora_weights", "default"),
        (("loss_type", "none"), "loss_type", None),
    ],
)
def test_names_of_other_trainers_are_taken(given: tuple[str, str], name: str, value: Any) -> None:
    assert parse_setting(*given) == (name, value)


def test_an_unknown_loss_is_told_all_that_there_are() -> None:
    with pytest.raises(SpecError, match=r"'sigmoid'.*'kto'"):
        parse_setting("loss_type", "orpo")


@pytest.mark.parametrize("stage", ["sft", "pretrain", "dpo", "kto", "reward"])
@pytest.mark.parametrize("setting", STAGE_SETTINGS)
def test_a_setting_of_another_stage_is_refused(stage: str, setting: str) -> None:
    value: Any = LOSSES.get(stage, ("sigmoid",))[0] if setting == "loss_type" else 0.2  # type: ignore[call-overload]
    options: dict[str, Any] = {}
    options |= {"loss_type": "robust"} if setting == "label_smoothing" and stage == "dpo" else {}
    if stage in STAGE_SETTINGS[setting]:
        assert getattr(spec(stage=stage, **{setting: value}, **options).method, setting) == value
    else:
        assert f"{setting} is a setting of stage=" in refusal(stage=stage, **{setting: value})


def test_a_loss_of_another_stage_is_refused_with_those_of_this_one() -> None:
    assert "its losses are kto, apo_zero_unpaired" in refusal(stage="kto", loss_type="ipo")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"loss_type": "sigmoid", "label_smoothing": 0.1},
            "exo_pair, robust, aot, aot_unpaired only",
        ),
        ({"label_smoothing": 0.1}, "exo_pair, robust, aot, aot_unpaired only"),
        ({"loss_type": "exo_pair"}, "set 0.001"),
    ],
)
def test_label_smoothing_goes_with_the_losses_that_use_it(
    options: dict[str, Any], said: str
) -> None:
    assert said in refusal(stage="dpo", **options)
    assert spec(stage="dpo", loss_type="exo_pair", label_smoothing=1e-3).method.label_smoothing


@pytest.mark.parametrize("setting", [*ADAPTER_ONLY, "init_lora_weights"])
def test_an_adapters_setting_is_refused_where_all_weights_are_trained(setting: str) -> None:
    value = {"use_rslora": True, "use_dora": True, "init_lora_weights": "pissa"}.get(setting, "x")
    assert f"{setting} needs an adapter: set method=lora" in refusal("full", **{setting: value})


def test_an_adapter_that_is_gone_on_with_is_not_started_anew() -> None:
    assert "leave one out" in refusal(adapter="/a", init_lora_weights="pissa")


@pytest.mark.parametrize("stage", STAGE_FORMAT)
def test_rows_of_another_stage_are_refused_and_the_right_stage_is_named(stage: str) -> None:
    own = STAGE_FORMAT[stage]
    assert spec(stage=stage, data={"data_format": own}).data.data_format == own
    said = refusal(stage=stage, data={"data_format": "messages"})
    assert f"stage={stage} cannot read rows in the format `messages`: set stage=sft" in said
    assert f"set stage={stage}" in refusal(data={"data_format": own}) or stage == "reward"


def test_text_has_no_system_turn() -> None:
    assert "which has no turns" in refusal(stage="pretrain", data={"system": "s"})


def test_a_run_evaluates_on_one_thing_and_in_time() -> None:
    both = {"eval_data": "/e", "eval_split": 0.1}
    assert "both set" in refusal(data=both)
    assert "eval_steps needs rows" in refusal(training={"eval_steps": 5})
    held = {"eval_split": 0.1}
    off = {"eval_steps": 30, "save_steps": 100}
    assert "set save_steps=120" in refusal(data=held, training=off)
    assert spec(data=held, training={"eval_steps": 25, "save_steps": 100}).data.evaluates


@pytest.mark.parametrize("stage", METRICS)
def test_the_best_checkpoint_is_told_by_what_the_stage_measures(stage: str) -> None:
    held = {"eval_split": 0.1}
    for metric in METRICS[stage]:  # type: ignore[index]
        made = spec(stage=stage, data=held, training={"metric_for_best_model": metric})
        assert made.training.metric_for_best_model == metric
    bad = {"metric_for_best_model": "eval_bleu"}
    assert "is not measured by stage" in refusal(stage=stage, data=held, training=bad)


def broken(*args: Any, **values: Any) -> list[str]:
    return [violation.nearest for violation in rules.check(spec(*args, **values))]


def test_kto_needs_a_neighbour_in_the_micro_batch() -> None:
    alone = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    assert broken(stage="kto", training=alone) == ["per_device_train_batch_size=2"]
    assert broken(stage="kto", loss_type="apo_zero_unpaired", training=alone) == []
    assert broken(stage="kto") == []


@pytest.mark.parametrize("start", ["pissa", "pissa_niter_16", "olora"])
def test_an_adapter_that_takes_from_the_weights_is_refused_where_that_goes_wrong(
    start: str,
) -> None:
    default = ["init_lora_weights=default"]
    assert broken(init_lora_weights=start) == []
    assert broken(init_lora_weights=start, stage="dpo") == default
    assert broken("qlora", init_lora_weights=start) == default
    assert broken(init_lora_weights=start, strategy="zero3") == default
    assert broken(init_lora_weights=start, use_dora=True) == default
    assert broken(init_lora_weights="gaussian", stage="dpo", use_dora=True) == []
