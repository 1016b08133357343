"""install.sh: its choices on machines of every kind, and what it says when it cannot go on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tree import ROOT

INSTALL = ROOT / "install.sh"
CHINESE = ROOT / "wizard" / "locale" / "install.zh.sh"
SENTENCE = re.compile(r"\b(?:say|fail|words) '([^']*[a-z]{2}[^']*)'")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command that sees this environment and TUNEWRIGHT_HOME, nothing else."""
    home = {"PATH": "/usr/bin:/bin", "TUNEWRIGHT_HOME": os.environ["TUNEWRIGHT_HOME"]}
    return subprocess.run(command, env=home | environment, text=True, capture_output=True)


def source(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs bash code after install.sh has been sourced."""
    return run("bash", "-c", f'source "$1"; {code}', "test", str(INSTALL), **environment)


def program(folder: Path, name: str, code: str) -> None:
    """An executable of this name in the folder, made of shell code."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{code}\n")
    (folder / name).chmod(0o755)


def machine(root: Path, *files: str, cards: str = "", nvidia_smi_code: int = 0) -> dict[str, str]:
    """A made-up machine below root: its files, and the nvidia-smi that lists these cards."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("0x10de\n")
    program(root / "bin", "nvidia-smi", f"printf '%s\\n' '{cards}'; exit {nvidia_smi_code}")
    return {"PATH": f"{root / 'bin'}:/usr/bin:/bin"}


@pytest.mark.parametrize(
    ("oldest", "newest", "driver", "index"),
    [
        (75, 75, 580, "cu130"),  # T4
        (80, 90, 570, "cu126"),  # A100 and H100 before CUDA 13
        (90, 90, 580, "cu130"),  # H100
        (61, 61, 580, "cu126"),  # P40: CUDA 13 has no kernels for it
        (70, 86, 580, "cu126"),  # V100 beside A10
        (70, 70, 535, "cu126"),
        (120, 120, 570, "cu128"),  # RTX 5090 before CUDA 13
        (75, 120, 580, "cu130"),  # T4 beside RTX 5090
        (121, 121, 580, "cu130"),  # GB10
    ],
)
def test_a_build_with_kernels_for_every_card_is_chosen(
    oldest: int, newest: int, driver: int, index: str
) -> None:
    assert source(f"torch_index_for {oldest} {newest} {driver}").stdout == f"{index}\n"


@pytest.mark.parametrize(
    ("oldest", "newest", "driver", "said"),
    [
        (70, 120, 580, "no one torch build serves cards of compute capability 7.0 to 12.0"),
        (61, 100, 580, "--torch-index"),
        (90, 90, 515, "NVIDIA driver 515 is too old"),
        (120, 120, 560, "NVIDIA driver 560 is too old"),
        (35, 35, 470, "5.0 is the least"),
    ],
)
def test_cards_without_a_build_end_with_one_sentence(
    oldest: int, newest: int, driver: int, said: str
) -> None:
    result = source(f"torch_index_for {oldest} {newest} {driver}; echo still here")

    assert result.returncode == 1
    assert result.stdout == ""
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_all_cards_count_not_only_the_first(tmp_path: Path) -> None:
    cards = "580.95.05, 9.0\n580.95.05, 7.0\n580.95.05, 8.9"
    environment = machine(tmp_path, "dev/nvidia0", cards=cards)

    assert source(f"machine_root={tmp_path}; torch_build", **environment).stdout == "cu126\n"


@pytest.mark.parametrize(
    ("file", "build"),
    [("dev/kfd", "rocm7.2"), ("dev/davinci0", "npu"), ("etc/hostname", "cpu")],
)
def test_the_build_follows_the_kind_of_accelerator(tmp_path: Path, file: str, build: str) -> None:
    environment = machine(tmp_path, file)

    assert source(f"machine_root={tmp_path}; torch_build", **environment).stdout == f"{build}\n"


def test_a_driver_that_does_not_answer_is_never_a_cpu_machine(tmp_path: Path) -> None:
    said = (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144"
    )
    environment = machine(tmp_path, "dev/nvidia0", cards=said, nvidia_smi_code=18)

    result = source(f"machine_root={tmp_path}; torch_build", **environment)

    assert result.returncode == 1
    assert result.stdout == ""
    assert "Driver/library version mismatch NVML library version: 550.144" in result.stderr
    assert "reboot" in result.stderr


def test_a_container_without_nvidia_smi_is_told_which_capability_to_add(tmp_path: Path) -> None:
    machine(tmp_path, "dev/nvidia0")
    (tmp_path / "bin" / "nvidia-smi").unlink()

    result = source(
        f"machine_root={tmp_path}; torch_build", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin"
    )

    assert result.returncode == 1
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in result.stderr


def test_a_card_without_a_driver_is_said_aloud(tmp_path: Path) -> None:
    environment = machine(tmp_path, "sys/bus/pci/devices/0000:01:00.0/vendor")

    result = source(f"machine_root={tmp_path}; torch_build", **environment)

    assert result.stdout == "cpu\n"
    assert "no driver reaches it" in result.stderr


@pytest.mark.parametrize(
    ("release", "command"),
    [
        (
            "ID=ubuntu\nVERSION_ID=22.04\nID_LIKE=debian",
            "apt-get install -y python3.11 python3.11-venv",
        ),
        ("ID=ubuntu\nVERSION_ID=24.04\nID_LIKE=debian", "apt-get install -y python3 python3-venv"),
        ("ID=debian\nVERSION_ID=13", "apt-get install -y python3 python3-venv"),
        ('ID="rocky"\nVERSION_ID="9.4"\nID_LIKE="rhel centos fedora"', "dnf install -y python3.11"),
        ("ID=fedora\nVERSION_ID=42", "dnf install -y python3.11"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "zypper install -y python311"),
        ("ID=arch", "pacman -S --noconfirm python"),
        ("ID=alpine\nVERSION_ID=3.22.1", "apk add python3"),
        ("ID=nixos", "conda create -y -n python3.12 python=3.12 && conda activate python3.12"),
    ],
)
def test_the_one_command_for_this_operating_system(
    tmp_path: Path, release: str, command: str
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "os-release").write_text(release)

    result = source(f"machine_root={tmp_path}; python_command")

    assert result.stdout.removeprefix("sudo ") == f"{command}\n"


def bare_path(tmp_path: Path) -> Path:
    """A PATH folder with what install.sh needs, and no Python."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in (
        "bash",
        "cat",
        "cksum",
        "dirname",
        "grep",
        "ls",
        "mkdir",
        "rm",
        "sed",
        "sort",
        "tail",
        "uname",
    ):
        (folder / name).symlink_to(shutil.which(name) or "")
    return folder


def test_an_old_python_is_no_python_and_the_remedy_is_named(tmp_path: Path) -> None:
    tools = bare_path(tmp_path)
    program(tools, "python3", "exit 1  # what Python 3.9 answers to the question for 3.11")

    result = source("choice=cpu; find_python", PATH=str(tools))

    assert result.returncode == 1
    assert "Python 3.11 or newer is needed" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_python_without_ensurepip_names_its_missing_package(tmp_path: Path) -> None:
    tools = bare_path(tmp_path)
    program(tools, "python3", f'[[ $* != *ensurepip* ]] && exec "{sys.executable}" "$@"')

    result = source("choice=cpu; find_python", PATH=str(tools))

    assert result.returncode == 1
    assert "python{}.{}-venv".format(*sys.version_info) in result.stderr


def test_conda_brings_a_python_where_there_is_none(tmp_path: Path) -> None:
    tools = bare_path(tmp_path)
    # conda create -y -q -p FOLDER python=3.12
    program(tools, "conda", 'mkdir -p "$5/bin" && : >"$5/bin/python"')

    result = source(
        "choice=cpu; mkdir -p $unfinished; find_python",
        PATH=str(tools),
        TUNEWRIGHT_HOME=str(tmp_path),
    )

    assert result.stdout == f"{tmp_path}/.venv.python/bin/python\n"
    assert Path(result.stdout.strip()).exists()


def test_a_folder_that_is_no_environment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "mine.txt").write_text("precious")

    result = run("bash", str(INSTALL), TUNEWRIGHT_HOME=str(tmp_path))

    assert result.returncode == 1
    assert "is no Python environment" in result.stderr
    assert (tmp_path / ".venv" / "mine.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--torch"], "there is no option --torch"),
        (["--torch-index"], "--torch-index needs a URL"),
    ],
)
def test_a_wrong_option_changes_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    result = run("bash", str(INSTALL), *words, TUNEWRIGHT_HOME=str(tmp_path))

    assert (result.returncode, list(tmp_path.iterdir())) == (1, [])
    assert said in result.stderr


def test_shellcheck_finds_nothing() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")

    result = run(str(shellcheck), str(INSTALL), str(CHINESE), str(ROOT / ".ci" / "run"))

    assert result.stdout == ""


def test_every_pinned_version_is_exact_and_admitted_by_pyproject() -> None:
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    pins = {
        name.lower().replace("_", "-"): version
        for name, version in (
            line.split("==")
            for line in (ROOT / "constraints.txt").read_text().splitlines()
            if not line.startswith("#")
        )
    }
    wanted = [Requirement(text) for text in requires("tunewright") or []]

    assert [
        str(requirement)
        for requirement in wanted
        if not requirement.specifier.contains(pins[requirement.name.lower()])
    ] == []


def test_every_sentence_is_said_in_chinese_where_the_locale_is(tmp_path: Path) -> None:
    sentences = SENTENCE.findall(INSTALL.read_text(encoding="utf-8"))
    assert len(sentences) > 20
    listed = tmp_path / "sentences"
    listed.write_text("".join(f"{one}\n" for one in sentences), encoding="utf-8")
    code = f'while IFS= read -r one; do in_language "$one"; echo; done <"{listed}"'

    english = source(code).stdout.splitlines()
    chinese = source(code, LANG="zh_CN.UTF-8").stdout.splitlines()

    assert english == sentences
    for theirs, ours in zip(sentences, chinese, strict=True):
        assert re.search("[\u4e00-\u9fff]", ours), theirs
        assert ours.count("%s") == theirs.count("%s"), theirs


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({"LANG": "zh_CN.UTF-8"}, "没有选项 --nope"),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, "there is no option --nope"),
        ({"LANG": "en_US.UTF-8", "TUNEWRIGHT_LANG": "zh"}, "没有选项 --nope"),
        ({}, "there is no option --nope"),
    ],
)
def test_the_nearest_word_about_the_language_decides(
    environment: dict[str, str], word: str
) -> None:
    assert word in run("bash", str(INSTALL), "--nope", **environment).stderr
