"""The user's own configuration: who is told of a run's end, and what is remembered."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Any

from engine.theirs import why
from wizard import paths
from wizard.problem import Problem, ProblemError

KNOWN = {"notify": ("command", "bell"), "history": ("keep",)}
EXAMPLE = 'notify.command = ["program", "an argument", "{run} {event}: {message}"]'


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """What config.toml says; every value has a default."""

    notify_command: tuple[str, ...] = ()
    """A program and its arguments, run when a run ends or stands still; no shell is asked.

    In each argument {run}, {event} (finished, stopped, failed, stalled) and {message} are replaced.
    """
    bell: bool = True
    """Ring the terminal's bell when a run that is watched ends."""
    keep_history: bool = True
    """Remember what finished runs measured, to correct later plans."""


def read() -> Configuration:
    """The configuration; the defaults when there is none.

    Raises ProblemError (2) for a file that cannot be read or says something unknown.
    """
    path = paths.configuration()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Configuration()
    except (OSError, ValueError) as error:
        raise _wrong(f"cannot be read: {why(error)}") from None
    for table, keys in content.items():
        if table not in KNOWN or not isinstance(keys, dict):
            raise _wrong(f"unknown table `{table}`: there are {', '.join(KNOWN)}")
        for key in keys:
            if key not in KNOWN[table]:
                raise _wrong(f"unknown key `{table}.{key}`: there are {', '.join(KNOWN[table])}")
    notify, history = content.get("notify", {}), content.get("history", {})
    return Configuration(
        notify_command=_command(notify.get("command", [])),
        bell=_yes_or_no("notify.bell", notify.get("bell", True)),
        keep_history=_yes_or_no("history.keep", history.get("keep", True)),
    )


def _command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise _wrong(f"notify.command must be a list of texts, as in {EXAMPLE}")
    return tuple(value)


def _yes_or_no(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong(f"{key} must be true or false")
    return value


def _wrong(what: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=str(paths.configuration()), exit_code=2))
