"""Where our own files live; nothing else knows a path."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent


def home() -> Path:
    """TUNEWRIGHT_HOME, else the platform's data folder."""
    named = os.environ.get("TUNEWRIGHT_HOME")
    if named:
        return Path(named).expanduser().absolute()
    data = os.environ.get("XDG_DATA_HOME")
    if data:
        return (Path(data).expanduser() / "tunewright").absolute()
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
