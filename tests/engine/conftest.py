"""A tiny model, and runs of it started as run.sh starts them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.events import decode_all
from engine.spec import SETTINGS, TABLES, Spec, dumps
from tests.fakes.tiny import make

RUN_SECONDS = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run folder of the tiny model."""

    folder: Path
    ranks: int

    def stage(self, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run one stage of a run that is not distributed."""
        return self._call(sys.executable, "-m", f"engine.{module}", "spec.toml", *words)

    def train(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Train under torchrun, as run.sh does."""
        return self._call(
            sys.executable,
            *("-m", "torch.distributed.run", "--standalone", "--max-restarts", "0"),
            *("--nproc-per-node", str(self.ranks), "-m", "engine.train", "spec.toml", *words),
            **environment,
        )

    def _call(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        here = {"PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", **environment}
        return subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **here},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )

    def exits(self, attempt: int = 0) -> list[dict[str, Any]]:
        """What every rank said last, in rank order."""
        files = sorted((self.folder / "exit" / str(attempt)).glob("rank-*.json"))
        return [json.loads(file.read_text()) for file in files]

    def codes(self, attempt: int = 0) -> list[int]:
        """The exit code of every rank."""
        return [said["code"] for said in self.exits(attempt)]

    def events(self, kind: str, rank: int = 0, attempt: int = 0) -> list[dict[str, Any]]:
        """One rank's events of one kind and attempt."""
        written = (self.folder / f"events/rank-{rank:05d}.jsonl").read_bytes()
        return [e for e in decode_all(written) if (e["kind"], e["attempt"]) == (kind, attempt)]

    def losses(self, attempt: int = 0) -> dict[int, float]:
        """Step → loss."""
        return {event["step"]: event["loss"] for event in self.events("train", attempt=attempt)}

    def read(self, name: str) -> Any:
        """A JSON file of the run folder."""
        return json.loads((self.folder / name).read_text())


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's folder, made once."""
    return make.model_folder(tmp_path_factory.mktemp("tiny"))


def prepare_here(spec: Spec, folder: Path) -> None:
    """What the first stages of a run do, in this process."""
    from engine.prepare import prepare
    from engine.record import write_json

    said = {"path": spec.model.model, "revision": None, "source": "local"}
    write_json(folder / "fetched.json", said)
    prepare(spec, folder)


@pytest.fixture(scope="session")
def make_run(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Make a prepared run folder: (method, strategy, ranks, **settings) → Run.

    Rows are those of the stage. With `prepared` the rows of that run are taken, which have the same
    data and model; what is prepared `here`, in this process, is so faster.
    """

    def made(
        method: str,
        strategy: str,
        ranks: int,
        prepared: Run | None = None,
        here: bool = False,
        **others: Any,
    ) -> Run:
        stage = others.get("stage", "sft")
        folder = tmp_path_factory.mktemp(f"run {stage} {method} {strategy} $(x)")
        rows = make.data_file(folder / "some data.jsonl", stage=stage)
        batch = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4 // ranks}
        settings = {
            "model": str(tiny_model),
            "dtype": "float32",
            "data": str(rows),
            "max_length": 128,
            "method": method,
            "lora_rank": 4,
            "strategy": strategy,
            "device_kind": "cpu",
            "num_devices": ranks,
            "max_steps": 2,
            "effective_batch_size": 8,
            "learning_rate": 1e-2,
            "lr_scheduler_type": "constant",
            "warmup_ratio": 0.0,
            "save_steps": 100,
            **batch,
            **others,
        }
        tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
        for setting, value in settings.items():
            tables[SETTINGS[setting]][setting] = value
        spec = Spec.model_validate(tables)
        (folder / "spec.toml").write_text(dumps(spec))
        (folder / "engine").mkdir()
        (folder / "engine/__init__.py").write_text("raise SystemExit('a foreign engine')")
        run = Run(folder=folder, ranks=ranks)
        if prepared is not None:
            shutil.copy(prepared.folder / "fetched.json", folder)
            shutil.copytree(prepared.folder / "prepared", folder / "prepared")
            return run
        if here:
            prepare_here(spec, folder)
            return run
        for stage in ("fetch", "prepare"):
            done = run.stage(stage)
            assert done.returncode == 0, done.stderr
        return run

    return made
