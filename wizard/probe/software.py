"""Installed versions and tools, read from package metadata and files: nothing heavy is imported."""

from __future__ import annotations

import os
import platform
import re
import sysconfig
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path

from wizard.facts import Software
from wizard.probe.reading import exists, text
from wizard.probe.running import Run, run
from wizard.probe.versions import numbers, satisfies

PACKAGES = (
    "tunewright",
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "deepspeed",
    "bitsandbytes",
    "flash-attn",
    "flash-attn-3",
    "liger-kernel",
    "tensorboard",
    "wandb",
    "swanlab",
    "mlflow",
    "liger-kernel",
    "triton",
    "torch-npu",
)
TOOL_LIMIT_SECONDS = 5.0
NVCC_FREE_DEEPSPEED = (0, 19, 8)
"""The first known to build CPU Adam with the C++ compiler alone; older ones want nvcc as well."""


def read_software(
    *,
    driver: str | None = None,
    cuda: str | None = None,
    run: Run = run,
    variables: Mapping[str, str] | None = None,
) -> Software:
    """Versions in this environment; a package that is absent has None. Never raises.

    driver, cuda: what the accelerators said, when that is known already.
    """
    variables = os.environ if variables is None else variables
    versions = {name: _version(name) for name in PACKAGES}
    build, tools = _torch_build(), read_tools(run, variables)
    return Software(
        python=platform.python_version(),
        versions=versions,
        driver=driver,
        cuda=cuda,
        torch_build=build,
        libc=_libc(),
        tools=tools,
        cpu_adam_lacks=cpu_adam_lacks(versions["deepspeed"], build, tools, _built_ops()),
        unmet=unmet(_requirements(), versions),
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return None


def _requirements() -> list[str]:
    try:
        return metadata.requires("tunewright") or []
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return []


def _libc() -> str | None:
    """glibc says its version itself; musl has none to ask, so its loader's name tells."""
    name, version = platform.libc_ver()
    if name:
        return f"{name} {version}".strip()
    return "musl" if any(Path("/lib").glob("ld-musl-*")) else None


def _file_of(package: str, *parts: str) -> Path | None:
    """A file of an installed package, found without importing the package."""
    try:
        found = util.find_spec(package)
    except (ImportError, ValueError):
        return None
    folders = (found.submodule_search_locations or []) if found else []
    return next((file for one in folders if exists(file := Path(one, *parts))), None)


def _torch_build() -> str | None:
    file = _file_of("torch", "version.py")
    return torch_build(text(file)) if file else None


def torch_build(version_file: str) -> str | None:
    """What torch was built for, from the text of its version.py; None when that does not say."""
    said = dict(re.findall(r"^(cuda|hip|xpu)\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", version_file, re.M))
    for key, name in (("cuda", "cuda"), ("hip", "rocm"), ("xpu", "xpu")):
        if key in said:
            return f"{name} {said[key]}"
    return "cpu" if re.search(r"^cuda\b", version_file, re.MULTILINE) else None


def read_tools(run: Run, variables: Mapping[str, str]) -> dict[str, str | None]:
    """What builds DeepSpeed's and Triton's parts: tool → its version, None when absent."""
    cuda_home = variables.get("CUDA_HOME") or "/usr/local/cuda"
    headers = Path(sysconfig.get_paths()["include"])
    return {
        "c++": _said(run, [variables.get("CXX") or "c++", "-dumpfullversion", "-dumpversion"]),
        "ninja": _said(run, ["ninja", "--version"]),
        "nvcc": _nvcc(run, "nvcc") or _nvcc(run, f"{cuda_home}/bin/nvcc"),
        "python headers": str(headers) if exists(headers / "Python.h") else None,
    }


def _said(run: Run, command: list[str]) -> str | None:
    """The first line a tool prints; None when it does not run."""
    ran = run(command, TOOL_LIMIT_SECONDS)
    return ran.out.strip().split("\n")[0].strip()[:80] or "unknown version" if ran.ok else None


def _nvcc(run: Run, command: str) -> str | None:
    ran = run([command, "--version"], TOOL_LIMIT_SECONDS)
    found = re.search(r"release (\d+\.\d+)", ran.out) if ran.ok else None
    return found[1] if found else None


def _built_ops() -> Mapping[str, str]:
    """DeepSpeed's parts → `True` for those that were built when it was installed."""
    file = _file_of("deepspeed", "git_version_info_installed.py")
    return dict(re.findall(r"'(\w+)': (True|False)", text(file))) if file else {}


def cpu_adam_lacks(
    deepspeed: str | None,
    build: str | None,
    tools: Mapping[str, str | None],
    built: Mapping[str, str],
) -> tuple[str, ...] | None:
    """What is missing to build CPU Adam; empty when it is built or can be, None without DeepSpeed.

    build: what torch was built for. built: what DeepSpeed's own record says of its parts.
    """
    if deepspeed is None:
        return None
    if built.get("cpu_adam") == "True":
        return ()
    lacks = [tool for tool in ("c++", "ninja", "python headers") if tools.get(tool) is None]
    kind, _, version = (build or "").partition(" ")
    if kind == "cuda" and numbers(deepspeed) < NVCC_FREE_DEEPSPEED:
        nvcc = tools.get("nvcc")
        if nvcc is None:
            lacks.append(f"nvcc {version}")
        elif numbers(nvcc)[:1] != numbers(version)[:1]:
            lacks.append(f"nvcc {version} (this one is {nvcc})")
    return tuple(lacks)


def unmet(requirements: list[str], versions: Mapping[str, str | None]) -> dict[str, str]:
    """Installed package → the versions it should be of, for those that are of another."""
    found = {}
    for requirement in requirements:
        named = re.match(r"([\w.-]+)\s*([^;]*)", requirement)
        version = versions.get(named[1].lower()) if named else None
        if named and version is not None and not satisfies(version, named[2]):
            found[named[1].lower()] = ",".join(sorted(part.strip() for part in named[2].split(",")))
    return found
