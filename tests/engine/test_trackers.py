"""A tracker is told what a run measures, offline and without a key in a file; none is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import rules
from tests.engine.conftest import Run
from tests.engine.together import train_together
from tests.test_rules import spec

MakeRun = Callable[..., Run]
SECRET = "3b0c8f0d5a7e4d2f9a61c7b2e8d4f0a91c3e5b7d"


@pytest.mark.parametrize("tracker", ["tensorboard", "wandb", "swanlab", "mlflow"])
def test_a_trackers_package_is_asked_for_before_the_run(tracker: str) -> None:
    assert rules.packages(spec(report_to=tracker)) == {
        tracker: f"report_to={tracker} writes with it"
    }
    assert rules.packages(spec()) == {}


@pytest.mark.engine
def test_a_run_tells_tensorboard_and_goes_on_without_a_tracker_that_fails(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for name in ("HF_TOKEN", "WANDB_API_KEY", "SWANLAB_API_KEY"):
        monkeypatch.setenv(name, SECRET)
    told, full, absent = (
        make_run("lora", "ddp", 2, here=True, max_steps=3, report_to=name)
        for name in ("tensorboard", "tensorboard", "swanlab")
    )
    (full.folder / "tracker").write_text("a file where its folder would be")
    printed = train_together([told.folder, full.folder, absent.folder], 2)

    assert [run.codes() for run in (told, full, absent)] == [[0, 0]] * 3, printed
    assert told.losses() == full.losses() == absent.losses()
    events = accumulator.EventAccumulator(str(told.folder / "tracker"))
    events.Reload()
    seen = {event.step: event.value for event in events.Scalars("train/loss")}
    assert seen == pytest.approx(told.losses(), rel=1e-4)
    assert len(list((told.folder / "tracker").iterdir())) == 1  # rank 0 alone
    for run, name in ((full, "tensorboard"), (absent, "swanlab")):
        said = [event["text"] for event in run.events("warn")]
        assert any(text.startswith(f"report_to={name} failed, and the run goes") for text in said)
    for run in (told, full, absent):
        assert SECRET.encode() not in b"".join(contents(run.folder))


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
