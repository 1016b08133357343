"""Fetch: a model's name becomes a verified local folder, once, before anything else."""

from __future__ import annotations

import argparse
import json
import os
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from engine import plugins, rules
from engine.failure import RunError, command
from engine.record import read_json, write_json
from engine.spec import ModelTable, Spec, SpecError, loads

WANTED = ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "README.md", "LICENSE*"]
"""Files of a hub model that are taken: weights without code, tokenizer, templates, licence."""
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """Where a verified model lies."""

    path: Path
    revision: str | None
    source: str


def read_spec(path: Path) -> Spec:
    """The spec of a run, checked against the rules of what combines with what.

    Raises SpecError, or RunError when the file is missing or breaks a rule.
    """
    try:
        spec = loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError("bad_spec", f"{path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise RunError("bad_spec", f"{path}: not UTF-8") from None
    except SpecError as error:
        raise RunError("bad_spec", f"{path}: {error}") from None
    broken = [f"{v.setting}: {v.why} (nearest: {v.nearest})" for v in rules.check(spec)]
    if broken:
        raise RunError("bad_spec", f"{path}: " + "; ".join(broken))
    return spec


def read_fetched(run: Path) -> Fetched:
    """What `fetch` found for this run.

    Raises RunError when it has not run here.
    """
    said = read_json(run / "fetched.json")
    try:
        return Fetched(path=Path(said["path"]), revision=said["revision"], source=said["source"])
    except (TypeError, KeyError):
        raise RunError("bad_spec", f"{run}: no fetched.json; run `engine.fetch` first") from None


def fetch(table: ModelTable) -> Fetched:
    """The verified folder of a model.

    Raises RunError (bad_spec) in one sentence when there is none.
    """
    folder = Path(table.model).expanduser()
    local = table.source == "local" or folder.is_absolute() or folder.is_dir()
    if local:
        found = Fetched(path=folder.absolute(), revision=table.revision, source="local")
    elif table.source == "modelscope":
        found = _from_modelscope(table)
    else:
        found = _from_huggingface(table)
    verify(found.path)
    return found


def _from_huggingface(table: ModelTable) -> Fetched:
    from huggingface_hub import snapshot_download

    try:
        path = Path(snapshot_download(table.model, revision=table.revision, allow_patterns=WANTED))
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        host = os.environ.get("HF_ENDPOINT", "the hub")
        raise RunError(
            "bad_spec",
            f"{table.model}: no such folder, and {host} did not give it ({reason}); "
            "give a local folder, or set HF_ENDPOINT or HF_TOKEN",
        ) from None
    return Fetched(path=path, revision=path.name, source="huggingface")


def _from_modelscope(table: ModelTable) -> Fetched:
    if util.find_spec("modelscope") is None:
        raise RunError(
            "bad_spec", f"{table.model}: source=modelscope needs `pip install modelscope`"
        )
    from modelscope import snapshot_download

    try:
        path = snapshot_download(table.model, revision=table.revision, allow_patterns=WANTED)
    except Exception as error:
        raise RunError("bad_spec", f"{table.model}: ModelScope did not give it ({error})") from None
    return Fetched(path=Path(path), revision=table.revision, source="modelscope")


def verify(folder: Path) -> None:
    """Check that a folder holds a whole model: configuration, and every byte of its weights.

    Raises RunError naming the first file that is missing, cut short or only a pointer.
    """
    if not folder.is_dir():
        raise RunError("bad_spec", f"{folder}: no such model folder")
    if not (folder / "config.json").is_file():
        raise RunError("bad_spec", f"{folder}: not a model folder, it has no config.json")
    _read_json(folder / "config.json")
    for name in _weight_files(folder):
        _verify_weights(folder / name)


def _weight_files(folder: Path) -> Iterator[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weights: dict[str, str] = _read_json(index).get("weight_map", {})
        yield from sorted(set(weights.values()))
        return
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        other = next(folder.glob("*.bin"), None) or next(folder.glob("*.gguf"), None)
        instead = f" (only {other.name}, which is not read)" if other else ""
        raise RunError("bad_spec", f"{folder}: no weights, a *.safetensors file is needed{instead}")
    yield from names


def _verify_weights(path: Path) -> None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(8)
            if LFS_POINTER.startswith(start) and start:
                raise RunError("bad_spec", f"{path}: only a git-lfs pointer; run `git lfs pull`")
            header_bytes = struct.unpack("<Q", start)[0] if len(start) == 8 else size
            header = file.read(header_bytes) if header_bytes + 8 <= size else b"{}"
        ends = _tensor_ends(header)
    except FileNotFoundError:
        raise RunError("bad_spec", f"{path}: a weight file of the model is missing") from None
    except (ValueError, RecursionError, TypeError, AttributeError, LookupError):
        raise RunError("bad_spec", f"{path}: not a safetensors file") from None
    if not ends or 8 + header_bytes + max(ends) != size:
        raise RunError("bad_spec", f"{path}: cut short or damaged; fetch the file again")


def _tensor_ends(header: bytes) -> list[int]:
    """Where each tensor ends, in bytes after the header."""
    entries: dict[str, Any] = json.loads(header)
    return [
        int(entry["data_offsets"][1]) for key, entry in entries.items() if key != "__metadata__"
    ]


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise RunError("bad_spec", f"{path}: not valid JSON ({error})") from None


def main() -> int:
    """Fetch the model of a spec and write `fetched.json`; the exit code."""
    parser = argparse.ArgumentParser(prog="engine.fetch", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--run", type=Path, default=Path())
    options = parser.parse_args()

    def body() -> None:
        spec = read_spec(options.spec)
        plugins.keep(spec, options.run.absolute())  # what is missing is said before a long download
        found = fetch(spec.model)
        said = {"path": str(found.path), "revision": found.revision, "source": found.source}
        write_json(options.run / "fetched.json", said)

    return command(body)


if __name__ == "__main__":
    sys.exit(main())
