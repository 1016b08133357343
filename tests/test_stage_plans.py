"""Plans of the other stages: chosen by the rows, with memory for what passes through at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.planning import facts, fixed, refusal
from wizard import api
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner import plans
from wizard.probe.machine import find
from wizard.problem import ProblemError


def of(shape: str, **values: Any) -> Facts:
    made = facts()
    assert made.dataset is not None
    return replace(made, dataset=replace(made.dataset, format=shape, **values))


def lora(given: Facts, **values: Any) -> Plan:
    return plans(given, fixed(method="lora", strategy="single", **values))[0]


@pytest.mark.parametrize(
    ("shape", "stage", "title"),
    [
        ("messages", "sft", "LoRA"),
        ("text", "pretrain", "Pre-training, LoRA"),
        ("preference", "dpo", "DPO, LoRA"),
        ("kto", "kto", "KTO, LoRA"),
    ],
)
def test_the_rows_tell_the_stage(shape: str, stage: str, title: str) -> None:
    plan = lora(of(shape))

    assert plan.spec.method.stage == stage
    assert plan.title.startswith(title)


def test_blocks_of_text_are_filled_and_nothing_is_said_of_rows_that_are_cut() -> None:
    lines = of("text", rows=5000, total_chars=400_000, length_counts=((80, 5000),))
    known = replace(find("8 H100"), model=lines.model, dataset=lines.dataset)
    plan = lora(known)
    assert "nothing is cut" in plan.reasons["max_length"]
    assert "rows keep their own place" not in plan.reasons["packing"]
    assert plan.steps is not None
    assert plan.step_seconds is not None
    assert plan.run_seconds == pytest.approx(plan.steps * plan.step_seconds), (
        "all are of one length"
    )


def test_too_few_blocks_are_refused_with_what_would_do() -> None:
    problem = refusal(of("text", rows=9, total_chars=50_000), fixed(effective_batch_size=16))
    assert "do not fill one step of 16" in problem.what
    assert "effective_batch_size=7 or less" in problem.fix
    assert "a shorter max_length" in problem.fix


def test_a_pair_takes_the_memory_of_two_rows() -> None:
    sizes = {"max_length": 1024, "effective_batch_size": 8, "gradient_checkpointing": True}
    pairs = lora(of("preference"), **sizes, per_device_train_batch_size=1)
    rows = lora(of("messages"), **sizes, per_device_train_batch_size=2)

    def size(plan: Plan, name: str) -> int:
        return sum(part.bytes for part in plan.memory.parts if part.name == name)

    for name in ("activations", "layer workspace"):
        assert size(pairs, name) == size(rows, name) > 0
    assert pairs.memory.device_bytes == pytest.approx(rows.memory.device_bytes, rel=1e-3)


def test_an_adapter_that_is_gone_on_with_is_kept_as_reference() -> None:
    new = lora(of("preference"))
    on = lora(of("preference"), adapter="/a")

    (part,) = [part for part in on.memory.parts if part.name == "reference"]
    adapter = next(part for part in on.memory.parts if part.name == "adapter")
    assert part.bytes == pytest.approx(adapter.bytes, rel=0.01)
    assert "reference" not in {part.name for part in new.memory.parts}


def test_an_embedding_that_is_trained_whole_is_counted_with_its_states() -> None:
    sizes = {"max_length": 1024, "effective_batch_size": 8, "per_device_train_batch_size": 1}
    alone = lora(of("messages"), **sizes)
    whole = lora(of("messages"), **sizes, modules_to_save="embed_tokens,lm_head")

    given = facts().model
    assert given is not None
    assert given.embedding_parameters is not None
    (part,) = [p for p in whole.memory.parts if p.name == "modules trained whole"]
    assert part.bytes == given.embedding_parameters * 16
    assert whole.memory.device_bytes > alone.memory.device_bytes + part.bytes


def test_preferences_move_the_weights_far_less_than_answers_do() -> None:
    rates = {shape: lora(of(shape)).spec.training.learning_rate for shape in ("messages", "kto")}

    assert rates["kto"] < rates["messages"] / 10


def test_kto_never_has_a_row_alone_in_a_micro_batch_not_even_on_its_ladder() -> None:
    plan = lora(of("kto"), effective_batch_size=8)

    sizes = [spec.training.per_device_train_batch_size for spec in (plan.spec, *plan.rungs)]
    assert min(sizes) == 2


def test_a_batch_that_leaves_kto_one_row_is_refused() -> None:
    problem = refusal(of("kto"), fixed(per_device_train_batch_size=1))

    assert "another of its micro-batch" in problem.what
    assert "per_device_train_batch_size=2" in problem.fix


def test_text_is_counted_in_blocks() -> None:
    plan = lora(of("text", rows=100, total_chars=8_000_000), num_train_epochs=1)

    blocks = 8_000_000 / 4 / plan.spec.data.max_length
    assert plan.spec.data.max_length == 2048
    assert plan.steps == pytest.approx(blocks / plan.spec.training.effective_batch_size, rel=0.05)
    assert plan.spec.model.template is None


def test_rows_that_are_held_out_are_not_counted_as_steps() -> None:
    batch = {"effective_batch_size": 10, "num_train_epochs": 1.0}
    whole = lora(of("messages", rows=1000), **batch)
    held = lora(of("messages", rows=1000), **batch, eval_split=0.2)

    assert (whole.steps, held.steps) == (100, 80)
    assert whole.spec.training.eval_steps is None
    assert held.spec.training.eval_steps == held.spec.training.save_steps


def test_the_run_saves_when_it_evaluates() -> None:
    plan = lora(of("messages", rows=1000), eval_split=0.2, eval_steps=7)

    assert plan.spec.training.save_steps % 7 == 0


def test_a_stage_that_cannot_read_the_rows_is_refused() -> None:
    problem = refusal(of("preference"), fixed(stage="kto"))

    assert "cannot read rows in the format `preference`: set stage=dpo or reward" in problem.what


def adapter(folder: Path, **values: Any) -> str:
    folder.mkdir()
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 20, "target_modules": ["v_proj", "q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps({**config, **values}))
    return str(folder)


def test_an_adapter_brings_its_own_settings(tmp_path: Path) -> None:
    answers = Answers(settings={"adapter": adapter(tmp_path / "a", use_dora=True)})
    found = api.absolute(answers).settings

    assert (found["lora_rank"], found["lora_alpha"], found["use_dora"]) == (8, 20, True)
    assert found["target_modules"] == "q_proj,v_proj"


def test_an_adapter_that_contradicts_a_fixed_setting_is_refused(tmp_path: Path) -> None:
    named = adapter(tmp_path / "a")
    with pytest.raises(
        ProblemError, match="lora_rank=16 is fixed, but the adapter has lora_rank=8"
    ):
        api.absolute(Answers(settings={"adapter": named, "lora_rank": 16}))
    for other in (str(tmp_path), adapter(tmp_path / "b", peft_type="IA3")):
        with pytest.raises(ProblemError, match="adapter_config"):
            api.absolute(Answers(settings={"adapter": other}))
