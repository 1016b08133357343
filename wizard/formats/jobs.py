"""A run as one file that a person, Slurm or another scheduler starts, on one machine or many."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.events import printable
from wizard import __version__
from wizard.facts import GIB, Facts
from wizard.formats.text import comments, document, quoted
from wizard.formats.values import Exported
from wizard.plan import Plan

TEMPLATES = Path(__file__).parent.parent / "templates"
FOUND_PYTHON = "export TUNEWRIGHT_PYTHON=${TUNEWRIGHT_PYTHON:-$(command -v python3)}\n"
"""The environment is that of an image, where nobody knows yet where its python is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A run on its way to a scheduler."""

    plan: Plan
    name: str
    run_sh: str
    """The script of one machine of the run."""
    facts: Facts
    """One of its machines."""
    written: str
    """A date in words."""
    nodes: int = 1
    """Machines that share the ranks evenly."""

    @property
    def devices(self) -> int:
        """Devices on a machine that the run uses; CPU ranks when there is none."""
        return self.plan.spec.parallel.num_devices // self.nodes

    @property
    def title(self) -> str:
        """One line that says what this is."""
        machines = f", {self.nodes} machines" if self.nodes > 1 else ""
        return f"{self.name}: {self.plan.title}{machines}"

    @property
    def label(self) -> str:
        """A name that every scheduler takes: small letters, digits and hyphens, a letter first."""
        plain = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40].strip("-")
        return plain if re.match(r"[a-z]", plain) else f"run-{plain}".strip("-")


def torchrun(job: Job) -> Exported:
    """The launcher that is started by hand on each machine."""
    how = [
        "  NODE_RANK=0 MASTER_ADDR=<the first machine> bash FILE   on the first machine",
        "  NODE_RANK=1 MASTER_ADDR=<the first machine> bash FILE   on the second, and so on",
        "Model and data must be at the same paths on each; --resume needs a disk they share.",
    ]
    return Exported(files={"launch.sh": launcher(job, how)})


def launcher(job: Job, how: list[str], *, python: str = "") -> str:
    """A script that makes the folder of one machine of the run, and starts it there."""
    return _fill(
        "launch.sh",
        {
            **_head(job),
            "how": comments(["", *how]).rstrip("\n"),
            "nodes": str(job.nodes),
            "python": python,
            "run": document("keep run.sh", job.run_sh, "END_OF_RUN"),
        },
    )


def sbatch(job: Job) -> Exported:
    """A batch script for Slurm that carries the launcher in it."""
    started = launcher(job, ["  srun starts it on every machine"])
    content = _fill(
        "sbatch.sh",
        {
            **_head(job),
            "directives": "\n".join(f"#SBATCH --{line}" for line in _directives(job)),
            "launch": document('cat >"./$NAME/launch.sh"', started, "END_OF_LAUNCHER"),
        },
    )
    return Exported(files={"job.sbatch": content})


def _directives(job: Job) -> list[str]:
    """What Slurm is asked for: a task on each machine, which starts that machine's ranks."""
    kind = job.plan.spec.parallel.device_kind
    lines = [
        f"job-name={job.label}",
        f"nodes={job.nodes}",
        "ntasks-per-node=1",
        "output=%x-%j.log",
        "signal=B:TERM@300",
    ]
    if kind == "cuda":
        lines.append(f"gpus-per-node={job.devices}")
    elif kind == "npu":
        lines.append(f"gres=npu:{job.devices}")
    return [*lines, *_share(job)]


def _share(job: Job) -> list[str]:
    """Cores and host memory: as much of all as the run's devices are of all of a machine.

    Memory is never less than predicted, and 0 asks for all of it.
    """
    host, devices = job.facts.host, len(job.facts.accelerators)
    part = job.devices / devices if devices > job.devices else 1.0
    lines = []
    if host.cpu_cores is not None:
        lines.append(f"cpus-per-task={max(1, math.floor(host.cpu_cores * part))}")
    if part == 1.0:
        return [*lines, "mem=0"]
    if host.memory_available_bytes is not None:
        predicted = job.plan.memory.host_bytes / job.nodes
        memory_bytes = max(predicted, host.memory_available_bytes * part)
        lines.append(f"mem={math.ceil(memory_bytes / GIB)}G")
    return lines


def _head(job: Job) -> dict[str, str]:
    return {
        "title": printable(job.title),
        "version": __version__,
        "written": printable(job.written),
        "name": quoted(printable(job.name)),
    }


def _fill(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{{key}}` replaced, in one pass: values are never looked into."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], text)
