"""Real runs of the tiny model on two CPU ranks, for tests that take their world away."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.spec import Spec
from tests.fakes.tiny.make import data_file, model_folder
from tests.runner.making import facts, plan, spec
from wizard import script
from wizard.answers import DEFAULT_POLICY, Policy
from wizard.problem import ProblemError
from wizard.runner import stop
from wizard.runner.folder import create, is_alive


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny model and its data."""
    root = tmp_path_factory.mktemp("world")
    model_folder(root / "tiny")
    data_file(root / "rows.jsonl")
    return root


@pytest.fixture
def make(world: Path, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes run folders; a run that a test leaves alive is ended with it.

    `rungs` are changes of the training table, one after the other, as the ladder makes them.
    """
    made: list[Path] = []

    def run(
        max_steps: int,
        save_steps: int = 5,
        *,
        rungs: tuple[dict[str, Any], ...] = (),
        policy: Policy = DEFAULT_POLICY,
        root: Path = tmp_path,
        **training: Any,
    ) -> Path:
        main = spec(
            model={"model": str(world / "tiny")},
            data={"data": str(world / "rows.jsonl"), "max_length": 64},
            training={"max_steps": max_steps, "save_steps": save_steps, **training},
        )
        files = script.render(
            plan(main, tuple(changed(main, rung) for rung in rungs)),
            name="life",
            python=sys.executable,
            facts=facts(),
            written="today",
            policy=policy,
        )
        made.append(create(files, root=root, name=f"life {len(made)}"))
        return made[-1]

    yield run
    for folder in made:
        if is_alive(folder):
            with contextlib.suppress(ProblemError):  # it may end by itself just then
                stop.now(folder)


def changed(main: Spec, training: dict[str, Any]) -> Spec:
    """The spec with other training settings."""
    return main.model_copy(update={"training": main.training.model_copy(update=training)})


SABOTAGE = """
import json, os, sys, time
from importlib.abc import MetaPathFinder

class Sabotage(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "engine.measure":
            return None
        sys.meta_path.remove(self)
        import torch
        from transformers import Trainer
        word = lambda option: int(sys.argv[sys.argv.index(option) + 1])
        attempt, rung, rank = word("--attempt"), word("--rung"), int(os.environ["RANK"])
        whole = Trainer.training_step
        def sabotaged(trainer, model, inputs, *args, **kwargs):
            step = trainer.state.global_step + 1
            exec(BODY, {**globals(), **locals(), "torch": torch, "attempt": attempt,
                        "rung": rung, "rank": rank})
            return whole(trainer, model, inputs, *args, **kwargs)
        Trainer.training_step = sabotaged

if "engine.train" in " ".join(sys.orig_argv) and "RANK" in os.environ:
    sys.meta_path.insert(0, Sabotage())
"""


@pytest.fixture
def sabotage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Runs code before every micro-batch of every rank; it knows step, rank, attempt and rung."""

    def install(body: str) -> None:
        folder = tmp_path / "site"
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(f"BODY = {body!r}\n{SABOTAGE}")
        monkeypatch.setenv("PYTHONPATH", str(folder))

    return install
