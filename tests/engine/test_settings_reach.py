"""Every setting of a spec reaches the trainer or the model: nothing is silently ignored.

Each is set to something else than its default, and looked for where it takes effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import engine
from engine.settings import setting_info
from engine.spec import SETTINGS, Spec
from tests.engine.conftest import Run

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]
SHIPPED = (Path(engine.__file__).parent / "templates/chatml.jinja").read_text()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run was made of, in this process."""

    spec: Spec
    trainer: Any
    rows: Any
    folder: Path

    @property
    def args(self) -> Any:
        return self.trainer.args

    @property
    def config(self) -> Any:
        return self.trainer.model.config

    @property
    def lora(self) -> Any:
        return self.trainer.model.peft_config["default"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A run with settings that are not the defaults, and where each of them is seen."""

    settings: Mapping[str, Any]
    seen: Mapping[str, Callable[[Seen], Any]]
    """Setting → its value as the trainer, the model or the rows have it."""
    method: str = "lora"
    others: Mapping[str, Any] = field(default_factory=dict)
    """Settings that the case needs and does not look for."""


def argument(name: str) -> Callable[[Seen], Any]:
    return lambda seen: getattr(seen.args, name)


def adapter(name: str) -> Callable[[Seen], Any]:
    return lambda seen: getattr(seen.lora, name)


def optimizer(name: str) -> Callable[[Seen], Any]:
    return lambda seen: seen.trainer.create_optimizer().param_groups[0][name]


def rate_at_end(seen: Seen) -> float:
    """The learning rate of the last of 20 steps, as a share of the peak."""
    import torch

    parameter = torch.nn.Parameter(torch.zeros(1))
    steps = torch.optim.SGD([parameter], lr=1.0)
    schedule = seen.trainer.create_scheduler(20, steps)
    for _ in range(20):
        steps.step()
        schedule.step()
    return round(float(schedule.get_last_lr()[0]), 4)


def worker(seen: Seen, name: str) -> Any:
    return getattr(seen.trainer.get_train_dataloader().base_dataloader, name)


def sampler(seen: Seen) -> bool:
    return type(seen.trainer._get_train_sampler()).__name__ == "ByLength"


def decoded(seen: Seen, row: int = 0) -> str:
    return str(seen.trainer.processing_class.decode(seen.rows[row]["input_ids"]))


CODE = """
from transformers import TrainerCallback
from engine.recipes.sft import Trainer

class Mine(Trainer): pass
class Hook(TrainerCallback): pass
def of(*_): return {"m": 1}
def told(row):
    return {"messages": row["messages"][:1] + [{"role": "assistant", "content": "Told."}]}
"""

SFT_CASE = Case(
    settings={
        "dtype": "bfloat16",
        "attn_implementation": "eager",
        "template": "chatml",
        "system": "Be brief.",
        "max_length": 96,
        "eval_split": 0.25,
        "method": "lora",
        "lora_rank": 3,
        "lora_alpha": 7,
        "lora_dropout": 0.25,
        "target_modules": "q_proj,v_proj",
        "use_rslora": True,
        "use_dora": True,
        "init_lora_weights": "gaussian",
        "modules_to_save": "embed_tokens",
        "ddp_timeout": 77,
        "num_train_epochs": 2.5,
        "max_steps": 7,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 3,
        "effective_batch_size": 6,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "cosine_with_min_lr",
        "min_lr_rate": 0.25,
        "warmup_ratio": 0.2,
        "weight_decay": 0.02,
        "max_grad_norm": 0.5,
        "adam_beta1": 0.8,
        "adam_beta2": 0.95,
        "adam_epsilon": 1e-6,
        "neftune_noise_alpha": 5.0,
        "gradient_checkpointing": False,
        "group_by_length": True,
        "dataloader_num_workers": 2,
        "dataloader_prefetch_factor": 3,
        "seed": 5,
        "logging_steps": 4,
        "save_steps": 6,
        "eval_steps": 3,
        "metric_for_best_model": "eval_mean_token_accuracy",
        "greater_is_better": False,
    },
    seen={
        "dtype": lambda s: str(s.config.dtype).removeprefix("torch."),
        "attn_implementation": lambda s: s.config._attn_implementation,
        "template": lambda s: (
            "chatml" if s.trainer.processing_class.chat_template == SHIPPED else None
        ),
        "system": lambda s: "Be brief." if "Be brief." in decoded(s) else None,
        "max_length": lambda s: max(map(len, s.rows["input_ids"])),
        "eval_split": lambda s: (
            len(s.trainer.eval_dataset) / (len(s.rows) + len(s.trainer.eval_dataset))
        ),
        "method": lambda s: "lora" if hasattr(s.trainer.model, "peft_config") else "full",
        "lora_rank": adapter("r"),
        "lora_alpha": adapter("lora_alpha"),
        "lora_dropout": adapter("lora_dropout"),
        "target_modules": lambda s: ",".join(sorted(s.lora.target_modules)),
        "use_rslora": adapter("use_rslora"),
        "use_dora": adapter("use_dora"),
        "init_lora_weights": adapter("init_lora_weights"),
        "modules_to_save": lambda s: (
            {"embed_tokens"} & set(s.lora.modules_to_save) and "embed_tokens"
        ),
        "ddp_timeout": argument("ddp_timeout"),
        "num_train_epochs": argument("num_train_epochs"),
        "max_steps": argument("max_steps"),
        "per_device_train_batch_size": argument("per_device_train_batch_size"),
        "gradient_accumulation_steps": argument("gradient_accumulation_steps"),
        "effective_batch_size": lambda s: (
            s.args.train_batch_size * s.args.gradient_accumulation_steps * s.args.world_size
        ),
        "learning_rate": optimizer("lr"),
        "lr_scheduler_type": lambda s: s.args.lr_scheduler_type.value,
        "min_lr_rate": rate_at_end,
        "warmup_ratio": lambda s: s.args.get_warmup_steps(100) / 100,
        "weight_decay": optimizer("weight_decay"),
        "max_grad_norm": argument("max_grad_norm"),
        "adam_beta1": lambda s: optimizer("betas")(s)[0],
        "adam_beta2": lambda s: optimizer("betas")(s)[1],
        "adam_epsilon": optimizer("eps"),
        "neftune_noise_alpha": lambda s: s.trainer.neftune_noise_alpha,
        "gradient_checkpointing": argument("gradient_checkpointing"),
        "group_by_length": sampler,
        "dataloader_num_workers": lambda s: worker(s, "num_workers"),
        "dataloader_prefetch_factor": lambda s: worker(s, "prefetch_factor"),
        "seed": argument("seed"),
        "logging_steps": argument("logging_steps"),
        "save_steps": argument("save_steps"),
        "eval_steps": argument("eval_steps"),
        "metric_for_best_model": argument("metric_for_best_model"),
        "greater_is_better": argument("greater_is_better"),
    },
)
JOINED_CASE = Case(
    method="full",
    settings={"padding_free": True, "optim": "adafactor", "torch_compile": True},
    seen={
        "padding_free": lambda s: s.trainer.data_collator.padding_free,
        "optim": lambda s: type(s.trainer.create_optimizer()).__name__.lower(),
        "torch_compile": argument("torch_compile"),
    },
)
PACKED_CASE = Case(
    method="full",
    settings={"packing": True},
    seen={"packing": lambda s: s.trainer.data_collator.padding_free and len(s.rows) < 16},
)
DPO_CASE = Case(
    settings={"stage": "dpo", "beta": 0.3, "loss_type": "robust", "label_smoothing": 0.2},
    seen={
        "stage": lambda s: type(s.trainer).__mro__[1].__name__.removesuffix("Trainer").lower(),
        "beta": lambda s: s.trainer.beta,
        "loss_type": lambda s: s.trainer.loss_types[0],
        "label_smoothing": lambda s: s.trainer.label_smoothing,
    },
)
KTO_CASE = Case(
    settings={"desirable_weight": 1.5, "undesirable_weight": 0.5},
    seen={
        "desirable_weight": lambda s: s.trainer.desirable_weight,
        "undesirable_weight": lambda s: s.trainer.undesirable_weight,
    },
    others={"stage": "kto"},
)
REWARD_CASE = Case(
    settings={"center_rewards_coefficient": 0.01},
    seen={"center_rewards_coefficient": argument("center_rewards_coefficient")},
    others={"stage": "reward"},
)
CODE_CASE = Case(
    settings={"metric": "of", "callback": "Hook", "preprocessor": "told", "trainer": "Mine"},
    seen={
        "metric": lambda s: s.trainer.compute_metrics(None) == {"m": 1.0} and "of",
        "callback": lambda s: next(
            name
            for name in (type(one).__name__ for one in s.trainer.callback_handler.callbacks)
            if name == "Hook"
        ),
        "preprocessor": lambda s: "told" if "Told." in decoded(s) else None,
        "trainer": lambda s: type(s.trainer).__name__,
    },
    others={"eval_split": 0.25},
)
CASES = {
    "sft": SFT_CASE,
    "joined": JOINED_CASE,
    "packed": PACKED_CASE,
    "dpo": DPO_CASE,
    "kto": KTO_CASE,
    "reward": REWARD_CASE,
    "code": CODE_CASE,
}

ELSEWHERE: Mapping[str, str] = {
    "model": "every run loads it: tests/engine/test_train.py",
    "revision": "tests/engine/test_fetch.py: what is fetched",
    "source": "tests/engine/test_fetch.py: from where",
    "trust_remote_code": "tests/engine/test_own_code.py: whose code runs",
    "data": "tests/engine/test_sets.py: which rows",
    "data_format": "tests/engine/test_sets.py: how they are read",
    "columns": "tests/engine/test_sets.py: by which names",
    "model_name": "tests/engine/test_sets.py: in place of a placeholder",
    "model_author": "tests/engine/test_sets.py: in place of a placeholder",
    "max_dropped_percent": "tests/engine/test_prepare.py: refuses",
    "eval_data": "tests/engine/test_arrange.py: what is evaluated on",
    "adapter": "tests/engine/test_adapter.py: is trained on",
    "strategy": "tests/engine/test_strategies.py: each trains",
    "device_kind": "this machine has CPUs; tests/engine/test_shard.py: what libraries are told",
    "num_devices": "tests/engine/test_strategies.py: ranks",
    "devices_per_rank": "tests/engine/test_split.py",
    "devices": "tests/test_script.py: what is made visible",
    "offload": "tests/engine/test_strategies.py",
    "offload_device": "tests/engine/test_shard.py",
    "nvme_path": "tests/engine/test_shard.py",
    "save_total_limit": "tests/engine/test_save.py: what stays",
    "report_to": "tests/engine/test_runs_with_levers.py",
    "loss": "tests/engine/test_runs_with_levers.py: halves a run's losses",
}
"""Settings that act elsewhere → the test that sees them do so."""
DEVICE_ONLY = ("tf32", "use_liger_kernel", "activation_offloading")
"""Refused on CPU ranks; what the library is told of them is looked at without making a trainer."""


def test_every_setting_is_looked_for_somewhere() -> None:
    looked_for = {name for case in CASES.values() for name in case.seen}
    assert looked_for | set(ELSEWHERE) | set(DEVICE_ONLY) == set(SETTINGS)
    for case in CASES.values():
        assert set(case.seen) == set(case.settings)
        for name, value in case.settings.items():
            if name not in ("method", "dtype"):  # other runs here have others than the defaults
                assert value != setting_info(name).default, name


def test_what_only_accelerators_have_is_told_to_the_library() -> None:
    from engine.arguments import levers
    from tests.test_rules import spec

    told = levers(spec(tf32=False, use_liger_kernel=True, activation_offloading=True))
    assert {name: told[name] for name in DEVICE_ONLY} == {
        "tf32": False,
        "use_liger_kernel": True,
        "activation_offloading": True,
    }


@pytest.mark.parametrize("name", CASES)
def test_a_setting_reaches_what_trains(make_run: MakeRun, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    settings = dict(case.settings)
    if name == "code":
        (tmp_path / "mine.py").write_text(CODE)
        settings = {kind: f"{tmp_path / 'mine.py'}:{named}" for kind, named in settings.items()}
    batch = {} if name == "sft" else {"effective_batch_size": 8}
    settings.pop("method", None)
    run = make_run(case.method, "single", 1, here=True, **{**batch, **case.others, **settings})

    seen = made(run)

    for setting, look in case.seen.items():
        assert look(seen) == pytest.approx(case.settings[setting]), setting


def made(run: Run) -> Seen:
    """The trainer of a run on one device, as `engine.train` makes it, in this process."""
    from engine import arrange, plugins
    from engine.fetch import read_fetched, read_spec
    from engine.recipes import recipe
    from engine.report import Report
    from engine.train import load

    spec = read_spec(run.folder / "spec.toml")
    report = Report(run.folder, rank=0, attempt=0, rung=0)
    settings = recipe(spec).arguments(spec, run.folder, smoke=False)
    rows = arrange.load(run.folder, spec, smoke=False)
    held_out = arrange.load_held_out(run.folder, spec)
    code = plugins.plugged(spec, run.folder, recipe(spec).Trainer)
    callbacks = list(code.callbacks)
    fetched = read_fetched(run.folder)
    trainer = load(spec, settings, fetched, rows, held_out, callbacks, report, code)
    return Seen(spec=spec, trainer=trainer, rows=rows, folder=run.folder)


MEASURE = """
def shapes(predicted):
    said, wanted = predicted.predictions, predicted.label_ids
    return {"rows": len(said), "same": float(said.shape[:1] == wanted.shape[:1])}
"""


@pytest.mark.parametrize("stage", ["dpo", "kto"])
def test_a_metric_of_the_user_measures_the_rows_of_any_stage(
    make_run: MakeRun, tmp_path: Path, stage: str
) -> None:
    (tmp_path / "mine.py").write_text(MEASURE)
    settings = {"stage": stage, "eval_split": 0.25, "metric": f"{tmp_path / 'mine.py'}:shapes"}
    seen = made(make_run("lora", "single", 1, here=True, **settings))

    measured = seen.trainer.evaluate()

    pairs = 2 if stage == "dpo" else 1  # both answers of a pair are sequences
    assert measured["eval_rows"] == pairs * len(seen.trainer.eval_dataset)
    assert measured["eval_same"] == 1
