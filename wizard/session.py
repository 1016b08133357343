"""The answers of a wizard that was left, kept until a run is started from them."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

from engine.theirs import why
from wizard import paths
from wizard.answers import DEFAULT_POLICY, Answers, Goal, Policy
from wizard.problem import Problem, ProblemError

SCHEMA = 1


def file() -> Path:
    """Where the answers are kept."""
    return paths.home() / "session.json"


def save(answers: Answers | None) -> None:
    """Keep the answers, private and whole or not at all; None forgets them.

    Raises OSError when they cannot be written.
    """
    path = file()
    if answers is None or answers == Answers():
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    given = dataclasses.asdict(answers)
    given["named_by_preset"] = sorted(answers.named_by_preset)
    document = {"schema": SCHEMA, "answers": given}
    descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=".session-")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as written:
            json.dump(document, written, ensure_ascii=True, indent=1)
        os.replace(beside, path)
    except OSError:
        Path(beside).unlink(missing_ok=True)
        raise


def load() -> Answers | None:
    """The answers that were kept; None when there are none.

    Raises ProblemError for a file that this program did not write.
    """
    try:
        text = file().read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(why(error)) from None
    try:
        return _answers(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _unreadable(why(error)) from None


def _answers(document: Mapping[str, Any]) -> Answers:
    if document["schema"] != SCHEMA:
        raise ValueError(f"schema {document['schema']!r}, not {SCHEMA}")
    given = document["answers"]
    unknown = set(given) - {field.name for field in dataclasses.fields(Answers)}
    if unknown:
        raise ValueError(f"unknown answer {min(unknown)}")
    for name in ("model", "data", "output", "run_name", "preset"):
        if not isinstance(given.get(name), str | None):
            raise ValueError(f"{name} is not text")
    if given.get("goal", "quality") not in get_args(Goal):
        raise ValueError(f"unknown goal {given['goal']!r}")
    texts = [*given.get("accepted", ()), *dict(given.get("typed", {})).values()]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("accepted warnings or what was typed are not text")
    if not isinstance(given.get("num_devices"), int | None):
        raise ValueError("num_devices is not a number")
    return Answers(**{**given, **_parsed(given)})


def _parsed(given: Mapping[str, Any]) -> dict[str, Any]:
    """What JSON has no type for, and what the spec checks."""
    from engine.settings import parse_setting  # takes long to load
    from engine.spec import SpecError

    devices = given.get("devices")
    if devices is not None and not all(isinstance(index, int) for index in devices):
        raise ValueError("devices are not numbers")
    try:
        settings = {
            table: dict(parse_setting(name, value) for name, value in given.get(table, {}).items())
            for table in ("settings", "preset_settings")
        }
    except SpecError as error:
        raise ValueError(str(error)) from None
    return {
        **settings,
        "devices": None if devices is None else tuple(devices),
        "accepted": tuple(given.get("accepted", ())),
        "named_by_preset": frozenset(map(str, given.get("named_by_preset", ()))),
        "policy": _policy(given.get("policy", {})),
    }


def _policy(given: Mapping[str, Any]) -> Policy:
    """What the run does about failures; what is not there is as usual."""
    usual = dataclasses.asdict(DEFAULT_POLICY)
    for name, value in given.items():
        if name not in usual or type(value) is not type(usual[name]):
            raise ValueError(f"policy {name} = {value!r}")
    return Policy(**given)


def _unreadable(why: str) -> ProblemError:
    return ProblemError(
        Problem(
            what=f"the answers kept of the last time cannot be read: {why}",
            where=str(file()),
            fix="delete it; no run is affected",
            severity="warning",
        )
    )
