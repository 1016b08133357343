"""Every strategy trains for real, learns what one device learns, and goes on as if unbroken."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from engine import rules
from engine.spec import OFFLOADS, Method, Spec, Strategy, loads
from tests.engine.conftest import Run
from tests.engine.together import train_together

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]
STEPS = 4
KEPT = 2
SAME_LOSS = 2e-5
"""What is allowed between two ways to the same float32 loss of about 5; 0 to 1e-6 was seen."""
SAME_WEIGHTS = 1e-3
"""Adam divides by small numbers: a last bit of a gradient becomes a part of a step of 0.01."""
SPLITS = ((2, 4), (4, 2), (8, 1))
"""Rows at once × accumulation of one device: eight rows a step."""

Case = tuple[Strategy, Method, str]
FEW: tuple[Case, ...] = (
    ("ddp", "full", "none"),
    ("zero2", "full", "none"),
    ("zero3", "full", "parameters"),
    ("fsdp", "full", "none"),
    ("zero1", "lora", "none"),
    ("fsdp", "lora", "parameters"),
    ("fsdp", "qlora", "none"),
    ("zero2", "qlora", "optimizer"),
)


def every() -> Iterator[Case]:
    """Strategies of several ranks × methods × what each can keep in host memory."""
    for strategy, method in itertools.product(get_args(Strategy), get_args(Method)):
        if strategy not in ("single", "layer_split"):
            for offload in ("none", *OFFLOADS.get(strategy, ())):
                yield strategy, method, offload


def spec_of(run: Run) -> Spec:
    return loads((run.folder / "spec.toml").read_text())


def halfway(run: Run, folder: Path) -> Run:
    """A copy of a run as it was at its first checkpoint."""
    shutil.copytree(run.folder, folder)
    for made_later in ("model", f"checkpoints/checkpoint-{STEPS}"):
        shutil.rmtree(folder / made_later)
    return Run(folder=folder, ranks=run.ranks)


def weights(run: Run) -> dict[str, Any]:
    """The tensors of the model folder."""
    from safetensors.torch import load_file

    (file,) = (run.folder / "model").glob("*.safetensors")
    return load_file(file)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """Runs of the same rows: on two ranks, on one, and those of two ranks again from half-way."""

    two: Mapping[Case, Run]
    one: Mapping[tuple[Method, int], Run]
    resumed: Mapping[Case, Run]


@pytest.fixture(
    scope="module", params=[FEW, pytest.param(tuple(every()), marks=pytest.mark.slow)], ids=len
)
def trained(
    request: pytest.FixtureRequest, make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    first = make_run("full", "ddp", 2)

    def made(method: str, strategy: str, ranks: int, **others: Any) -> Run:
        steps = {"max_steps": STEPS, "save_steps": KEPT, "save_total_limit": STEPS}
        return make_run(method, strategy, ranks, prepared=first, **steps, **others)

    two = {case: made(case[1], case[0], 2, offload=case[2]) for case in request.param}
    two = {case: run for case, run in two.items() if not rules.check(spec_of(run))}
    one = {
        ("full", rows): made(
            *("full", "single", 1),
            per_device_train_batch_size=rows,
            gradient_accumulation_steps=accumulation,
        )
        for rows, accumulation in SPLITS
    } | {(method, 2): made(method, "single", 1) for method in ("lora", "qlora")}
    train_together([run.folder for run in two.values()], 2)
    train_together([run.folder for run in one.values()], 1)
    again = tmp_path_factory.mktemp("resumed")
    resumed = {case: halfway(run, again / "-".join(case)) for case, run in two.items()}
    train_together([run.folder for run in resumed.values()], 2, "--resume", "--attempt=1")
    return Trained(two=two, one=one, resumed=resumed)


def test_every_strategy_learns_what_one_device_learns(trained: Trained) -> None:
    for (strategy, method, offload), run in trained.two.items():
        assert run.codes() == [0, 0], run.exits()
        losses = run.losses()
        assert losses[STEPS] < losses[1]
        alone = trained.one[method, 2].losses()
        assert losses == pytest.approx(alone, abs=SAME_LOSS), (strategy, method, offload)


def test_the_same_rows_split_three_ways_give_the_same_losses(trained: Trained) -> None:
    first, *others = (trained.one["full", rows] for rows, _ in SPLITS)
    for other in others:
        assert other.codes() == [0]
        assert other.losses() == pytest.approx(first.losses(), abs=SAME_LOSS)


def test_a_rank_alone_waits_for_nobody(trained: Trained) -> None:
    for run in trained.one.values():
        for step in run.events("step"):
            assert step["wait_seconds"] is None
            assert step["own_seconds"] == step["seconds"]


def test_every_strategy_writes_the_whole_model_once(trained: Trained, tiny_model: Path) -> None:
    from safetensors.torch import load_file

    base = load_file(tiny_model / "model.safetensors")
    adapter = weights(trained.one["lora", 2])
    for (strategy, method, offload), run in trained.two.items():
        expected = base if method == "full" else adapter
        alone = weights(trained.one[method, 2])
        for name, tensor in (found := weights(run)).items():
            assert tensor.shape == expected[name].shape
            assert tensor.sub(alone[name]).abs().max() < SAME_WEIGHTS, (strategy, offload, name)
        assert set(found) == set(expected)
        files = {path.suffix for path in (run.folder / "model").iterdir()}
        assert files <= {".safetensors", ".json", ".jinja", ".md"}


def test_a_resumed_run_ends_with_the_same_bits(trained: Trained) -> None:
    import torch

    for case, run in trained.resumed.items():
        assert run.codes(1) == [0, 0], run.exits(1)
        assert list(run.losses(1)) == [KEPT + 1, STEPS]
        straight, again = weights(trained.two[case]), weights(run)
        assert set(straight) == set(again)
        assert all(torch.equal(straight[name], again[name]) for name in straight), case


def test_what_the_sharding_library_was_told_is_shown(trained: Trained) -> None:
    for (strategy, _, offload), run in trained.two.items():
        if strategy == "fsdp":
            assert run.read("fsdp_config.json")["cpu_offload"] == (offload == "parameters")
        elif strategy != "ddp":
            zero = run.read("ds_config.json")["zero_optimization"]
            assert zero["stage"] == int(strategy.removeprefix("zero"))
            assert ("offload_optimizer" in zero) == (offload != "none")
        (step, *_) = run.events("step")
        assert (step["wait_seconds"] is None) == (strategy != "ddp")
