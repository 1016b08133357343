"""The user's own keys: `keys.toml`, binding id → keys."""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path

from engine.theirs import why
from wizard import paths
from wizard.problem import Problem, ProblemError


def file() -> Path:
    """Where the user's keys are."""
    return paths.home() / "keys.toml"


def load() -> dict[str, str]:
    """Binding id → keys, separated by commas; empty without a file.

    Raises ProblemError naming an id that does not exist, or what else is wrong.
    """
    path = file()
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _refused(f"cannot be read: {why(error)}", "correct it or delete it") from None
    known = binding_ids()
    for name, key in document.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            fix = f"did you mean {near[0]!r}?" if near else "take one of the ids that exist"
            raise _refused(f"there is no action {name!r}", fix)
        if not isinstance(key, str) or not key.strip():
            raise _refused(f"{name} has no key", f'write "{name}" = "g"')
    return dict(document)


def binding_ids() -> frozenset[str]:
    """Ids of everything that a key does, on all pages."""
    from textual.binding import Binding

    from wizard.app import TunewrightApp
    from wizard.dashboard.faults import Faults
    from wizard.dashboard.screen import Dashboard
    from wizard.screens.data import DataPage
    from wizard.screens.finish import FinishPage
    from wizard.screens.hardware import HardwarePage
    from wizard.screens.model import ModelPage
    from wizard.screens.plan import PlanPage
    from wizard.screens.review import ReviewPage
    from wizard.screens.start import StartPage
    from wizard.screens.tune import TunePage
    from wizard.widgets.page import Page
    from wizard.widgets.picker import Picker
    from wizard.widgets.prompt import Prompt
    from wizard.widgets.question import Question
    from wizard.widgets.sheet import Sheet

    pages = (StartPage, HardwarePage, ModelPage, DataPage, PlanPage, TunePage, ReviewPage)
    others = (TunewrightApp, Page, Dashboard, Faults, FinishPage, Picker, Prompt, Question, Sheet)
    found = (binding for page in (*pages, *others) for binding in page.BINDINGS)
    return frozenset(b.id for b in found if isinstance(b, Binding) and b.id)


def _refused(what: str, fix: str) -> ProblemError:
    return ProblemError(Problem(what=what, where=str(file()), fix=fix, exit_code=2))
