"""Plan → the files of one format: a run for a scheduler, or another trainer's configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wizard.formats import clusters, jobs
from wizard.formats.jobs import Job
from wizard.formats.peers import accelerate, axolotl, llamafactory, swift
from wizard.formats.values import Exported
from wizard.plan import Plan
from wizard.problem import Problem, ProblemError

RUNS: Mapping[str, str] = {
    "bash": "run.sh, as `run` writes it",
    "torchrun": "a launcher to start on each of several machines",
    "sbatch": "a batch script for Slurm",
    "kubernetes": "a manifest: ConfigMap, Service, Job",
    "skypilot": "a task for `sky launch`",
}
PEERS: Mapping[str, Callable[[Plan, str], Exported]] = {
    "swift": swift.write,
    "llamafactory": llamafactory.write,
    "axolotl": axolotl.write,
    "accelerate": accelerate.write,
}
FORMATS = (*RUNS, *PEERS)
SEVERAL = ("torchrun", "sbatch", "kubernetes", "skypilot", "accelerate")
"""Formats for more than one machine."""
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")
CLAIM = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a format is told beside the plan."""

    format: str
    nodes: int = 1
    network_gbs: float | None = None
    """GB/s of each machine's network; None when it is not known."""
    image: str | None = None
    """Container image that has tunewright in it."""
    claim: str | None = None
    """PersistentVolumeClaim that holds runs."""
    mount: str = "/runs"
    """Where the claim is mounted."""
    source: str | None = None
    """A checkout of tunewright that is copied to new machines."""


def check(target: Target) -> None:
    """Raise ProblemError (exit code 2) for a target that no plan can be written for."""
    if target.nodes > 1 and target.format not in SEVERAL:
        what = f"{target.format} is for one machine"
        raise _usage(what, "--nodes", f"{', '.join(SEVERAL)} are for several")
    if target.format == "torchrun" and target.nodes < 2:
        raise _usage("torchrun is for several machines", "--nodes", "say how many, or bash")
    if target.format != "kubernetes":
        return
    if not target.image or not IMAGE.fullmatch(target.image):
        raise _usage("kubernetes needs an image with tunewright in it", "--image", "name it")
    if not target.claim or not CLAIM.fullmatch(target.claim):
        fix = "name a PersistentVolumeClaim; it takes the results"
        raise _usage("kubernetes needs a volume for the run", "--claim", fix)
    if not target.mount.startswith("/") or ":" in target.mount:
        raise _usage("the mount is no absolute path", "--mount", "such as /runs")


def check_nodes(plan: Plan, nodes: int) -> None:
    """Raise ProblemError (exit code 2) for ranks that machines cannot share evenly."""
    ranks = plan.spec.parallel.ranks
    if ranks % nodes:
        what = f"{ranks} ranks are not shared evenly by {nodes} machines"
        raise _usage(what, "--nodes", f"--set num_devices={nodes} or a multiple of it")


def export(job: Job, target: Target) -> Exported:
    """The files of a plan in a format that `check` took."""
    if target.format in PEERS:
        if target.format == "accelerate":
            return accelerate.write(job.plan, job.label, job.nodes)
        return PEERS[target.format](job.plan, job.label)
    if target.format == "kubernetes":
        assert target.image is not None
        assert target.claim is not None
        return clusters.kubernetes(job, image=target.image, claim=target.claim, mount=target.mount)
    if target.format == "skypilot":
        return clusters.skypilot(job, source=target.source)
    if target.format == "sbatch":
        return jobs.sbatch(job)
    if target.format == "torchrun":
        return jobs.torchrun(job)
    return Exported(files={"run.sh": job.run_sh})


def _usage(what: str, where: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=2))
