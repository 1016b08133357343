"""A run folder → the answers it was planned from, to plan it again or to keep them as a preset."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.settings import parse_setting, setting_info
from engine.spec import SETTINGS, Spec, SpecError, loads
from engine.theirs import why
from wizard.answers import Answers
from wizard.problem import Problem, ProblemError
from wizard.runner.folder import read_json

NOT_KEPT = ("model", "data", "devices")
"""Answers of their own, and what names the devices of one machine."""


def answers_of(folder: Path) -> Answers:
    """Model, data and every setting that the user, a preset or an edited spec.toml fixed.

    What the planner chose is its own to choose again. Raises ProblemError for a run whose
    spec.toml cannot be used.
    """
    spec = read_spec(folder)
    _refuse_foreign_code(spec, folder)
    values, planned = settings_of(spec), _planned(folder)
    fixed = {
        key: value
        for key, value in values.items()
        if key not in NOT_KEPT and _is_fixed(key, value, planned.get(key))
    }
    return Answers(model=spec.model.model, data=spec.data.data, settings=_checked(fixed))


def differing(spec: Spec, now: Spec) -> dict[str, Any]:
    """Settings of a run that a plan made now has otherwise; those without a value are left out."""
    planned = settings_of(now)
    return {
        key: value
        for key, value in settings_of(spec).items()
        if key not in NOT_KEPT and value is not None and planned[key] != value
    }


def _refuse_foreign_code(spec: Spec, folder: Path) -> None:
    """Code that another user's run names is not run by planning that run again.

    Raises ProblemError.
    """
    if folder.stat().st_uid == os.getuid():
        return
    if spec.model.trust_remote_code:
        raise ProblemError(
            Problem(
                what="this run is another user's, and runs code that comes with its model",
                where="trust_remote_code",
                fix="plan it yourself, with --trust-remote-code for code that you have read",
                exit_code=2,
            )
        )
    if spec.plugins.named:
        kind, named = next(iter(spec.plugins.named.items()))
        raise ProblemError(
            Problem(
                what=f"this run is another user's, and runs code: {named[0]}",
                where=f"plugins.{kind}",
                fix="plan it yourself, with --set for code that you have read",
                exit_code=2,
            )
        )


def read_spec(folder: Path) -> Spec:
    """The spec of a run as it stands in its folder.

    Raises ProblemError.
    """
    path = folder / "spec.toml"
    try:
        return loads(path.read_text(encoding="utf-8"))
    except SpecError as error:
        raise ProblemError(Problem(what=str(error), where=str(path))) from None
    except (OSError, UnicodeDecodeError) as error:
        what = f"cannot be read: {why(error)}"
        raise ProblemError(Problem(what=what, where=str(path))) from None


def settings_of(spec: Spec) -> dict[str, Any]:
    """Setting → value, over all tables."""
    return {
        key: value
        for table in spec.model_dump(exclude={"version"}).values()
        for key, value in table.items()
    }


def _planned(folder: Path) -> dict[str, Mapping[str, Any]]:
    decisions = read_json(folder / "plan.json").get("decisions")
    return {
        decision["setting"]: decision
        for decision in (decisions if isinstance(decisions, list) else ())
        if isinstance(decision, dict) and decision.get("setting") in SETTINGS
    }


def _is_fixed(key: str, value: Any, decision: Mapping[str, Any] | None) -> bool:
    if decision is None:
        return bool(value != setting_info(key).default)
    edited = decision.get("value") != (list(value) if isinstance(value, tuple) else value)
    return decision.get("origin") in ("user", "preset") or edited


def _checked(settings: Mapping[str, Any]) -> dict[str, Any]:
    return dict(parse_setting(key, value) for key, value in settings.items())
