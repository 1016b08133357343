"""Where our own files live; nothing else knows a path."""

from __future__ import annotations

import os
from pathlib import Path

from wizard.problem import Problem, ProblemError

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent
NAME_BYTES = 255
PATH_BYTES = 4095
"""Longest name and longest path that Linux takes."""


def expanded(text: str, where: str = "", exit_code: int = 2) -> Path:
    """The path a user wrote, with `~` replaced by the home it stands for.

    `where` names the option or variable it was given in. Raises ProblemError with `exit_code` for
    a text that no file can have as its path.
    """
    reason, fix = _unusable(text)
    if not reason:
        try:
            path = Path(text).expanduser()
        except RuntimeError:
            reason = f"nobody here has the home {text.partition('/')[0]}"
            fix = "write the folder out"
        else:
            reason = _too_long(path)
            fix = "give a shorter path"
    if not reason:
        return path
    shown = text if len(text) <= 80 else text[:40] + "…" + text[-20:]
    place = " ".join(filter(None, (where, ascii(shown))))
    raise ProblemError(Problem(what=reason, where=place, fix=fix, exit_code=exit_code))


def _unusable(text: str) -> tuple[str, str]:
    if not text:
        return "the path is empty", "name a file or a folder"
    if "\0" in text:
        return "a path cannot hold a NUL character", "remove it"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "this path is not valid UTF-8, and spec.toml is", "rename the file or link to it"
    return "", ""


def _too_long(path: Path) -> str:
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    if longest > NAME_BYTES:
        return f"a name in this path has {longest:,} bytes, and file systems take {NAME_BYTES}"
    whole = len(os.fsencode(path.absolute()))
    if whole > PATH_BYTES:
        return f"this path has {whole:,} bytes, and Linux takes {PATH_BYTES:,}"
    return ""


def home() -> Path:
    """TUNEWRIGHT_HOME, else the platform's data folder."""
    named = os.environ.get("TUNEWRIGHT_HOME")
    if named:
        return expanded(named, "TUNEWRIGHT_HOME").absolute()
    data = os.environ.get("XDG_DATA_HOME")
    if data:
        return (expanded(data, "XDG_DATA_HOME") / "tunewright").absolute()
    user = user_home()
    return user / ".local" / "share" / "tunewright" if user else Path.cwd() / ".tunewright"


def user_home() -> Path | None:
    """The user's home; None for one without, as containers give to numbers without a name."""
    try:
        home = Path.home().absolute()
    except RuntimeError:
        return None
    return home if home != Path("/") and home.is_dir() else None


def runs() -> Path:
    """Folder that holds run folders unless the user names another."""
    return home() / "runs"


def configuration() -> Path:
    """The user's own configuration."""
    return home() / "config.toml"


def history() -> Path:
    """What finished runs measured beside what was predicted; it never leaves this machine."""
    return home() / "history.jsonl"


def cache() -> Path:
    """Models made or fetched, packages taken apart: everything that can be made again."""
    return home() / "cache"


def saved_presets() -> Path:
    """The user's own presets."""
    return home() / "presets"


def shipped_presets() -> Path:
    """Presets and fact tables that come with the program: inside a wheel, else the checkout."""
    inside = PACKAGE / "presets"
    return inside if inside.is_dir() else CHECKOUT / "presets"
