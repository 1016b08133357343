"""Plug-ins: the user's own code, kept with the run and loaded from there, each one file and a name.

A run copies the files it names into `plugins/` before anything else, so that what is resumed is
what was begun. Errors still name the user's file: it is what the copy is compiled as.
"""

from __future__ import annotations

import hashlib
import linecache
import math
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.failure import USER_FILES, RunError, user_sentence
from engine.record import read_json, write_json
from engine.spec import PLUGIN, Spec
from engine.theirs import quoted, why

FOLDER = "plugins"
INDEX = "index.json"
"""File of the user → its copy and the SHA-256 of that."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugged:
    """What a trainer is given of the user's own code; None is the library's."""

    loss: Callable[..., Any] | None = None
    metric: Callable[..., Any] | None = None
    trainer: Any = None
    callbacks: tuple[Any, ...] = ()


NOTHING = Plugged()


def files(spec: Spec) -> list[Path]:
    """The files that a spec takes code from."""
    named = [text for texts in spec.plugins.named.values() for text in texts]
    return list(dict.fromkeys(_parts(text)[0] for text in named))


def _parts(text: str) -> tuple[Path, str]:
    found = PLUGIN.fullmatch(text)
    assert found is not None, "the spec has checked it"
    return Path(found["file"]).expanduser().absolute(), found["name"]


def keep(spec: Spec, run: Path) -> list[str]:
    """Copy the files into the run once; what to say of those that were edited since.

    Raises RunError (bad_spec) for a file that cannot be read.
    """
    wanted = files(spec)
    if not wanted:
        return []
    folder = run / FOLDER
    folder.mkdir(exist_ok=True, mode=0o700)
    index, said = read_json(folder / INDEX), []
    for file in wanted:
        there = file.exists()
        if str(file) in index and not there:
            continue  # a run that was copied elsewhere brings its code
        source = _source(file)
        digest = hashlib.sha256(source).hexdigest()
        if str(file) not in index:
            copy = folder / f"{file.stem}-{digest[:8]}.py"
            part = copy.with_suffix(".part")
            part.write_bytes(source)
            os.replace(part, copy)
            index[str(file)] = {"copy": copy.name, "sha256": digest}
        elif index[str(file)]["sha256"] != digest:
            said.append(
                f"{file} was edited since this run began: the run goes on with its own copy, "
                f"{FOLDER}/{index[str(file)]['copy']}; a new run takes the edited one"
            )
    write_json(folder / INDEX, index)
    return said


def digests(spec: Spec, run: Path) -> dict[str, str]:
    """File of the user → SHA-256 of the copy that this run has of it."""
    index = read_json(run / FOLDER / INDEX)
    return {str(file): index[str(file)]["sha256"] for file in files(spec) if str(file) in index}


def _source(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise RunError("bad_spec", f"plugins: {file}: {why(error)}") from None


def load(text: str, run: Path | None) -> Any:
    """What a `file.py:name` names, from the run's copy of the file; without a run from itself.

    Raises RunError: user_code for code that does not load or lacks the name, bad_spec for a copy
    that is gone or was changed.
    """
    file, name = _parts(text)
    module = _module(file, _source(file) if run is None else _kept(file, run))
    if not hasattr(module, name):
        there = ", ".join(sorted(key for key in vars(module) if not key.startswith("_"))) or "none"
        raise RunError("user_code", f"{file}: has no `{name}`; its names are {there}")
    return getattr(module, name)


def _kept(file: Path, run: Path) -> bytes:
    entry = read_json(run / FOLDER / INDEX).get(str(file))
    if not isinstance(entry, dict):
        raise RunError("bad_spec", f"{run}: has no copy of {file}; run `engine.prepare` first")
    copy = run / FOLDER / Path(entry["copy"]).name
    source = _source(copy)
    if hashlib.sha256(source).hexdigest() != entry["sha256"]:
        raise RunError(
            "bad_spec",
            f"{copy} was changed since this run began, and a run ends with the code it began "
            "with: put it back, or start a new run",
        )
    return source


def _module(file: Path, source: bytes) -> types.ModuleType:
    """The code of a file, run once; its frames and lines are told as those of the file itself."""
    module = types.ModuleType(f"plugin_{file.stem}")
    module.__file__ = str(file)
    USER_FILES.add(str(file))
    text = source.decode("utf-8", errors="replace")
    linecache.cache[str(file)] = (len(source), None, text.splitlines(keepends=True), str(file))
    try:
        exec(compile(source, str(file), "exec"), vars(module))
    except SyntaxError as error:
        raise RunError("user_code", f"{file}, line {error.lineno}: {quoted(error.msg)}") from None
    except ModuleNotFoundError as error:
        beside = error.name is not None and (file.parent / f"{error.name}.py").exists()
        fix = "a plug-in is one file: put what it imports into it" if beside else "install it"
        raise RunError("user_code", f"{user_sentence(error)}; {fix}") from None
    return module


class Preprocessor:
    """The user's function of a row; loaded where it is first called, so that processes can be."""

    def __init__(self, text: str, run: Path | None) -> None:
        self.text, self.run = text, run
        self.file = _parts(text)[0]
        self._function: Callable[[Any], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the function, which has no module that another process could import."""
        return {**vars(self), "_function": None}

    def __call__(self, row: Any, line: int) -> dict[str, Any] | None:
        """The row made of a row, or None to leave it out.

        Raises RunError (user_code) with the user's line and the row's.
        """
        if self._function is None:
            self._function = _callable(self.text, self.run, "preprocessor")
        try:
            made = self._function(row)
        except Exception as error:
            raise RunError("user_code", f"{user_sentence(error)} (row {line})") from None
        if made is not None and not isinstance(made, dict):
            raise RunError(
                "user_code",
                f"{self.text}: gave {type(made).__name__} for row {line}; it gives a row (a "
                "dictionary), or None to leave it out",
            )
        return made


def preprocessor(text: str | None, run: Path | None) -> Preprocessor | None:
    """What makes rows of rows, if the spec names it; refused at once when it does not load."""
    if text is None:
        return None
    _callable(text, run, "preprocessor")
    return Preprocessor(text, run)


def plugged(spec: Spec, run: Path, trainer: Any) -> Plugged:
    """The code of a spec for a trainer; `trainer` is the class that the recipe would take.

    Raises RunError (user_code) for what is not of the kind that is needed.
    """
    table = spec.plugins
    return Plugged(
        loss=_callable(table.loss, run, "loss") if table.loss else None,
        metric=_metric(table.metric, run) if table.metric else None,
        trainer=_trainer(spec, run, trainer) if table.trainer else None,
        callbacks=tuple(_callback(text, run) for text in table.named.get("callback", ())),
    )


def _callable(text: str, run: Path | None, kind: str) -> Callable[..., Any]:
    found = load(text, run)
    if not callable(found):
        raise RunError("user_code", f"{text}: is {type(found).__name__}, not a {kind} function")
    function: Callable[..., Any] = found
    return function


def _trainer(spec: Spec, run: Path, base: Any) -> Any:
    text = spec.plugins.trainer
    assert text is not None
    found = load(text, run)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise RunError(
            "user_code",
            f"{text}: is no class made from `Trainer` of engine.recipes.{spec.method.stage}",
        )
    return found


def _callback(text: str, run: Path) -> Any:
    from transformers import TrainerCallback

    found = load(text, run)
    made = found() if isinstance(found, type) else found
    if not isinstance(made, TrainerCallback):
        raise RunError("user_code", f"{text}: is no TrainerCallback of transformers")
    return made


def _metric(text: str, run: Path) -> Callable[[Any], Mapping[str, float]]:
    """The user's metric; what it gives must be names with finite numbers."""
    measure = _callable(text, run, "metric")

    def checked(predicted: Any) -> Mapping[str, float]:
        found = measure(predicted)
        if not isinstance(found, Mapping) or not found:
            given = type(found).__name__ if not isinstance(found, Mapping) else "nothing"
            raise RunError("user_code", f"{text}: gave {given}; it gives names with numbers")
        numbers = {str(name): _number(value) for name, value in found.items()}
        for name, value in numbers.items():
            if value is None or not math.isfinite(value):
                raise RunError("user_code", f"{text}: {name} is {found[name]!r}, no finite number")
        return {name: value for name, value in numbers.items() if value is not None}

    return checked


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def most_likely(logits: Any, _labels: Any) -> Any:
    """Of logits [rows, tokens, words] the likeliest word of each place: a metric needs no more."""
    logits = logits[0] if isinstance(logits, tuple) else logits
    return logits.argmax(dim=-1)
