"""Versions, torch's build and the tools that build DeepSpeed's parts, without importing any."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from wizard.probe import software
from wizard.probe.running import Ran
from wizard.probe.versions import numbers, satisfies

TOOLS = {"c++": "12.2.0", "ninja": "1.11.1", "nvcc": "13.0", "python headers": "/usr/include"}
NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.8, V12.8.93\n"


def test_this_environment_is_read_without_importing_what_trains() -> None:
    before = set(sys.modules)
    found = software.read_software()

    assert found.versions["transformers"]
    assert found.libc
    assert not {name.split(".")[0] for name in set(sys.modules) - before} & {"torch", "deepspeed"}


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("__version__ = '2.13.0+cu130'\ncuda: Optional[str] = '13.0'\nhip = None\n", "cuda 13.0"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = '7.2.26015'\n", "rocm 7.2.26015"),
        ("cuda: Optional[str] = None\nhip = None\nxpu: Optional[str] = '20250302'", "xpu 20250302"),
        ("cuda: Optional[str] = None\nhip: Optional[str] = None\nxpu = None\n", "cpu"),
        ("debug = False\n", None),
        ("", None),
    ],
)
def test_torch_says_in_a_file_what_it_was_built_for(text: str, build: str | None) -> None:
    assert software.torch_build(text) == build


def test_tools_tell_their_versions_and_absent_ones_are_none() -> None:
    asked: list[str] = []

    def run(command: Sequence[str], limit_seconds: float) -> Ran:
        asked.append(command[0])
        said = {"g++-13": "13.2.0\n", "/opt/cuda/bin/nvcc": NVCC}.get(command[0])
        return Ran(None) if said is None else Ran(0, said)

    found = software.read_tools(run, {"CXX": "g++-13", "CUDA_HOME": "/opt/cuda"})

    assert (found["c++"], found["ninja"], found["nvcc"]) == ("13.2.0", None, "12.8")
    assert "c++" not in asked


def test_a_tool_that_fails_is_as_good_as_absent() -> None:
    found = software.read_tools(lambda command, limit: Ran(1, "13.2.0"), {})

    assert (found["c++"], found["ninja"], found["nvcc"]) == (None, None, None)


@pytest.mark.parametrize(
    ("deepspeed", "build", "absent", "nvcc", "lacks"),
    [
        ("0.19.8", "cuda 13.0", (), "13.0", ()),
        ("0.19.8", "cuda 13.0", (), None, ()),  # the C++ compiler alone builds it
        ("0.19.8", "cpu", ("ninja",), None, ("ninja",)),
        ("0.19.8", "cpu", ("c++", "python headers"), None, ("c++", "python headers")),
        ("0.17.0", "cuda 13.0", (), None, ("nvcc 13.0",)),
        ("0.17.0", "cuda 13.0", (), "12.4", ("nvcc 13.0 (this one is 12.4)",)),
        ("0.17.0", "cuda 12.8", (), "12.4", ()),
        (None, "cuda 13.0", ("c++",), None, None),
    ],
)
def test_what_cpu_adam_lacks(
    deepspeed: str | None,
    build: str,
    absent: tuple[str, ...],
    nvcc: str | None,
    lacks: tuple[str, ...] | None,
) -> None:
    tools = {**TOOLS, "nvcc": nvcc, **dict.fromkeys(absent)}
    assert software.cpu_adam_lacks(deepspeed, build, tools, {}) == lacks


def test_a_cpu_adam_that_was_built_at_installation_lacks_nothing() -> None:
    nothing = dict.fromkeys(TOOLS)
    assert software.cpu_adam_lacks("0.19.8", "cpu", nothing, {"cpu_adam": "True"}) == ()


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("5.24.0", "<5.25,>=5.24", True),
        ("5.25.0", "<5.25,>=5.24", False),
        ("5.3", ">=5.24", False),
        ("2.13.0+cu130", ">=2.9", True),
        ("2.9", ">=2.9.0", True),
        ("8.2.8", "==8.2.8", True),
        ("8.2.9", "==8.2.8", False),
        ("1.0", "!=1.0", True),
        ("1.0", "", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, wanted: str, fits: bool) -> None:
    assert satisfies(version, wanted) is fits


def test_only_installed_packages_of_another_version_are_unmet() -> None:
    requirements = [
        "trl<1.17,>=1.16; extra == 'train'",
        "peft>=0.21; extra == 'train'",
        "gguf>=0.19; extra == 'train'",
    ]
    versions = {"trl": "1.18.0", "peft": "0.21.2", "gguf": None}
    assert software.unmet(requirements, versions) == {"trl": "<1.17,>=1.16"}


@pytest.mark.parametrize(("text", "release"), [("2.13.0+cu130", (2, 13, 0)), ("x", ()), ("", ())])
def test_what_is_no_version_has_no_numbers(text: str, release: tuple[int, ...]) -> None:
    assert numbers(text) == release
