"""A run as a Kubernetes manifest, or as a task for SkyPilot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from wizard.facts import GIB, Facts
from wizard.formats.jobs import FOUND_PYTHON, Job, launcher
from wizard.formats.text import Block, comments, document, yaml_text
from wizard.formats.values import Exported, Left, told

RESOURCES: Mapping[str, str] = {
    "cuda": "nvidia.com/gpu",
    "rocm": "amd.com/gpu",
    "npu": "huawei.com/Ascend910",
}
"""Kind of device → the resource its device plugin offers."""
PORT = 29500
STOP_SECONDS = 300
"""Time to save a checkpoint in."""

ACCELERATORS: tuple[tuple[str, str], ...] = (
    ("GH200", "GH200"),
    ("H200", "H200"),
    ("B200", "B200"),
    ("H100", "H100"),
    ("A100", "A100"),
    ("L40S", "L40S"),
    ("L40", "L40"),
    ("L4", "L4"),
    ("A10G", "A10G"),
    ("A10", "A10"),
    ("A40", "A40"),
    ("RTX A6000", "RTXA6000"),
    ("RTX A5000", "RTXA5000"),
    ("RTX 6000 Ada", "RTX6000-Ada"),
    ("RTX 5090", "RTX5090"),
    ("RTX 4090", "RTX4090"),
    ("RTX 3090", "RTX3090"),
    ("V100", "V100"),
    ("T4", "T4"),
    ("MI300X", "MI300X"),
)
"""(part of the driver's name, SkyPilot's name), the first that fits."""
BIG_A100_BYTES = 60 * GIB
BIG_V100_BYTES = 24 * GIB


def kubernetes(job: Job, *, image: str, claim: str, mount: str) -> Exported:
    """ConfigMap, Service and Job: one pod for each machine, results on a volume they share.

    `image` has tunewright in it, `claim` names a PersistentVolumeClaim, which is mounted at
    `mount`.
    """
    how = ["  a pod of the Job starts it"]
    script = launcher(job, how, python=FOUND_PYTHON)
    labels = {"app.kubernetes.io/name": "tunewright", "app.kubernetes.io/instance": job.label}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": job.label, "labels": labels},
        "data": {"launch.sh": Block(script)},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.label, "labels": labels},
        # Ranks look for the first pod before it is ready.
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": labels,
            "ports": [{"name": "torchrun", "port": PORT}],
        },
    }
    work = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job.label, "labels": labels},
        "spec": {
            "completions": job.nodes,
            "parallelism": job.nodes,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"metadata": {"labels": labels}, "spec": _pod(job, image, claim, mount)},
        },
    }
    left = _outside(job, mount)
    head = [
        job.title,
        f"Written on {job.written}.",
        "  kubectl apply -f FILE",
        f"  kubectl logs -f job/{job.label}",
        *told(left),
    ]
    documents = [yaml_text(one) for one in (config, service, work)]
    return Exported(files={"job.yaml": comments(head) + "---\n".join(documents)}, left=left)


def _pod(job: Job, image: str, claim: str, mount: str) -> dict[str, Any]:
    environment = {"MASTER_ADDR": f"{job.label}-0.{job.label}", "MASTER_PORT": str(PORT)}
    return {
        "restartPolicy": "Never",
        "subdomain": job.label,
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "containers": [
            {
                "name": "train",
                # A reference to a variable would be put in by Kubernetes, not by a shell.
                "image": image,
                "command": ["bash", "/tunewright/launch.sh"],
                "workingDir": mount,
                "env": [{"name": name, "value": value} for name, value in environment.items()],
                "resources": _resources(job),
                "volumeMounts": [
                    {"name": "script", "mountPath": "/tunewright", "readOnly": True},
                    {"name": "runs", "mountPath": mount},
                    {"name": "shared-memory", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "script", "configMap": {"name": job.label}},
            {"name": "runs", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "shared-memory", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _resources(job: Job) -> dict[str, Any]:
    """What must be free for a pod: a core for each rank, and the host memory that is predicted."""
    memory_bytes = job.plan.memory.host_bytes / job.nodes
    found: dict[str, Any] = {
        "requests": {"cpu": str(job.devices), "memory": f"{math.ceil(memory_bytes / GIB)}Gi"}
    }
    if job.plan.spec.parallel.device_kind != "cpu":
        found["limits"] = {_resource(job.facts): job.devices}
    return found


def _resource(facts: Facts) -> str:
    return RESOURCES.get(facts.accelerators[0].kind, RESOURCES["cuda"])


def _outside(job: Job, mount: str) -> tuple[Left, ...]:
    """Files of this machine that a pod sees only when the volume or the image has them."""
    spec = job.plan.spec
    inside = mount.rstrip("/") + "/"
    paths = {"model": spec.model.model, "data": spec.data.data}
    return tuple(
        Left(key=key, value=path, why=f"not under {mount}: it must be in the image at this path")
        for key, path in paths.items()
        if path.startswith("/") and not path.startswith(inside)
    )


def skypilot(job: Job, *, source: str | None) -> Exported:
    """A task for `sky launch`: machines with these devices, tunewright set up, the run started.

    `source` is a checkout of tunewright on this machine, copied there; None expects it there.
    """
    spec, left = job.plan.spec, []
    name = _sky_name(job.facts)
    resources: dict[str, Any] = {}
    if spec.parallel.device_kind != "cpu":
        if name is None:
            device = job.facts.accelerators[0].name if job.facts.accelerators else "unknown"
            why = "SkyPilot's name for it is not known: write it under resources.accelerators"
            left.append(Left(key="device", value=device, why=why))
        else:
            resources["accelerators"] = f"{name}:{job.devices}"
    mounts = {path: path for path in (spec.model.model, spec.data.data) if path.startswith("/")}
    if source is not None:
        mounts["~/tunewright"] = source
    started = launcher(job, ["  SkyPilot starts it on every machine"], python=FOUND_PYTHON)
    run = document("cat >launch.sh", started, "END_OF_LAUNCHER") + "\nbash launch.sh\n"
    task: dict[str, Any] = {"name": job.label, "num_nodes": job.nodes}
    if resources:
        task["resources"] = resources
    if mounts:
        task["file_mounts"] = mounts
    if source is not None:
        task["setup"] = Block("cd ~/tunewright && ./install.sh\n")
        run = "export TUNEWRIGHT_PYTHON=$HOME/tunewright/.venv/bin/python\n" + run
    task["run"] = Block(run)
    head = [job.title, f"Written on {job.written}.", "  sky launch FILE", *told(left)]
    return Exported(files={"task.yaml": comments(head) + yaml_text(task)}, left=tuple(left))


def _sky_name(facts: Facts) -> str | None:
    """SkyPilot's name of the device; None when it is not known."""
    if not facts.accelerators:
        return None
    device = facts.accelerators[0]
    name = next((ours for part, ours in ACCELERATORS if part in device.name), None)
    memory_bytes = device.memory_total_bytes or 0
    if name == "A100" and memory_bytes > BIG_A100_BYTES:
        return "A100-80GB"
    if name == "V100" and memory_bytes > BIG_V100_BYTES:
        return "V100-32GB"
    return name
