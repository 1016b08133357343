"""Levers and code of the user in a plan: shown, counted, and refused where they do nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import rules
from engine.settings import parse_setting
from engine.spec import SpecError, dumps, loads
from tests.planning import facts
from tests.test_rules import spec
from tests.test_script import render
from wizard import api, presets
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner import plans
from wizard.planner.closed_forms import FEWER_STATES
from wizard.probe.dataset import read_dataset
from wizard.problem import ProblemError

CODE = "from x import y\nA = 1\n\ndef halved(*_):\n    return 0\n\nclass Mine:\n    pass\n"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    path = tmp_path / "my code.py"
    path.write_text(CODE)
    return path


def best(found: Facts, **settings: Any) -> Plan:
    return api.best(plans(found, Answers(settings=settings)))


def reason(plan: Plan, setting: str) -> str:
    return next(d.reason for d in plan.decisions if d.setting == setting)


def test_code_is_named_by_an_absolute_path_and_never_run(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(code.parent)
    settings = {"loss": "my code.py:halved", "callback": "my code.py:Mine, my code.py:A"}
    found = api.absolute(Answers(settings=settings)).settings
    assert found == {"loss": f"{code}:halved", "callback": f"{code}:Mine,{code}:A"}


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("none.py:f", "No such file"),
        ("my code.py:halve", "has no `halve`.*did you mean halved"),
        ("my code.py:zzz", "it has y, A, halved, Mine"),
        ("bad.py:f", r"bad\.py, line 1: "),
    ],
)
def test_code_that_is_not_there_is_said_when_it_is_named(
    code: Path, monkeypatch: pytest.MonkeyPatch, named: str, said: str
) -> None:
    monkeypatch.chdir(code.parent)
    Path("bad.py").write_text("def f(:\n")
    with pytest.raises(ProblemError, match=said) as caught:
        api.absolute(Answers(settings={"loss": named}))
    assert caught.value.problem.where == "plugins.loss"


def test_a_setting_can_be_named_with_its_table() -> None:
    assert parse_setting("plugins.loss", "/a/b.py:f") == ("loss", "/a/b.py:f")
    assert parse_setting("--training.seed", "3") == ("seed", 3)
    with pytest.raises(SpecError, match=r"unknown setting `data\.seed`"):
        parse_setting("data.seed", "3")
    for wrong in ("ipo", "a.py", "a.py:1x", "a.txt:f", "a.py:f,"):
        with pytest.raises(SpecError, match=r"write a Python file and a name in it"):
            parse_setting("callback", wrong)


def test_a_spec_keeps_its_code_and_older_ones_have_none(code: Path) -> None:
    made = spec(loss=f"{code}:halved")
    assert "[plugins]" in dumps(made)
    assert loads(dumps(made)) == made
    assert "plugins" not in dumps(spec())
    assert not loads(dumps(spec())).plugins.named
    with pytest.raises(ValueError, match=r"plugins\.loss takes one of your own, not 2"):
        spec(loss="/a.py:f,/b.py:g")


@pytest.mark.parametrize("kind", ["loss", "metric", "callback", "preprocessor", "trainer"])
def test_a_preset_brings_no_code(kind: str) -> None:
    text = f'schema = 1\ntitle = "t"\n[settings]\n{kind} = "mine.py:f"\n'
    with pytest.raises(ProblemError, match="is not allowed in a preset: it would load code"):
        presets.loads(text, "theirs", "file")


def test_the_script_and_the_plan_say_which_code_runs() -> None:
    made = best(facts(), loss="/my/co de.py:f")
    assert [str(p) for p in made.problems if p.severity == "info"] == [
        "plugins.loss: code of yours runs: loss from /my/co de.py:f "
        "(a copy of the file is kept with the run)"
    ]
    text = render(made)["run.sh"]
    assert "\n# code  loss: /my/co de.py:f (yours; the run keeps a copy in plugins/)\n" in text
    assert "# code  " not in render(best(facts()))["run.sh"]


def test_rows_that_code_makes_are_counted_as_they_are(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"q": "who?", "a": ["you", {"b": "me"}]}\n' * 3)
    with pytest.raises(ProblemError, match="none of its 3 rows can be used"):
        read_dataset(str(rows))
    found = read_dataset(str(rows), {"preprocessor": "/a.py:f"})
    assert (found.rows, found.format, found.total_chars) == (3, None, 3 * 9)
    made = best(replace(facts(), dataset=found), preprocessor="/a.py:f", effective_batch_size=1)
    assert made.spec.data.data_format == "auto"


def test_packs_are_counted_in_place_of_rows() -> None:
    data = facts(rows=5000, chars=3000).dataset
    assert data is not None
    many = replace(facts(), dataset=replace(data, total_chars=5000 * 800))
    plain, packed = best(many), best(many, packing=True)

    assert packed.spec.training.per_device_train_batch_size == 1
    assert packed.spec.data.max_length == 2048
    assert "pack" in reason(packed, "max_length")
    # 1,005,000 tokens of four characters and an end, in packs of 2048 that are 95 % full.
    packs = 517
    effective = packed.spec.training.effective_batch_size
    assert packed.steps == 3 * -(-packs // effective)
    assert plain.steps is not None
    assert packed.steps < plain.steps


@pytest.mark.parametrize("setting", ["packing", "padding_free"])
def test_rows_are_not_joined_in_models_that_were_not_seen_to_keep_them_apart(setting: str) -> None:
    found = facts()
    assert found.model is not None
    other = replace(found, model=replace(found.model, architecture="opt"))
    with pytest.raises(ProblemError, match=f"{setting} is not known to keep rows apart"):
        plans(other, Answers(settings={setting: True}))


def test_rows_in_one_sequence_are_counted_with_their_mask() -> None:
    fixed = {"strategy": "single", "method": "lora", "per_device_train_batch_size": 4}
    plain, joined = (
        best(facts(), **fixed, max_length=1024, padding_free=padding_free)
        for padding_free in (False, True)
    )
    assert joined.memory.device_bytes > plain.memory.device_bytes


@pytest.mark.parametrize("optim", FEWER_STATES)
def test_an_optimizer_with_fewer_states_is_counted_with_fewer(optim: str) -> None:
    changes = {"method": "full", "optim": optim}
    found = facts("h100x8", "Qwen/Qwen2.5-1.5B")
    made = best(found, strategy="single", **changes)
    usual = best(found, strategy="single", method="full", optim="adamw_torch_fused")
    states = {part.name: part.bytes for part in made.memory.parts}.get("optimizer", 0)
    adam = {part.name: part.bytes for part in usual.memory.parts}["optimizer"]
    assert states <= adam  # one moment of 4 B is as large as two of 2 B


@pytest.mark.parametrize(
    ("changes", "setting"),
    [
        ({"stage": "dpo", "loss": "/a.py:f"}, "loss"),
        ({"loss": "/a.py:f", "trainer": "/a.py:G"}, "loss"),
        ({"metric": "/a.py:f"}, "metric"),
        ({"stage": "reward", "eval_split": 0.1, "metric": "/a.py:f"}, "metric"),
        ({"stage": "pretrain", "packing": True}, "packing"),
        ({"stage": "kto", "per_device_train_batch_size": 2, "packing": True}, "packing"),
        ({"stage": "dpo", "padding_free": True}, "padding_free"),
        ({"packing": True, "group_by_length": True}, "group_by_length"),
        ({"stage": "pretrain", "group_by_length": True}, "group_by_length"),
        ({"device_kind": "cpu", "dtype": "float32", "tf32": True}, "tf32"),
        ({"device_kind": "cpu", "use_liger_kernel": True}, "use_liger_kernel"),
        ({"device_kind": "cpu", "activation_offloading": True}, "activation_offloading"),
        ({"strategy": "zero3", "activation_offloading": True}, "activation_offloading"),
        ({"strategy": "fsdp", "torch_compile": True}, "torch_compile"),
        ({"method": "qlora", "torch_compile": True}, "torch_compile"),
        ({"stage": "dpo", "neftune_noise_alpha": 5.0}, "neftune_noise_alpha"),
        ({"strategy": "zero2", "optim": "adafactor"}, "optim"),
        ({"strategy": "fsdp", "optim": "adafactor"}, "optim"),
        ({"strategy": "fsdp", "optim": "lion_32bit"}, "optim"),
        ({"device_kind": "cpu", "optim": "paged_lion_8bit"}, "optim"),
        ({"device_kind": "npu", "attn_implementation": "flash_attention_3"}, "attn_implementation"),
    ],
)
def test_a_lever_that_would_do_nothing_is_refused_and_its_remedy_helps(
    changes: dict[str, Any], setting: str
) -> None:
    if "per_device_train_batch_size" in changes:
        changes |= {"effective_batch_size": 2}
    made = spec(**changes)
    assert setting in [violation.setting for violation in rules.check(made)]
    while broken := rules.check(made):
        name, value = parse_setting(*broken[0].nearest.split("=", 1))
        changes = {**changes, name: value}
        made = spec(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"min_lr_rate": 0.2}, "used by lr_scheduler_type=cosine_with_min_lr only"),
        ({"dataloader_prefetch_factor": 2}, "needs dataloader_num_workers"),
        ({"padding_free": True, "group_by_length": True}, "leave one out"),
        ({"greater_is_better": True}, "is said of metric_for_best_model"),
        ({"optim": "sgd", "adam_beta1": 0.8}, "optim=sgd has no adam_beta1"),
        ({"optim": "lion_8bit", "adam_epsilon": 1e-6}, "optim=lion_8bit has no adam_epsilon"),
    ],
)
def test_a_value_that_nothing_reads_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        spec(**changes)


def test_names_of_other_trainers_are_taken_for_levers() -> None:
    for given, name, value in (
        (("sample_packing", "true"), "packing", True),
        (("train_sampling_strategy", "group_by_length"), "group_by_length", True),
        (("enable_liger_kernel", "true"), "use_liger_kernel", True),
        (("neftune_alpha", "5"), "neftune_noise_alpha", 5.0),
        (("optim", "adamw_8bit"), "optim", "adamw_bnb_8bit"),
        (("flash_attn", "fa2"), "attn_implementation", "flash_attention_2"),
        (("trainer_cls", "a.py:T"), "trainer", "a.py:T"),
    ):
        assert parse_setting(*given) == (name, value)


def test_packages_of_levers_are_named() -> None:
    def needed(**changes: Any) -> set[str]:
        return set(rules.packages(spec(**changes)))

    assert needed(use_liger_kernel=True) == {"liger-kernel"}
    assert needed(attn_implementation="flash_attention_3") == {"flash-attn-3"}
    assert needed(optim="lion_32bit") == {"bitsandbytes"}
    for tracker in ("tensorboard", "wandb", "swanlab", "mlflow"):
        assert needed(report_to=tracker) == {tracker}
