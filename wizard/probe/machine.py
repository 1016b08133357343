"""Machines that are not this one: saved to a file, shipped as a snapshot, or composed by name."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

from engine.theirs import why
from wizard import paths
from wizard.facts import Facts
from wizard.probe import composed
from wizard.probe.document import from_document, to_document
from wizard.problem import Problem, ProblemError

COUNT_AND_NAME = re.compile(r"\s*(?:(\d{1,3})\s*[x×*]\s*)?(\S.*?)\s*", re.IGNORECASE)
COUNT_THEN_NAME = re.compile(r"\s*(\d{1,3})\s+(\S.*?)\s*")
"""`8 H100`; `24 GB` is a size, so only a name that is known has a count before it."""
LIMIT_BYTES = 16 * 1024**2
"""A machine with a thousand devices is far below."""


def save(facts: Facts, path: Path) -> Path:
    """Write the machine to a file, whole or not at all; returns its absolute path.

    Raises ProblemError when it cannot be written.
    """
    path = path.expanduser().absolute()
    text = json.dumps(to_document(facts), indent=2, ensure_ascii=False) + "\n"
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).chmod(0o644)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise _unusable(f"cannot be written: {why(error)}", str(path)) from None
    return path


def load(path: Path) -> Facts:
    """The machine of a file; `machine` of the facts is the name it was saved under, or its file's.

    Raises ProblemError (exit code 2) when it cannot be read or is no machine.
    """
    path = path.expanduser()
    try:
        with path.open("rb") as file:
            raw = file.read(LIMIT_BYTES + 1)
        value = json.loads(raw.decode("utf-8")) if len(raw) <= LIMIT_BYTES else None
    except OSError as error:
        raise _unusable(f"cannot be read: {why(error)}", str(path)) from None
    except (ValueError, RecursionError):
        raise _unusable("not JSON, so not a machine file", str(path)) from None
    facts = from_document(value, str(path))
    return replace(facts, machine=facts.machine or path.stem)


def shipped() -> dict[str, Path]:
    """Snapshots that come with the program, by name."""
    folder = paths.shipped_presets() / "machines"
    return {path.stem: path for path in sorted(folder.glob("*.json"))}


def find(text: str) -> Facts:
    """The machine a text names: a file, a shipped snapshot, or a count and a name of the table.

    Raises ProblemError (exit code 2) offering the nearest names.
    """
    path = _file(text)
    if path is not None:
        return load(path)
    snapshots = {_plain(name): path for name, path in shipped().items()}
    if _plain(text) in snapshots:
        return load(snapshots[_plain(text)])
    if text.endswith(".json") or text.startswith((os.sep, ".", "~")):
        raise _unusable("there is no such file", text)
    plain = text.replace('"', " ").replace("'", " ")
    spaced = COUNT_THEN_NAME.fullmatch(plain)
    if spaced is not None and (counted := composed.known_name(spaced[2])) is not None:
        return composed.compose(int(spaced[1]), counted)
    found = COUNT_AND_NAME.fullmatch(plain)
    if found is None:
        raise _unusable("names no machine", repr(text))
    name = composed.known_name(found[2])
    if name is None and (sized := composed.sold_with(found[2])):
        many = f"{len(sized)} accelerators are sold with so much memory"
        raise _unusable(many, repr(text), f"name one: {', '.join(sized[:3])} ...")
    if name is None:
        raise _unknown(text, found[2])
    return composed.compose(int(found[1] or 1), name)


def _file(text: str) -> Path | None:
    """The file a text names, if there is one."""
    try:
        path = Path(text).expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):  # too long, a user who is not there, a NUL
        return None


def _plain(name: str) -> str:
    """Without case, spaces and quotes, a leading 1x left out."""
    return re.sub(r"[\s\"'_-]", "", name.lower().replace("×", "x")).removeprefix("1x")


def _unknown(text: str, name: str) -> ProblemError:
    names = {_plain(known): known for known in (*shipped(), *composed.names())}
    near = difflib.get_close_matches(_plain(text), names, n=2, cutoff=0.5)
    near += difflib.get_close_matches(
        composed.plain(name), composed.by_plain_name(), n=2, cutoff=0.5
    )
    offered = dict.fromkeys(
        names.get(one) or composed.by_plain_name().get(one, one) for one in near
    )
    return _unusable(
        "no machine file, shipped machine or accelerator has this name",
        repr(text),
        f"the nearest: {', '.join(list(offered)[:3])}" if offered else 'try 4x "NVIDIA L40S"',
    )


def _unusable(what: str, where: str, fix: str = "") -> ProblemError:
    return ProblemError(Problem(what=what, where=where, fix=fix, exit_code=2))
