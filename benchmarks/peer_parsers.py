"""What the parsers of other trainers say of the golden exports: a folder of packages for each.

    python -m benchmarks.peer_parsers FOLDER >docs/results/$(date +%F)-peer-parsers.md

FOLDER takes the trainers, laid over the packages installed here: torch is not fetched again. Each
parser reads a file as its trainer's own command does, up to where a model would be loaded.
"""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "formats" / "golden"
HUB = ("huggingface_hub<2", "httpx<1", "httpcore<2", "hf-xet", "tokenizers<0.23", "pillow")
LIMIT_SECONDS = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Parser:
    """How a trainer reads a file."""

    packages: tuple[str, ...]
    files: str
    """Golden exports it reads, as a glob."""
    code: str
    """Reads `sys.argv[1]` and prints what it made of it."""


LLAMAFACTORY = """
import sys
sys.argv = ["llamafactory-cli", sys.argv[1], "use_cpu=true"]
from llamafactory.hparams.parser import _parse_train_args, read_args
model, data, training, tuning, _ = _parse_train_args(read_args(None))
print(tuning.stage, tuning.finetuning_type, data.cutoff_len, training.learning_rate)
"""
SWIFT = """
import shlex, sys
from transformers import HfArgumentParser
from swift.arguments import PretrainArguments, RLHFArguments, SftArguments
words = shlex.split(open(sys.argv[1]).read().split("exec swift ")[1].replace("\\\\\\n", " "))
kind = {"sft": SftArguments, "rlhf": RLHFArguments, "pt": PretrainArguments}[words[0]]
read, unknown = HfArgumentParser(kind).parse_known_args(words[1:])
assert not unknown, unknown
print(words[0], read.tuner_type, read.max_length, read.learning_rate)
"""
AXOLOTL = """
import sys, yaml
from axolotl.utils.schemas.config import AxolotlInputConfig
given = yaml.safe_load(open(sys.argv[1]))
unknown = set(given) - set(AxolotlInputConfig.model_fields)
assert not unknown, unknown
read = AxolotlInputConfig(**given)
print(read.rl, read.adapter, read.sequence_len, read.learning_rate)
"""
ACCELERATE = """
import sys
from accelerate.commands.config.config_args import load_config_from_file
read = load_config_from_file(sys.argv[1])
print(read.distributed_type, read.num_processes, read.mixed_precision)
"""
PARSERS: Mapping[str, Parser] = {
    "LLaMA-Factory 0.9.5": Parser(
        packages=(
            "llamafactory==0.9.5",
            "transformers==5.6.0",
            "trl==0.24.0",
            "peft==0.18.1",
            "accelerate==1.11.0",
            "omegaconf",
            "antlr4-python3-runtime==4.9.3",
            *HUB,
        ),
        files="*.llamafactory.yaml",
        code=LLAMAFACTORY,
    ),
    "ms-swift 4.6.0": Parser(
        packages=(
            "ms-swift==4.6.0",
            "transformers==5.12.1",
            "trl==0.24.0",
            "peft==0.20.0",
            "modelscope",
            "modelscope-hub",
            "dacite",
            "json_repair",
            "addict",
            "cryptography",
            "cffi",
            "aiohttp",
            "yarl",
            "multidict",
            "frozenlist",
            "aiosignal",
            "propcache",
            "aiohappyeyeballs",
            *HUB,
        ),
        files="*.swift.sh",
        code=SWIFT,
    ),
    "axolotl 0.21.0": Parser(
        packages=("axolotl==0.21.0", "addict", "pillow"), files="*.axolotl.yaml", code=AXOLOTL
    ),
    "accelerate, as installed": Parser(packages=(), files="*.accelerate.yaml", code=ACCELERATE),
}


def results(folder: Path) -> Iterator[tuple[str, str, str]]:
    """(trainer, file, what its parser said) of every golden export."""
    for name, parser in PARSERS.items():
        place = folder / name.split()[0]
        if parser.packages and not place.is_dir():
            install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            # Wheels for this Python, whatever a package says of the ones it was tested with.
            wide = ["--ignore-requires-python", "--target", str(place), *parser.packages]
            subprocess.run([*install, *wide], check=True)
        for file in sorted(GOLDEN.glob(parser.files)):
            yield name, file.name, _said(parser, place, file)


def _said(parser: Parser, place: Path, file: Path) -> str:
    # LLaMA-Factory alone looks at the first variable: versions here are newer than it names.
    environment = {"DISABLE_VERSION_CHECK": "1", "PYTHONPATH": str(place), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", parser.code, str(file)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
        cwd=place if place.is_dir() else None,
    )
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return f"{'takes it' if done.returncode == 0 else 'REFUSES IT'}: {lines[-1] if lines else ''}"


def main(folder: Path) -> None:
    """Print the table."""
    print(f"# What the parsers of other trainers say, {datetime.date.today()}\n")
    print("`python -m benchmarks.peer_parsers FOLDER`, on the files of `tests/formats/golden/`.\n")
    print("| trainer | file | its parser |\n|---|---|---|")
    for name, file, said in results(folder):
        print(f"| {name} | `{file}` | {said} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("python benchmarks/peer_parsers.py FOLDER")
    main(Path(sys.argv[1]))
