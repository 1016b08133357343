"""Trackers that are no dependency: each, where it is installed, holds the losses of a real run."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engine.conftest import Run

pytestmark = [pytest.mark.engine, pytest.mark.slow]


def wandb_has(folder: Path, losses: Mapping[int, float]) -> bool:
    """Whether the file that `wandb sync` sends names the losses; its records are JSON values."""
    (file,) = folder.rglob("*.wandb")
    content = file.read_bytes()
    return b"train/loss" in content and all(repr(v).encode() in content for v in losses.values())


def swanlab_has(folder: Path, losses: Mapping[int, float]) -> bool:
    """The same of the file that `swanlab sync` sends; its values are doubles."""
    (file,) = folder.rglob("*.swanlab")
    content = file.read_bytes()
    values = (struct.pack("<d", value) for value in losses.values())
    return b"train/loss" in content and all(value in content for value in values)


def mlflow_has(folder: Path, losses: Mapping[int, float]) -> bool:
    """Read back as its own user interface does."""
    from mlflow.tracking import MlflowClient

    base = folder / "mlflow.db"
    client = MlflowClient(f"sqlite:///{base}" if base.exists() else folder.as_uri())
    (experiment,) = (e for e in client.search_experiments() if e.name == "tunewright")
    (run,) = client.search_runs([experiment.experiment_id])
    found = {m.step: m.value for m in client.get_metric_history(run.info.run_id, "loss")}
    return found == losses and run.info.status == "FINISHED"


READERS: Mapping[str, Callable[[Path, Mapping[int, float]], bool]] = {
    "wandb": wandb_has,
    "swanlab": swanlab_has,
    "mlflow": mlflow_has,
}


@pytest.mark.parametrize("tracker", READERS)
def test_a_tracker_keeps_every_loss_of_a_run(
    tracker: str, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    if find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed: no dependency, it is the user's to install")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # for the reader here
    run = make_run("lora", "single", 1, here=True, max_steps=3, report_to=tracker)

    done = run.train()

    assert run.codes() == [0], done.stderr
    assert [e["text"] for e in run.events("warn") if tracker in e["text"]] == []
    losses = run.losses()
    assert sorted(losses) == [1, 2, 3]
    assert READERS[tracker](run.folder / "tracker", losses)
