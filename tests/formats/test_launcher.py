"""The launcher of one machine, and the batch script that carries it, up to where python starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.formats.planned import exported, job
from tests.formats.test_running import SBATCH, SRUN
from wizard.formats.jobs import Job

NO_PYTHON = 70
"""run.sh ends with it where there is no python: as far as these tests go."""


def two() -> Job:
    return job("h100x8", 2)


def start(text: str, folder: Path, *words: str, **said: str) -> subprocess.CompletedProcess[str]:
    (folder / "launch.sh").write_text(text)
    return subprocess.run(
        ["bash", "launch.sh", *words],
        cwd=folder,
        env={"PATH": f"{folder}:/usr/bin:/bin", **said},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_machine_gets_a_folder_and_all_see_the_same_checkpoints(tmp_path: Path) -> None:
    text = exported(two(), "torchrun").files["launch.sh"]
    for rank in ("1", "0"):
        done = start(text, tmp_path, NODE_RANK=rank, MASTER_ADDR="10.0.0.1")
        assert done.returncode == NO_PYTHON, done.stderr
        assert "no python at /opt/tunewright/bin/python" in done.stderr
    run = tmp_path / "my run"
    assert {path.name for path in run.iterdir()} == {"node-0", "node-1"}
    for node in ("node-0", "node-1"):
        assert (run / node / "run.sh").read_text() == two().run_sh
        assert (run / node / "checkpoints").resolve() == (run / "node-0/checkpoints").resolve()


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"MASTER_ADDR": "a"}, "NODE_RANK=0 … 1 says which machine this is"),
        ({"NODE_RANK": "2", "MASTER_ADDR": "a"}, "NODE_RANK=0 … 1"),
        ({"NODE_RANK": "x", "MASTER_ADDR": "a"}, "NODE_RANK=0 … 1"),
        ({"NODE_RANK": "0"}, "MASTER_ADDR=… says how the first machine is reached"),
    ],
)
def test_a_machine_that_does_not_know_its_place_is_told_and_leaves_nothing(
    tmp_path: Path, said: dict[str, str], what: str
) -> None:
    done = start(exported(two(), "torchrun").files["launch.sh"], tmp_path, **said)
    assert (done.returncode, what in done.stderr) == (64, True)
    assert [path.name for path in tmp_path.iterdir()] == ["launch.sh"]


def test_an_edited_script_wins_and_is_named(tmp_path: Path) -> None:
    text = exported(two(), "torchrun").files["launch.sh"]
    place = {"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1"}
    start(text, tmp_path, **place)
    (tmp_path / "my run/node-0/run.sh").write_text("exit 7\n")
    done = start(text, tmp_path, **place)
    assert done.returncode == 7
    assert "run.sh was edited" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("planted", ["my run", "my run/node-0", "my run/node-0/run.sh"])
def test_what_another_user_put_in_the_place_of_the_run_is_not_started(
    planted: str, tmp_path: Path
) -> None:
    script = tmp_path / "my run/node-0/run.sh"
    script.parent.mkdir(parents=True)
    script.write_text("touch /planted\n")
    os.chown(tmp_path / planted, 12345, 12345)
    text = exported(two(), "torchrun").files["launch.sh"]
    done = start(text, tmp_path, NODE_RANK="0", MASTER_ADDR="10.0.0.1")
    assert done.returncode == 73
    assert f"{tmp_path}/{planted} belongs to another user" in done.stderr
    assert not Path("/planted").exists()


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_batch_script_starts_a_launcher_on_every_machine(tmp_path: Path, nodes: int) -> None:
    for name, text in (("sbatch", SBATCH), ("srun", SRUN)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sbatch").write_text(
        exported(job("h100x8", nodes), "sbatch").files["job.sbatch"]
    )
    done = subprocess.run(
        ["sbatch", "--partition=p", "job.sbatch", "--resume"],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "FAKE_NODES": str(nodes)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == NO_PYTHON, done.stderr
    assert done.stderr.count("no python at") == nodes
    made = {path.name for path in (tmp_path / "my run").iterdir()}
    assert {"launch.sh", *(("node-0", "node-1") if nodes == 2 else ("run.sh",))} <= made
