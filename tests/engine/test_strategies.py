"""Every strategy trains for real, learns what one device learns, and goes on as if unbroken."""

from __future__ import annotations

import itertools
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from engine import rules
from engine.events import EXIT_COMM, EXIT_OK
from engine.methods import Method
from engine.spec import OFFLOADS, Spec, Strategy, dumps, loads
from tests.engine.conftest import Run
from tests.engine.killed import Killed, kill_all, kills
from tests.engine.together import train_together

pytestmark = pytest.mark.engine

MakeRun = Callable[..., Run]
STEPS = 4
KEPT = 2
SAME_LOSS = 5e-6
"""What is allowed between two ways to the same float32 loss of about 5; up to 1e-6 was seen."""
SAME_WEIGHTS = 2e-5
"""What is allowed between their weights after four steps of 0.01; up to 2e-6 was seen."""
ROWS, ROWS_A_STEP = 16, 8
SPLITS = ((2, 4), (4, 2), (8, 1))
"""Rows at once × accumulation of one device: eight rows a step."""

Case = tuple[Strategy, Method, str]
FEW: tuple[Case, ...] = (
    ("single", "full", "none"),
    ("ddp", "full", "none"),
    ("zero2", "full", "none"),
    ("zero3", "full", "optimizer"),
    ("zero3", "full", "parameters"),
    ("fsdp", "full", "none"),
    ("zero1", "lora", "none"),
    ("fsdp", "lora", "parameters"),
    ("fsdp", "qlora", "none"),
)
ON_ANY_NUMBER: tuple[Case, ...] = (("ddp", "full", "none"), ("fsdp", "full", "none"))
"""Cases that are resumed on one rank too; DeepSpeed refuses."""


DAMAGED: Mapping[Case, tuple[str, bool]] = {
    ("ddp", "full", "none"): ("optimizer.pt", False),
    ("zero2", "full", "none"): ("*rank_1*optim_states.pt", True),
    ("fsdp", "full", "none"): ("pytorch_model_fsdp_0/__1_0.distcp", False),
}
"""Case → which file of its last checkpoint is damaged, and whether it is cut short."""


def every() -> Iterator[Case]:
    """Strategies × methods × what each can keep in host memory; layers need several devices."""
    for strategy, method in itertools.product(get_args(Strategy), get_args(Method)):
        if strategy != "layer_split":
            for offload in ("none", *OFFLOADS.get(strategy, ())):
                yield strategy, method, offload


def parts() -> Iterator[tuple[Case, ...]]:
    """The cases of each strategy and method: few enough for one go in ten minutes."""
    for _, cases in itertools.groupby(every(), key=lambda case: case[:2]):
        yield tuple(cases)


def spec_of(run: Run) -> Spec:
    return loads((run.folder / "spec.toml").read_text())


def halfway(run: Run, folder: Path) -> Run:
    """A copy of a run as it was at its first checkpoint, with no word of what came before."""
    shutil.copytree(run.folder, folder)
    for later in ("model", f"checkpoints/checkpoint-{STEPS}", "events", "exit"):
        shutil.rmtree(folder / later)
    return Run(folder=folder, ranks=run.ranks)


def damaged(run: Run, folder: Path, file: str, *, cut: bool) -> Run:
    """A copy of a run whose last checkpoint has one file cut short, or zeros of the same size."""
    shutil.copytree(run.folder, folder)
    for later in ("model", "events", "exit"):
        shutil.rmtree(folder / later)
    (path,) = (folder / f"checkpoints/checkpoint-{STEPS}").rglob(file)
    path.write_bytes(path.read_bytes()[:-100] if cut else bytes(path.stat().st_size))
    return Run(folder=folder, ranks=run.ranks)


def alone(run: Run) -> Run:
    """The same run, from now on of one rank that does the work of two."""
    spec = spec_of(run)
    accumulation = 2 * spec.training.gradient_accumulation_steps
    parallel = spec.parallel.model_copy(update={"num_devices": 1})
    training = spec.training.model_copy(update={"gradient_accumulation_steps": accumulation})
    made = spec.model_copy(update={"parallel": parallel, "training": training})
    (run.folder / "spec.toml").write_text(dumps(made))
    return Run(folder=run.folder, ranks=1)


def weights(run: Run) -> dict[str, Any]:
    """The tensors of the model folder."""
    from safetensors.torch import load_file

    (file,) = (run.folder / "model").glob("*.safetensors")
    tensors: dict[str, Any] = load_file(file)
    return tensors


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """Runs of the same rows: on two ranks, on one, killed and resumed, from half-way on one."""

    two: Mapping[Case, Run]
    one: Mapping[tuple[str, int], Run]
    killed: Mapping[Case, Sequence[Killed]]
    fewer: Mapping[Case, Run]
    damaged: Mapping[Case, Run]


def ranks_of(case: Case) -> int:
    return 1 if case[0] == "single" else 2


def with_kills(
    cases: Mapping[Case, Run], made: Callable[..., Run], each: int
) -> Mapping[Case, Sequence[Killed]]:
    """So many killed runs of each case, resumed; what is run in parts has a seed for each case."""
    seeds = {case: seed for seed, case in enumerate(FEW if each == 1 else every())}
    found = {
        case: [
            Killed(
                straight=straight,
                run=made(
                    *(case[1], case[0], ranks_of(case)),
                    offload=case[2],
                    save_steps=kill.save_steps,
                    save_total_limit=1,
                ),
                kill=kill,
            )
            for kill in kills(each, ranks_of(case), STEPS, 4 // ranks_of(case), seeds[case])
        ]
        for case, straight in cases.items()
    }
    pairs = [(pair.run, pair.kill) for these in found.values() for pair in these]
    print(kill_all((run.folder, run.ranks, kill) for run, kill in pairs))
    return found


@pytest.fixture(
    scope="module",
    params=[
        (FEW, 1),
        *(pytest.param((cases, 2), marks=pytest.mark.slow) for cases in parts()),
    ],
    ids=("few", *("-".join(cases[0][:2]) for cases in parts())),
)
def trained(
    request: pytest.FixtureRequest, make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    first = make_run("full", "ddp", 2)
    cases, each = request.param

    def made(method: str, strategy: str, ranks: int, **others: Any) -> Run:
        steps = {"max_steps": STEPS, "save_steps": KEPT, "save_total_limit": STEPS}
        return make_run(method, strategy, ranks, prepared=first, **steps | others)

    two = {
        case: made(case[1], case[0], 2, offload=case[2]) for case in cases if ranks_of(case) == 2
    }
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
    again = tmp_path_factory.mktemp("resumed")
    fewer = {
        case: alone(halfway(two[case], again / f"{case[0]} alone"))
        for case in ON_ANY_NUMBER
        if case in two
    }
    train_together([run.folder for run in (*one.values(), *fewer.values())], 1, "--resume")
    broken = {
        case: damaged(two[case], again / f"{case[0]} damaged", file, cut=cut)
        for case, (file, cut) in DAMAGED.items()
        if case in two
    }
    train_together([run.folder for run in broken.values()], 2, "--resume")
    singles = {case: one[case[1], 2] for case in cases if ranks_of(case) == 1}
    killed = with_kills({**singles, **two}, made, each)
    return Trained(two=two, one=one, killed=killed, fewer=fewer, damaged=broken)


def rows_by_step(run: Run, attempt: int) -> dict[int, list[list[int]]]:
    """Step → the rows that all ranks were given in it, by what they say."""
    found: dict[int, list[list[int]]] = {}
    for file in run.folder.glob(f"rows-{attempt}-*.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            found.setdefault(line["step"], []).extend(line["rows"])
    return {step: sorted(rows) for step, rows in found.items()}


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


def every_pair(trained: Trained) -> list[Killed]:
    return [pair for pairs in trained.killed.values() for pair in pairs]


def test_a_killed_run_goes_on_from_its_last_whole_checkpoint(trained: Trained) -> None:
    for pair in every_pair(trained):
        how = pair.run.read("killed.json")
        assert pair.run.codes(1) == [0] * pair.run.ranks, (pair.said(), pair.run.exits(1))
        assert how["torchrun"] == (1 if pair.kill.how == "rank" else -9), pair.said()
        assert not how["left"], pair.said()
        assert pair.kill.checkpoint() in (None, pair.from_step()), pair.said()
        if pair.kill.how == "rank":
            assert (how["watch"], how["failure"]) == (EXIT_COMM, "killed"), pair.said()
        if pair.kill.how == "torchrun":
            # Its ranks were ended by the watch, or had nothing left to train.
            lost = (EXIT_COMM, "killed")
            ended = (EXIT_OK, None) if pair.from_step() == STEPS else lost
            assert (how["watch"], how["failure"]) in (lost, ended), pair.said()
        print(pair.said())


def test_a_killed_and_resumed_run_has_lost_and_repeated_no_row(trained: Trained) -> None:
    for pair in every_pair(trained):
        straight, from_step = rows_by_step(pair.straight, 0), pair.from_step()
        before, after = rows_by_step(pair.run, 0), rows_by_step(pair.run, 1)
        seen = {step: rows for step, rows in before.items() if step <= from_step} | after
        assert seen == straight, pair.said()
        counted = Counter(tuple(row) for rows in seen.values() for row in rows)
        assert set(counted.values()) == {STEPS * ROWS_A_STEP // ROWS}, pair.said()
        assert len(counted) == ROWS


def test_a_killed_and_resumed_run_ends_with_the_same_bits(trained: Trained) -> None:
    import torch

    for pair in every_pair(trained):
        straight, again = weights(pair.straight), weights(pair.run)
        assert set(straight) == set(again)
        assert all(torch.equal(straight[name], again[name]) for name in straight), pair.said()
        rest = {s: loss for s, loss in pair.straight.losses().items() if s > pair.from_step()}
        assert pair.run.losses(1) == rest, pair.said()


def test_a_damaged_last_checkpoint_is_named_and_the_one_before_it_gone_on_from(
    trained: Trained,
) -> None:
    import torch

    for case, run in trained.damaged.items():
        assert run.codes() == [0, 0], run.exits()
        assert list(run.losses()) == [KEPT + 1, STEPS]
        (said,) = [event["text"] for event in run.events("warn")]
        assert said.startswith(f"checkpoint-{STEPS} is "), said
        straight, again = weights(trained.two[case]), weights(run)
        assert all(torch.equal(straight[name], again[name]) for name in straight), case


def test_ddp_and_fsdp_go_on_with_another_number_of_ranks(trained: Trained) -> None:
    for case, run in trained.fewer.items():
        assert run.codes() == [0], run.exits()
        straight = trained.two[case].losses()
        rest = {step: straight[step] for step in (KEPT + 1, STEPS)}
        assert run.losses() == pytest.approx(rest, abs=SAME_LOSS), case


def test_what_the_sharding_library_was_told_is_shown(trained: Trained) -> None:
    for (strategy, _, offload), run in trained.two.items():
        if strategy == "fsdp":
            assert run.read("fsdp_config.json")["cpu_offload"] == (offload == "parameters")
        elif strategy != "ddp":
            zero = run.read("ds_config.json")["zero_optimization"]
            assert zero["stage"] == int(strategy.removeprefix("zero"))
            assert ("offload_optimizer" in zero) == (offload != "none")


def test_what_a_rank_waits_is_told_of_every_step_or_of_some(trained: Trained) -> None:
    for (strategy, *_), run in trained.two.items():
        told = [step for step in run.events("step") if step["wait_seconds"] is not None]
        assert all(step["own_seconds"] > 0 for step in told)
        sampled = sum(step.get("sampled_steps", 0) for step in told)
        assert sampled == (0 if strategy == "ddp" else 1)
