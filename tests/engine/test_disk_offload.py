"""ZeRO-3 whose weights and optimizer wait on a disk: it learns what one in memory learns."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_strategies import (
    KEPT,
    SAME_LOSS,
    STEPS,
    MakeRun,
    halfway,
)
from tests.engine.together import train_together
from tests.fakes.tiny import make

pytestmark = [pytest.mark.engine, pytest.mark.slow]

LEARNING_RATE = 1e-3
SWAPPED_WIDTH = 256
"""Of a model of which each rank has more than the 1 MiB that DeepSpeed keeps in memory."""
IS_COMPATIBLE = """
import sys
from deepspeed.ops.op_builder import AsyncIOBuilder
sys.exit(not AsyncIOBuilder().is_compatible())
"""


@pytest.fixture(scope="module", autouse=True)
def _needs_libaio() -> None:
    done = subprocess.run([sys.executable, "-c", IS_COMPATIBLE], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("DeepSpeed finds no libaio-dev or no compiler")


@pytest.mark.parametrize(("method", "width"), [("full", 32), ("full", SWAPPED_WIDTH), ("lora", 32)])
def test_weights_on_a_disk_learn_as_those_in_memory_and_resume_with_an_optimizer_anew(
    make_run: MakeRun, tmp_path: Path, method: str, width: int
) -> None:
    place = tmp_path / "disk $(x)"
    place.mkdir()
    settings: dict[str, Any] = {
        "max_steps": STEPS,
        "save_steps": KEPT,
        "save_total_limit": STEPS,
        "offload": "parameters",
        "model": str(make.model_folder(tmp_path / "model", width=width)),
        "learning_rate": LEARNING_RATE,
    }
    to_disk = {"offload_device": "nvme", "nvme_path": str(place)}
    memory = make_run(method, "zero3", 2, here=True, **settings)
    disk = make_run(method, "zero3", 2, prepared=memory, **to_disk, **settings)
    said = train_together([memory.folder], 2) + train_together([disk.folder], 2)

    assert disk.codes() == [0, 0], (disk.exits(), said)
    assert disk.losses() == pytest.approx(memory.losses(), abs=SAME_LOSS)
    zero = disk.read("ds_config.json")["zero_optimization"]
    for what in ("offload_param", "offload_optimizer"):
        assert zero[what]["nvme_path"].startswith(str(place))
    assert list(place.iterdir()) == []

    again = halfway(disk, tmp_path / "again")
    train_together([again.folder], 2, "--resume", "--exact")

    assert again.codes() == [64, 64], again.exits()
    assert "adamw_torch, zero3, offload parameters to a disk" in again.exits()[0]["message"]

    shutil.rmtree(again.folder / "exit")
    said = train_together([again.folder], 2, "--resume", "--attempt", "1")

    assert again.codes(1) == [0, 0], (again.exits(1), said)
    rest = again.losses(1)
    assert list(rest) == [KEPT + 1, STEPS]
    assert rest[KEPT + 1] == pytest.approx(disk.losses()[KEPT + 1], abs=SAME_LOSS)
    (warned,) = [event["text"] for event in again.events("warn", attempt=1)]
    assert "the optimizer's state starts anew" in warned
    assert list(place.iterdir()) == []
