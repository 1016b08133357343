"""Presets: named answers in TOML files, shipped or saved."""

from __future__ import annotations

import difflib
import os
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import tomlkit

from engine.settings import parse_setting
from engine.spec import SETTINGS, SpecError
from engine.theirs import why
from wizard import paths
from wizard.answers import Goal, Preset
from wizard.problem import Problem, ProblemError

SCHEMA = 1
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
KEYS = ("schema", "title", "description", "goal", "settings")
Origin = Literal["shipped", "saved", "file"]
LIMIT_BYTES = 1024**2
"""A larger file is no preset."""

NEVER: Mapping[str, str] = {
    "trust_remote_code": "it would run code that comes with a model",
    "env": "it would change the environment of the run",
    "environment": "it would change the environment of the run",
    "command": "it would run a command",
    "commands": "it would run commands",
    "notify": "it would run a command",
    "plugins": "it would load code",
    "devices": "it names devices of one machine",
}
"""What a preset may not carry: it can come from anywhere."""
TEXTS = frozenset({"system"})
"""Settings whose value is text for a model, whatever it looks like."""


def shipped_and_saved() -> tuple[Preset, ...]:
    """Every preset that can be used: shipped ones first, then the user's own.

    A saved file that cannot be read is left out here and told by `broken`.
    """
    found = []
    for path, origin in _files():
        try:
            found.append(_read(path, origin))
        except ProblemError:
            continue
    return tuple(found)


def broken() -> tuple[Problem, ...]:
    """What is wrong with each preset file that cannot be used."""
    problems = []
    for path, origin in _files():
        try:
            _read(path, origin)
        except ProblemError as error:
            problems.append(error.problem)
    return tuple(problems)


def load(name_or_path: str) -> Preset:
    """A preset by name, or by the path of its file.

    Raises ProblemError when there is none, offering the nearest name, or it cannot be used.
    """
    if name_or_path.endswith(".toml") or os.sep in name_or_path:
        return _read(paths.expanded(name_or_path, "--preset"), "file")
    known = {path.stem: (path, origin) for path, origin in _files()}
    if name_or_path in known:
        return _read(*known[name_or_path])
    near = difflib.get_close_matches(name_or_path, known, n=1)
    there = ", ".join(known) or "none"
    raise _refused(
        "no such preset",
        name_or_path,
        f"did you mean {near[0]}?" if near else f"there are: {there}",
    )


def save(preset: Preset) -> Path:
    """Write a preset among the user's own, replacing one of the same name at once.

    Raises ProblemError for a name that cannot be a file's, or that a shipped preset has.
    """
    if not NAME.fullmatch(preset.name):
        fix = "use letters, digits, - and _, 64 at most"
        raise _refused("not a usable preset name", repr(preset.name), fix)
    if (paths.shipped_presets() / f"{preset.name}.toml").exists():
        raise _refused("a shipped preset has this name", preset.name, "choose another name")
    text = dumps(preset)
    loads(text, preset.name, "saved")
    folder = paths.saved_presets()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return _replace(folder / f"{preset.name}.toml", text)
    except OSError as error:
        raise _refused(f"cannot be written: {why(error)}", str(folder), "") from None


def write_new(path: Path, text: str, *, force: bool = False) -> Path:
    """Write a private file where none is, whole or not at all; `force` replaces one.

    Raises ProblemError when there is one, or it cannot be written.
    """
    if not force:
        refuse_existing(path)
    try:
        return _replace(path, text)
    except OSError as error:
        what = f"cannot be written: {why(error)}"
        raise ProblemError(Problem(what=what, where=str(path), exit_code=1)) from None


def refuse_existing(path: Path) -> None:
    """Raise ProblemError where there is a file already: nothing is written over."""
    if os.path.lexists(path):
        problem = Problem(
            what="there is a file already",
            where=str(path),
            fix="name another, or add --force",
            exit_code=2,
        )
        raise ProblemError(problem)


def delete(name: str) -> Path:
    """Remove one of the user's own presets.

    Raises ProblemError when there is none of this name among them.
    """
    path = own_file(name)
    try:
        path.unlink()
    except OSError as error:
        raise _refused(f"cannot be removed: {why(error)}", name, "") from None
    return path


def own_file(name: str) -> Path:
    """The file of one of the user's own presets.

    Raises ProblemError when there is none of this name among them.
    """
    path = paths.saved_presets() / f"{name}.toml"
    if NAME.fullmatch(name) and path.is_file():
        return path
    if (paths.shipped_presets() / f"{name}.toml").is_file():
        fix = f"`tunewright presets save NAME --from {name}` makes one of your own"
        raise _refused("a shipped preset stays as it is", name, fix)
    names = [path.stem for path in sorted(paths.saved_presets().glob("*.toml"))]
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"yours are: {', '.join(names) or 'none'}"
    raise _refused("no preset of your own has this name", name, hint)


def loads(text: str, name: str, origin: Origin) -> Preset:
    """A preset from the text of its file. Pure.

    Raises ProblemError naming the first thing that cannot be used.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _refused(f"not valid TOML: {why(error)}", name, "") from None
    except RecursionError:
        raise _refused("not valid TOML: nested too deeply", name, "") from None
    for key in document:
        _check_key(key, name)
    if document.get("schema") != SCHEMA:
        raise _refused(
            f"schema is {document.get('schema')!r}", name, f"this version reads schema = {SCHEMA}"
        )
    return Preset(
        name=name,
        title=_line(document, "title", name) or name,
        description=_line(document, "description", name),
        goal=_goal(document, name),
        settings=_settings(document.get("settings", {}), name),
        origin=origin,
    )


def dumps(preset: Preset) -> str:
    """The text of a preset's file. Pure: `loads` of it gives the same preset."""
    document = tomlkit.document()
    document.add("schema", tomlkit.item(SCHEMA))
    document.add("title", tomlkit.item(preset.title))
    document.add("description", tomlkit.item(preset.description))
    if preset.goal:
        document.add("goal", tomlkit.item(preset.goal))
    settings = tomlkit.table()
    for key, value in preset.settings.items():
        if value is not None:
            settings.add(key, tomlkit.item(value))
    document.add("settings", settings)
    return tomlkit.dumps(document)


def _files() -> Iterator[tuple[Path, Origin]]:
    folders: tuple[tuple[Path, Origin], ...] = (
        (paths.shipped_presets(), "shipped"),
        (paths.saved_presets(), "saved"),
    )
    for folder, origin in folders:
        for path in sorted(folder.glob("*.toml")):
            yield path, origin


def _read(path: Path, origin: Origin) -> Preset:
    try:
        if path.exists() and not path.is_file():
            raise _refused("not a regular file", str(path), "give a preset's TOML file")
        with path.open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise _refused("not UTF-8 text", str(path), "save it as UTF-8") from None
    except OSError as error:
        raise _refused(f"cannot be read: {why(error)}", str(path), "check the path") from None
    if len(content) > LIMIT_BYTES:
        raise _refused("larger than 1 MiB", str(path), "give a preset's TOML file")
    return loads(text, path.stem, origin)


def _check_key(key: str, name: str) -> None:
    _check_never(key, name)
    if key not in KEYS:
        near = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean `{near[0]}`?" if near else "settings belong under [settings]"
        raise _refused(f"unknown key `{key}`", name, hint)


def _check_never(key: str, name: str) -> None:
    if key in NEVER:
        raise _refused(f"`{key}` is not allowed in a preset: {NEVER[key]}", name, "remove it")


def _line(document: Mapping[str, Any], key: str, name: str) -> str:
    value = document.get(key, "")
    if not isinstance(value, str) or not (value.isprintable() or not value):
        raise _refused(f"`{key}` is not one line of text", name, "")
    return value


def _goal(document: Mapping[str, Any], name: str) -> Goal | None:
    goal: Goal | None = document.get("goal")
    if goal is not None and goal not in get_args(Goal):
        raise _refused(f"goal = {goal!r}", name, f"one of {', '.join(get_args(Goal))}")
    return goal


def _settings(table: object, name: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise _refused("`settings` is not a table", name, "write [settings]")
    settings = {}
    for key, given in table.items():
        _check_never(key, name)
        try:
            setting, value = parse_setting(key, given)
        except SpecError as error:
            raise _refused(str(error), name, "") from None
        if setting in settings:
            raise _refused(f"`{setting}` is given twice", name, "keep one of the names")
        why = why_not_carried(setting, value)
        if why:
            what = f"`{setting}` = {str(value)[:80]!r} {why}"
            raise _refused(what, name, "leave it to the answer")
        settings[setting] = value
    return settings


def why_not_carried(setting: str, value: object) -> str:
    """Why no preset may carry a setting with this value; empty when it may.

    Presets travel between machines: a path into one of them means nothing on another.
    """
    if setting in NEVER:
        return f"is not allowed in a preset: {NEVER[setting]}"
    if SETTINGS.get(setting) == "plugins" and value is not None:
        return f"is not allowed in a preset: {NEVER['plugins']}"
    if setting in TEXTS:
        return ""
    parts = value if isinstance(value, list | tuple) else (value,)
    here = any(isinstance(part, str) and _is_path_here(part) for part in parts)
    return "is a path on one machine" if here else ""


def _is_path_here(text: str) -> bool:
    return text.startswith(("/", "~", "\\")) or ".." in Path(text).parts or text[1:2] == ":"


def _replace(path: Path, text: str) -> Path:
    """Write beside, then rename into place."""
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise
    return path


def _refused(what: str, where: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=f"preset {where}", fix=fix, exit_code=2))
