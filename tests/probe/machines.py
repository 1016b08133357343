"""The recorded machines, probed whole: NVML double, recorded commands and files below one root."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fakes import nvml, recordings, truth
from wizard.facts import Facts
from wizard.probe.assembly import assemble

NAMES = tuple(sorted(path.stem for path in Path(truth.__file__).parent.glob("*.toml")))
NO_NVIDIA = "cpu_only_cgroup"
VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)


def probed(name: str, root: Path) -> Facts:
    """Facts of a recorded machine."""
    double = nvml.load(name if name in nvml.IDS else NO_NVIDIA)
    nvml.plant(double.files, root)
    recordings.plant(name, root)
    return assemble(root=root, run=nvml.running(nvml.said(double), recordings.session(name)))


def true(name: str) -> dict[str, Any]:
    """What is to be found on it."""
    path = Path(truth.__file__).parent / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def at(value: Any, path: str) -> Any:
    """The value at a path such as `bus.pci_id`."""
    for part in path.split("."):
        value = getattr(value, part)
    return list(value) if isinstance(value, tuple) else value


def differences(facts: Facts, wanted: dict[str, Any]) -> Iterator[str]:
    """Every field that is not as it was recorded."""
    for path, value in wanted["facts"].items():
        found = len(facts.devices) if path == "count" else at(facts, path)
        if found != value:
            yield f"{path}: {found!r}, not {value!r}"
    for place, device in enumerate(facts.devices):
        own = {path: values[place] for path, values in wanted.get("each", {}).items()}
        for path, value in {**wanted.get("every", {}), **own}.items():
            if at(device, path) != _known(value):
                yield f"device {place} {path}: {at(device, path)!r}, not {value!r}"
        for path in wanted.get("none", {}).get("paths", ()):
            if at(device, path) is not None:
                yield f"device {place} {path}: {at(device, path)!r}, not unknown"
    yield from _link_differences(facts, wanted.get("links", {}))


def _known(value: Any) -> Any:
    """TOML has no null."""
    return None if value == "none" else value


def _link_differences(facts: Facts, wanted: dict[str, Any]) -> Iterator[str]:
    """A `?` in the matrix is a pair of which nothing was recorded."""
    matrix = [row.split() for row in wanted.get("matrix", ())]
    for link in facts.links:
        first, second = link.devices
        kind = matrix[first][second] if matrix else wanted.get("every", link.kind)
        if kind not in ("?", link.kind):
            yield f"link {first}-{second}: {link.kind}, not {kind}"
        if "peer_access" in wanted and link.peer_access != _known(wanted["peer_access"]):
            yield f"link {first}-{second} peer: {link.peer_access} ({link.why})"
        fast = kind in ("nvlink", "nvswitch", "xgmi")
        speed = wanted.get("pairs", {}).get(f"{first}-{second}", wanted.get("gbs", link.gbs))
        if fast and link.gbs != speed:
            yield f"link {first}-{second}: {link.gbs} GB/s, not {speed}"
    pairs = len(facts.devices) * (len(facts.devices) - 1) // 2
    if wanted and len(facts.links) != pairs:
        yield f"{len(facts.links)} links, not {pairs}"
