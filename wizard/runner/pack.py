"""One archive of a finished run to hand over: the model, the script, the settings, a report.

Nothing in it tells whose machine it was: paths are replaced by their last part, host and user are
left out, and the whole archive is read again before it gets its name.
"""

from __future__ import annotations

import getpass
import gzip
import io
import json
import os
import re
import socket
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.theirs import why
from wizard import paths
from wizard.problem import Problem, ProblemError
from wizard.runner.again import read_spec
from wizard.runner.folder import read_json

TEXTS = (".json", ".jinja", ".md", ".txt")
"""Kinds of files in model/ whose paths are replaced; weights are only searched."""
SCRIPTS = re.compile(r"run\.sh|spec(\.\d+)?\.toml|ds_config\.json")
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
CHUNK_BYTES = 4 * 1024**2
DECISION = ("setting", "value", "reason", "origin")
ANYBODY = frozenset({"root", "user", "ubuntu", "admin", "localhost", "vm", "host", "train"})
"""Names that tell nothing and stand in ordinary text."""


def pack(folder: Path, target: Path, *, force: bool = False) -> list[str]:
    """Write a `.tar.gz`; the names in it.

    Raises ProblemError when there is no model, the target exists, without `force`, or cannot be
    written, or a file still holds what must not leave this machine.
    """
    if not (folder / "model").is_dir():
        raise ProblemError(
            Problem(
                what="this run has no model to pack", where=str(folder), fix="let it finish first"
            )
        )
    if os.path.lexists(target) and not force:
        raise ProblemError(Problem(what="there is a file already", where=str(target), exit_code=2))
    hidden = private_words(folder)
    try:
        return _write(folder, target, hidden)
    except OSError as error:
        raise ProblemError(
            Problem(what=f"cannot pack: {why(error)}", where=str(error.filename or target))
        ) from None


def _write(folder: Path, target: Path, hidden: Mapping[str, str]) -> list[str]:
    descriptor, part = tempfile.mkstemp(prefix=".pack-", dir=target.parent)
    names = []
    try:
        # No time and no name in the gzip header: the same run packs to the same bytes.
        with (
            os.fdopen(descriptor, "wb") as raw,
            gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, source in sorted(_members(folder, hidden)):
                _check(name, source, hidden)
                entry = tarfile.TarInfo(f"{folder.name}/{name}")
                entry.mode = 0o755 if name.endswith(".sh") else 0o644
                entry.size = len(source) if isinstance(source, bytes) else source.stat().st_size
                if isinstance(source, bytes):
                    archive.addfile(entry, io.BytesIO(source))
                else:
                    with source.open("rb") as stream:
                        archive.addfile(entry, stream)
                names.append(entry.name)
        os.rename(part, target)
    except BaseException:
        os.unlink(part)
        raise
    return names


def _members(folder: Path, hidden: Mapping[str, str]) -> Iterator[tuple[str, bytes | Path]]:
    """Name in the archive → what it holds: clean text, or a file as it is."""
    for path in sorted(folder.iterdir()):
        if SCRIPTS.fullmatch(path.name) and not path.is_symlink():
            yield path.name, _clean(_text(path), hidden).encode()
    for path in sorted((folder / "model").rglob("*")):
        if path.is_symlink() or not path.is_file() or path.suffix in PICKLES:
            continue
        yield f"model/{path.relative_to(folder / 'model')}", _source(path, hidden)
    report = json.dumps(_report(folder), indent=2) + "\n"
    yield "report.json", _clean(report, hidden).encode()


def _source(path: Path, hidden: Mapping[str, str]) -> bytes | Path:
    """A text without what is private, or the file itself."""
    if path.suffix not in TEXTS:
        return path
    try:
        return _clean(path.read_text(encoding="utf-8"), hidden).encode()
    except UnicodeDecodeError:
        return path


def _report(folder: Path) -> dict[str, Any]:
    """The choices with their reasons, predicted beside measured, and what the data came to."""
    plan, result = read_json(folder / "plan.json"), read_json(folder / "result.json")
    data = read_json(folder / "prepared" / "report.json")
    decisions = plan.get("decisions")
    return {
        "schema": 1,
        "title": plan.get("title"),
        "version": plan.get("version"),
        "decisions": [
            {key: decision.get(key) for key in DECISION}
            for decision in (decisions if isinstance(decisions, list) else ())
            if isinstance(decision, dict) and decision.get("setting") != "devices"
        ],
        "memory": plan.get("memory"),
        "measured": result.get("measured"),
        "predicted": result.get("predicted"),
        "data": {key: data.get(key) for key in ("kept", "dropped", "lengths") if key in data},
    }


def private_words(folder: Path) -> dict[str, str]:
    """What must not leave this machine → what stands there instead, longest first."""
    spec = read_spec(folder)
    named = [folder, folder.parent, paths.home(), paths.CHECKOUT, Path.home()]
    named += [Path(text) for text in (spec.model.model, spec.data.data) if text.startswith("/")]
    words = {str(path): path.name or "folder" for path in named if path != Path("/")}
    python = re.search(r"^PLANNED_PYTHON=(.*)$", _text(folder / "run.sh"), re.MULTILINE)
    if python:
        words[python[1].strip("'\"")] = "python3"
    for parent in {path.parent for path in named if len(path.parent.parts) > 2}:
        words.setdefault(str(parent), parent.name)
    for uuid in spec.parallel.devices:
        words[uuid] = "device"
    for name in (socket.gethostname(), socket.getfqdn(), _user()):
        if name and name.lower() not in ANYBODY and len(name) > 2:
            words[name] = "somewhere"
    return dict(sorted(words.items(), key=lambda entry: -len(entry[0])))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _clean(text: str, hidden: Mapping[str, str]) -> str:
    for word, instead in hidden.items():
        text = text.replace(word, instead).replace(json.dumps(word)[1:-1], instead)
    return text


def _check(name: str, source: bytes | Path, hidden: Mapping[str, str]) -> None:
    """Read what goes in once more; weights too, for their headers hold text.

    Raises ProblemError.
    """
    longest = max((len(word.encode()) for word in hidden), default=1)
    before = b""
    for chunk in _chunks(source):
        window = before + chunk
        for word in hidden:
            if len(word) > 5 and word.encode() in window:
                raise ProblemError(
                    Problem(
                        what=f"it holds {word!r}, which names this machine or its user",
                        where=name,
                        fix="nothing was packed; remove it from that file",
                    )
                )
        before = window[-longest:]


def _chunks(source: bytes | Path) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
