"""The wheels that `gpu_check.sh` lays over a machine that cannot fetch any: at most 64 MiB of them.

    python -m benchmarks.gpu_wheels FOLDER [--cuda 130] [--python 3.12]

They are for x86-64 Linux, in the tested versions of constraints.txt. What such a
machine has already (torch, numpy, pandas, pyarrow, accelerate, tokenizers) is not among them. Of
bitsandbytes only the library of one CUDA version is kept: with all of them it is 43 MB.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = (
    "trl",
    "peft",
    "datasets",
    "dill",
    "multiprocess",
    "bitsandbytes",
    "transformers",
    "pydantic",
    "pydantic_core",
    "annotated-types",
    "typing-inspection",
    "typing_extensions",
    "tomlkit",
)
MOST_BYTES = 64 * 1024**2
PLATFORMS = ("manylinux_2_28", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
KERNELS = re.compile(r"bitsandbytes/libbitsandbytes_(?:cuda(?P<cuda>\d+)|rocm\d+|xpu).*\.so")


def requirements() -> Iterator[str]:
    """Each name with its tested version."""
    tested = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        name, _, version = line.partition("==")
        tested[name.lower().replace("_", "-")] = version
    for name in NAMES:
        yield f"{name}=={tested[name.lower().replace('_', '-')]}"


def download(folder: Path, python: str) -> None:
    """Let pip fetch them, none of what they need beside them."""
    platforms = [word for p in PLATFORMS for word in ("--platform", f"{p}_x86_64")]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"),
            *("--no-deps", "--only-binary=:all:", "--python-version", python),
            *("--implementation", "cp", *platforms, "--dest", str(folder), *requirements()),
        ],
        check=True,
    )


def keep_one_kernel(wheel: Path, cuda: str) -> None:
    """Write the wheel again without the libraries of other devices and CUDA versions.

    Raises ValueError where it has none for this one.
    """
    part = wheel.with_suffix(".part")
    dropped, kept = set(), set()
    with zipfile.ZipFile(wheel) as source:
        for name in source.namelist():
            match = KERNELS.fullmatch(name)
            if match:
                (kept if match["cuda"] == cuda else dropped).add(name)
        if not kept:
            raise ValueError(f"{wheel.name} has no kernels for CUDA {cuda}")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as out:
            for item in source.infolist():
                if item.filename in dropped:
                    continue
                content = source.read(item)
                if item.filename.endswith(".dist-info/RECORD"):
                    lines = content.decode().splitlines(keepends=True)
                    there = [line for line in lines if line.split(",")[0] not in dropped]
                    content = "".join(there).encode()
                out.writestr(item, content)
    part.replace(wheel)


def main() -> int:
    """Make the folder; 1 where it is too large."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_wheels", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cuda", default="130", help="of the torch there: 130 is CUDA 13.0")
    parser.add_argument("--python", default="3.12", help="the version there")
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    download(folder, options.python)
    (wheel,) = folder.glob("bitsandbytes-*.whl")
    keep_one_kernel(wheel, options.cuda)
    sizes = {path.name: path.stat().st_size for path in sorted(folder.glob("*.whl"))}
    for name, size in sizes.items():
        print(f"{size / 1024**2:7.1f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total / 1024**2:7.1f} MiB  together, of at most {MOST_BYTES / 1024**2:.0f}")
    return int(total > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
