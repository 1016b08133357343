"""Every test has a home of its own, and sees nothing of the machine's settings."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

SHUT_OUT = ("TUNEWRIGHT_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "CUDA_VISIBLE", "WANDB_")


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TUNEWRIGHT_HOME and HF_HOME in a fresh folder, the user's own settings out of sight.

    Returns the folder that stands for TUNEWRIGHT_HOME.
    """
    for name in [name for name in os.environ if name.startswith(SHUT_OUT)]:
        monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NO_COLOR", "CI", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANGUAGE", "en")  # whatever the locale of who runs the tests
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TUNEWRIGHT_HOME", str(home))
    monkeypatch.setenv("HF_HOME", str(home / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return home


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in this hook too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slow tests run only when they are named; what trains stays on one worker."""
    for item in items:
        if item.get_closest_marker("engine") and not item.get_closest_marker("xdist_group"):
            # Each test there starts ranks of its own.
            item.add_marker(pytest.mark.xdist_group("engine"))
    if "slow" in config.option.markexpr:
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=slow)
    items[:] = [item for item in items if item not in slow]


def pytest_collection_finish() -> None:
    """What collecting has loaded stays: no collection of garbage need go through it again."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """pytest collects garbage five times at its end, a second each in what tests have cached."""
    gc.collect()
    gc.freeze()
