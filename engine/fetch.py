"""Fetch: a model's name becomes a verified local folder, once, before anything else."""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import own_code, plugins, rules
from engine.failure import RunError, command
from engine.record import read_json, tell, write_json
from engine.rows.sources import Source, sources
from engine.rows.values import DataError
from engine.spec import ModelTable, Spec, SpecError, loads
from engine.theirs import why

if TYPE_CHECKING:
    from engine.hub.repo import Told

LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fetched:
    """Where a verified model lies."""

    path: Path
    revision: str | None
    source: str
    content: str | None = None
    """Hash of what the hub says it holds; None for a folder."""
    code: Mapping[str, str] | None = None
    """File of the model's own code → its SHA-256; None where none may run."""
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Data sets on hubs, as the spec names them → their files here."""


def read_spec(path: Path) -> Spec:
    """The spec of a run, checked against the rules of what combines with what.

    Raises SpecError, or RunError when the file is missing or breaks a rule.
    """
    try:
        spec = loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError("bad_spec", f"{path}: {why(error)}") from None
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
        return Fetched(
            path=Path(said["path"]),
            revision=said["revision"],
            source=said["source"],
            content=said.get("content"),
            code=said.get("code"),
            data={name: one["files"] for name, one in said.get("data", {}).items()},
        )
    except (TypeError, KeyError, AttributeError):
        raise RunError("bad_spec", f"{run}: no fetched.json; run `engine.fetch` first") from None


def fetch(table: ModelTable, told: Told = lambda done, total: None) -> Fetched:
    """The verified folder of a model.

    Raises RunError in one sentence when there is none.
    """
    folder = Path(table.model).expanduser()
    local = table.source == "local" or folder.is_absolute() or folder.is_dir()
    if local:
        found = Fetched(path=folder.absolute(), revision=table.revision, source="local")
    else:
        from engine.hub.sets import fetch_model

        source = "huggingface" if table.source == "auto" else table.source
        got = fetch_model(source, table, told)
        found = Fetched(path=got.folder, revision=got.revision, source=source, content=got.content)
    verify(found.path, trusted=table.trust_remote_code)
    return found


def fetch_run(spec: Spec, run: Path) -> Fetched:
    """Everything a run needs from elsewhere, listed in its `fetched.json`.

    What the list has already, for the same names, is verified and taken: a run that goes on, goes
    on with the commits it began with, and asks nobody. Raises RunError in one sentence.
    """
    plugins.keep(spec, run.absolute())  # what is missing is said before a long download
    said = read_json(run / "fetched.json")
    asked = spec.model.model_dump(include={"model", "revision", "source", "trust_remote_code"})
    found = _fetched_before(said, asked, run) or fetch(spec.model, _Arriving(run, spec.model.model))
    data = {}
    for source in _hub_sets(spec):
        name = str(source.path)
        data[name] = _set_before(said, name) or _fetch_set(source, _Arriving(run, name))
    whole = {
        "path": str(found.path),
        "revision": found.revision,
        "source": found.source,
        "content": found.content,
        "code": _code(said, found.path) if spec.model.trust_remote_code else None,
        "asked": asked,
        "data": data,
    }
    write_json(run / "fetched.json", whole)
    return read_fetched(run)


def _code(said: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """The model's own code as this run began with it, whatever has become of the folder since."""
    before = said.get("code")
    if isinstance(before, dict) and said.get("path") == str(folder):
        own_code.check_unchanged(folder, before)
        return before
    return own_code.digests(folder)


def _fetched_before(said: Mapping[str, Any], asked: Mapping[str, Any], run: Path) -> Fetched | None:
    if said.get("asked") != asked or said.get("source") == "local":
        return None
    found = read_fetched(run)
    try:
        verify(found.path, trusted=bool(asked["trust_remote_code"]))
    except RunError:  # somebody cleared the cache
        return None
    return found


def _hub_sets(spec: Spec) -> list[Source]:
    named = [spec.data.data, *([spec.data.eval_data] if spec.data.eval_data else [])]
    try:
        found = [source for text in named for source in sources(text)]
        return [source for source in found if source.hub is not None]
    except DataError as error:
        raise RunError("bad_data", f"{error.what}; {error.fix}") from None


def _set_before(said: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    before: dict[str, Any] | None = said.get("data", {}).get(name)
    files = before["files"] if before else []
    return before if files and all(Path(file).is_file() for file in files) else None


def _fetch_set(source: Source, told: Told) -> dict[str, Any]:
    from engine.hub.sets import fetch_set

    wanted = source.hub
    assert wanted is not None
    got = fetch_set(wanted, told)
    return {"exactly": got.name, "content": got.content, "files": [str(file) for file in got.files]}


class _Arriving:
    """Tells the run's dashboard how much has arrived."""

    def __init__(self, run: Path, name: str) -> None:
        self._run, self._name = run, name

    def __call__(self, done: int, total: int) -> None:
        detail = f"{self._name}: {done / 1024**3:.2f} of {total / 1024**3:.2f} GiB"
        tell(self._run, {}, "phase", phase="fetching", progress=done / total, detail=detail)


def verify(folder: Path, *, trusted: bool = False) -> None:
    """Check that a folder holds a whole model: configuration, and every byte of its weights.

    Code that comes with it is refused where it would run, unless it is `trusted`.

    Raises RunError naming the first file that is missing, cut short or only a pointer.
    """
    if not folder.is_dir():
        raise RunError("bad_spec", f"{folder}: no such model folder")
    if not (folder / "config.json").is_file():
        raise RunError("bad_spec", f"{folder}: not a model folder, it has no config.json")
    own_code.check(str(folder), _read_json(folder / "config.json"), trusted=trusted)
    if trusted:
        own_code.check_whole(folder)
    for name in _weight_files(folder):
        verify_weights(folder / name)


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


def verify_weights(path: Path) -> None:
    """Check that a safetensors file has the size that its own header says.

    Raises RunError (bad_spec).
    """
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
        raise RunError("bad_spec", f"{path}: not valid JSON ({why(error)})") from None


def main() -> int:
    """Fetch what a spec needs and write `fetched.json`; the exit code."""
    parser = argparse.ArgumentParser(prog="engine.fetch", description=__doc__)
    parser.add_argument("spec", type=Path)
    parser.add_argument("--run", type=Path, default=Path())
    options = parser.parse_args()
    return command(lambda: _say(fetch_run(read_spec(options.spec), options.run)))


def _say(found: Fetched) -> None:
    at = f" at {found.revision}" if found.revision else ""
    print(f"model: {found.path}{at}")  # noqa: T201
    for name, files in found.data.items():
        print(f"data: {name}, files: {len(files)}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
