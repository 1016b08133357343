"""Command lines of other trainers, read as bash would read their words, never run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROGRAMS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "swift": ("swift", ("sft", "pt", "rlhf")),
    "trl": ("trl", ("sft", "dpo", "kto", "reward")),
}
"""Program → (whose, its commands that train)."""
ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_COMMAND = re.compile(r"(?:^|[\s/])(?:swift|trl)\s+[a-z]+(?:\s|$)", re.MULTILINE)
VARIABLE = "its value stands in a variable of the shell, which is not read"
_STRAY = "belongs to no option"


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """One command of a script."""

    line: int
    text: str
    peer: str | None = None
    """Whose training command it is."""
    values: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[tuple[str, Any, str], ...] = ()
    """(key, value, why) of what cannot be read."""


def is_command(content: str) -> bool:
    """Whether a text is a script rather than a configuration."""
    return content.startswith("#!") or bool(_COMMAND.search(content))


def statements(content: str) -> list[Statement]:
    """Every command of a script, in order; comments and blank lines are none."""
    return [_statement(number, line) for number, line in _logical_lines(content)]


def _logical_lines(content: str) -> Iterator[tuple[int, str]]:
    """(number, text) of each line, those joined that end in a backslash."""
    waiting, start = "", 0
    for number, line in enumerate(content.splitlines(), start=1):
        start = start if waiting else number
        # Trailing blanks after a backslash are a slip that everybody means as a continuation.
        stripped = line.rstrip()
        if stripped.endswith("\\") and not stripped.endswith("\\\\"):
            waiting += stripped[:-1] + " "
            continue
        whole, waiting = waiting + line, ""
        if whole.strip() and not whole.lstrip().startswith("#"):
            yield start, whole.strip()
    if waiting.strip():
        yield start, waiting.strip()


def _statement(number: int, line: str) -> Statement:
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        return Statement(line=number, text=line)
    environment: dict[str, str] = {}
    while words and (found := ASSIGNMENT.fullmatch(words[0])):
        environment[found[1]] = found[2]
        words = words[1:]
    at = next((n for n in range(len(words) - 1) if _trains(words[n], words[n + 1])), None)
    if at is None or any(word in (";", "&&", "||", "|") for word in words):
        return Statement(line=number, text=line)
    program, command = words[at].rsplit("/", 1)[-1], words[at + 1]
    values, unread = _options(words[at + 2 :])
    unread += [(word, "", "a word before the command") for word in words[:at]]
    for key in [key for key, value in values.items() if _has_variable(value)]:
        unread.append((key, values.pop(key), VARIABLE))
    return Statement(
        line=number,
        text=line,
        peer=PROGRAMS[program][0],
        values={"command": command, **environment, **values},
        unread=tuple(unread),
    )


def _trains(program: str, command: str) -> bool:
    _, commands = PROGRAMS.get(program.rsplit("/", 1)[-1], ("", ()))
    return command in commands


def _options(words: Sequence[str]) -> tuple[dict[str, Any], list[tuple[str, Any, str]]]:
    """`--key value`, `--key=value`, `--key a b`, bare `--key`: the later of two wins, told."""
    values: dict[str, Any] = {}
    unread: list[tuple[str, Any, str]] = []
    key = None
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word[2:].partition("=")
            key = name.replace("-", "_")
            if key in values:
                unread.append((key, values.pop(key), "given again later in the command"))
            values[key] = value if equals else True
        elif key is None:
            unread.append((word, "", _STRAY))
        else:
            values[key] = word if values[key] is True else [*_as_list(values[key]), word]
    return values, unread


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _has_variable(value: Any) -> bool:
    return any("$" in part or "`" in part for part in _as_list(value) if isinstance(part, str))
