"""The settings that other trainers accept, read from their wheels: names only, nothing is run.

    pip download --no-deps -d WHEELS llamafactory==0.9.5 ms-swift==4.6.0 axolotl==0.21.0
    for v in 4.57.6 5.6.0 5.12.1; do pip download --no-deps -d WHEELS transformers==$v; done
    python -m benchmarks.peer_fields WHEELS

Writes `wizard/formats/fields/<peer>.txt`. TRL and accelerate are read as they are installed here.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FIELDS = Path(__file__).resolve().parent.parent / "wizard" / "formats" / "fields"
INHERITED = ("TrainingArguments", "Seq2SeqTrainingArguments")
INSTALLED = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """Where a trainer declares what it accepts."""

    package: str
    """Name of the distribution."""
    under: tuple[str, ...]
    """Beginnings of the paths, inside its wheel, of the files that declare settings."""
    classes: tuple[str, ...]
    transformers: tuple[str, ...] = ()
    """Versions of transformers it runs with, whose training arguments it inherits."""


PEERS: Mapping[str, Peer] = {
    "llamafactory": Peer(
        package="llamafactory",
        under=("llamafactory/hparams/",),
        classes=(
            "ModelArguments",
            "DataArguments",
            "TrainingArguments",
            "FinetuningArguments",
            "GeneratingArguments",
        ),
        transformers=("4.57.6", "5.6.0"),
    ),
    "swift": Peer(
        package="ms-swift",
        under=("swift/arguments/", "swift/trainers/", "swift/rlhf_trainers/", "swift/ray_utils/"),
        classes=("SftArguments", "PretrainArguments", "RLHFArguments"),
        transformers=("4.57.6", "5.12.1"),
    ),
    "axolotl": Peer(
        package="axolotl",
        under=("axolotl/utils/schemas/",),
        classes=("AxolotlInputConfig",),
    ),
    "trl": Peer(
        package="trl",
        under=("trl/",),
        classes=(
            "SFTConfig",
            "DPOConfig",
            "KTOConfig",
            "RewardConfig",
            "ModelConfig",
            "ScriptArguments",
            "DatasetMixtureConfig",
        ),
        transformers=(INSTALLED,),
    ),
    "accelerate": Peer(
        package="accelerate",
        under=("accelerate/commands/config/config_args",),
        classes=("ClusterConfig",),
    ),
}

Classes = dict[str, tuple[list[str], list[str]]]
"""Class → (its own fields, its bases)."""


def declared(sources: Iterable[str]) -> Classes:
    """Every class of some Python files."""
    found: Classes = {}
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).rsplit(".", 1)[-1] for base in node.bases]
                found.setdefault(node.name, ([], []))
                found[node.name][0].extend(_own(node))
                found[node.name][1].extend(base for base in bases if base != node.name)
    return found


def _own(node: ast.ClassDef) -> list[str]:
    """Annotated names, and the other names that a pydantic field is read by."""
    names = []
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            if "ClassVar" in ast.unparse(line.annotation):
                continue
            names += [line.target.id, *_aliases(line)]
    return [name for name in names if not name.startswith("_")]


def _aliases(line: ast.AnnAssign) -> list[str]:
    if not isinstance(line.value, ast.Call):
        return []
    given = {word.arg: word.value for word in line.value.keywords}
    return [
        value.value
        for key, value in given.items()
        if key in ("alias", "validation_alias")
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    ]


def fields(name: str, classes: Classes, seen: frozenset[str] = frozenset()) -> set[str]:
    """A class's fields and those it inherits from classes that are known."""
    if name not in classes or name in seen:
        return set()
    own, bases = classes[name]
    return set(own).union(*(fields(base, classes, seen | {name}) for base in bases))


def _files(folder: Path, package: str, version: str = INSTALLED) -> tuple[str, dict[str, str]]:
    """(version, {path: text}) of a package's wheel, else of the package installed here."""
    wheels = folder.glob(f"{package.replace('-', '_')}-{version or '*'}-*.whl")
    for wheel in () if (package, version) == ("transformers", INSTALLED) else wheels:
        with zipfile.ZipFile(wheel) as opened:
            python = [name for name in opened.namelist() if name.endswith(".py")]
            return wheel.name.split("-")[1], {name: opened.read(name).decode() for name in python}
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    files = {f"{package}/{p.relative_to(root)}": p.read_text() for p in root.rglob("*.py")}
    return importlib.metadata.version(package), files


def _transformers(folder: Path, version: str) -> tuple[str, set[str]]:
    """(version, training arguments) of transformers."""
    found, files = _files(folder, "transformers", version)
    classes = declared(t for path, t in files.items() if path.startswith("transformers/training_"))
    return found, set().union(*(fields(name, classes) for name in INHERITED))


def main(folder: Path) -> None:
    """Write every list anew."""
    for peer, told in PEERS.items():
        version, files = _files(folder, told.package)
        classes = declared(text for path, text in files.items() if path.startswith(told.under))
        found = set().union(*(fields(name, classes) for name in told.classes))
        inherited = [_transformers(folder, version) for version in told.transformers]
        found = found.union(*(names for _, names in inherited))
        head = f"# {told.package} {version}"
        if inherited:
            head += f" on transformers {' and '.join(version for version, _ in inherited)}"
        (FIELDS / f"{peer}.txt").write_text("\n".join([head, *sorted(found)]) + "\n")
        print(f"{peer}: {len(found)} settings of {head[2:]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
