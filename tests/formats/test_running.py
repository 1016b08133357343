"""Exported scripts of a small job, started for real as their schedulers start them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.tiny.make import data_file, model_folder

pytestmark = pytest.mark.engine

STEPS = 3
LIMIT_SECONDS = 400
SBATCH = """\
#!/usr/bin/env bash
# What sbatch does with a script: its own options first, then the file and the file's own words.
while [[ $1 == --* ]]; do shift; done
spool=$(mktemp)
cp -- "$1" "$spool"
shift
export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=$((RANDOM % 9000)) SLURMD_NODENAME=127.0.0.1
cd / && exec bash "$spool" "$@"
"""
SRUN = """\
#!/usr/bin/env bash
# One copy of the command for each machine of the job.
pids=()
for ((node = 0; node < FAKE_NODES; node++)); do
  SLURM_NODEID=$node "$@" &
  pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit "$code"
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, its data, and the programs of a scheduler."""
    root = tmp_path_factory.mktemp("world $(x)")
    model_folder(root / "tiny")
    data_file(root / "rows.jsonl")
    for name, text in (("sbatch", SBATCH), ("srun", SRUN)):
        (root / "bin").mkdir(exist_ok=True)
        (root / "bin" / name).write_text(text)
        (root / "bin" / name).chmod(0o755)
    return root


def exported(world: Path, kind: str, *words: str) -> str:
    """What `tunewright export` prints."""
    command = [sys.executable, "-m", "wizard", "export", "--format", kind, "--name", "it's small"]
    command += ["--model", str(world / "tiny"), "--data", str(world / "rows.jsonl")]
    for setting in (f"max_steps={STEPS}", "max_length=128", "method=lora", "save_steps=1"):
        command += ["--set", setting]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(world: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "MASTER_"))}
    path = f"{world / 'bin'}:{os.environ['PATH']}"
    return {**kept, "PATH": path, "TUNEWRIGHT_PYTHON": sys.executable, **more}


def free_port() -> str:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return str(made.getsockname()[1])


def start(script: Path, *words: str, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", script, *words],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(*started: subprocess.Popen[str]) -> None:
    """Wait for all; each must end well."""
    said = [one.communicate(timeout=LIMIT_SECONDS)[1] for one in started]
    assert [one.returncode for one in started] == [0] * len(started), "\n".join(said)


def trained(folder: Path, steps: int = STEPS) -> dict[str, Any]:
    """The result of a run that reached its last step, and left an adapter."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text())
    assert (folder / "model/adapter_model.safetensors").is_file()
    assert (folder / f"checkpoints/checkpoint-{steps}").is_dir()
    assert json.loads((folder / "state.json").read_text())["exit_code"] == 0
    return result


def test_a_launcher_on_each_of_two_machines_trains_one_model(world: Path, tmp_path: Path) -> None:
    (tmp_path / "launch.sh").write_text(exported(world, "torchrun", "--nodes", "2"))
    port = free_port()
    end(
        *(
            start(
                Path("launch.sh"),
                cwd=tmp_path,
                env=environment(world, NODE_RANK=rank, MASTER_ADDR="127.0.0.1", MASTER_PORT=port),
            )
            for rank in ("0", "1")
        )
    )
    first, second = (tmp_path / "it's small" / f"node-{rank}" for rank in (0, 1))
    assert len(trained(first)["measured"]["process_memory_peak_bytes"]) == 2
    assert not (second / "model").exists()
    assert (second / "checkpoints").resolve() == (first / "checkpoints").resolve()
    ranks = {path.name for path in (*first.glob("events/rank-*"), *second.glob("events/rank-*"))}
    assert ranks == {"rank-00000.jsonl", "rank-00001.jsonl"}


@pytest.mark.slow
def test_the_bash_script_trains(world: Path, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(exported(world, "bash"))
    end(start(Path("run.sh"), cwd=tmp_path, env=environment(world)))
    trained(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_batch_script_trains_and_goes_on_when_it_is_submitted_again(
    world: Path, tmp_path: Path, nodes: int
) -> None:
    (tmp_path / "job.sbatch").write_text(exported(world, "sbatch", "--nodes", str(nodes)))
    env = environment(world, FAKE_NODES=str(nodes))
    words = ["--partition=small", "job.sbatch"]
    end(start(world / "bin/sbatch", *words, cwd=tmp_path, env=env))
    run = tmp_path / "it's small"
    folders = [run / f"node-{rank}" for rank in range(nodes)] if nodes > 1 else [run]
    trained(folders[0])
    for folder in folders:  # two steps more
        spec = folder / "spec.toml"
        spec.write_text(spec.read_text().replace(f"max_steps = {STEPS}", "max_steps = 5"))
    end(start(world / "bin/sbatch", *words, "--resume", cwd=tmp_path, env=env))
    assert trained(folders[0], steps=5)["measured"]["steps"] == 5 - STEPS


@pytest.mark.slow
def test_pods_of_the_manifest_train_one_model(world: Path, tmp_path: Path) -> None:
    words = ("--nodes", "2", "--image", "tunewright:1", "--claim", "runs")
    config, _, work = yaml.safe_load_all(exported(world, "kubernetes", *words))
    (pod,) = work["spec"]["template"]["spec"]["containers"]
    (tmp_path / "launch.sh").write_text(config["data"]["launch.sh"])
    assert pod["command"] == ["bash", "/tunewright/launch.sh"]
    said = {one["name"]: one["value"] for one in pod["env"]}
    said |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}  # no cluster's names here
    end(
        *(
            start(
                Path("launch.sh"),
                cwd=tmp_path,
                env=environment(world, JOB_COMPLETION_INDEX=rank, **said),
            )
            for rank in ("0", "1")
        )
    )
    trained(tmp_path / "it's small" / "node-0")


@pytest.mark.slow
def test_a_task_for_skypilot_trains(world: Path, tmp_path: Path) -> None:
    task = yaml.safe_load(exported(world, "skypilot", "--nodes", "2"))
    script = task["run"].replace("export TUNEWRIGHT_PYTHON=$HOME", ": nothing is set up in $HOME")
    (tmp_path / "task.sh").write_text(script)
    port = free_port()
    machines = []
    for rank in ("0", "1"):
        folder = tmp_path / f"machine {rank}"
        folder.mkdir()
        env = environment(
            world,
            SKYPILOT_NODE_RANK=rank,
            SKYPILOT_NODE_IPS="127.0.0.1\n127.0.0.1",
            MASTER_PORT=port,
        )
        machines.append(start(tmp_path / "task.sh", cwd=folder, env=env))
    end(*machines)
    trained(tmp_path / "machine 0" / "it's small" / "node-0")
