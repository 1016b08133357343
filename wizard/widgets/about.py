"""One setting in full: what it is, what it takes, its value here and why, its names elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.content import Content

from wizard import wording
from wizard.language import foreign, said
from wizard.settings import Setting, accepts_said
from wizard.widgets.table import pairs

if TYPE_CHECKING:
    from wizard.plan import Decision

ORIGINS = {"user": "you", "preset": "the preset", "planner": "the planner"}


def about(setting: Setting, decision: Decision | None) -> Content:
    """A setting explained, with the decision of the plan at hand."""
    default = "none: it must be given"
    if not setting.required:
        default = foreign(wording.setting(setting.default))
    rows: list[tuple[str, object]] = []
    if decision is not None:
        value = wording.setting(decision.value)
        rows += [
            ("value", f"{foreign(value)}, set by {ORIGINS[decision.origin]}"),
            ("because", decision.reason),
            *([("changes", decision.changes_with)] if decision.changes_with else []),
            *([("source", decision.source)] if decision.source else []),
            *(("not", f"{wording.setting(a.value)}: {a.why_not}") for a in decision.alternatives),
        ]
    rows += [("accepts", foreign(accepts_said(setting))), ("by itself", default)]
    rows += [("names", names(setting))]
    title = Content.styled(f"{setting.name}   ", "bold")
    return Content("\n").join(
        [title.append(f"[{setting.table}]"), Content(said(setting.about)), pairs(rows)]
    )


def names(setting: Setting) -> str:
    """What it is called elsewhere, and what else is taken for it."""
    elsewhere = [f"{name} ({', '.join(tools)})" for name, tools in setting.names.items()]
    others = [alias for alias in setting.aliases if alias not in setting.names]
    return ", ".join([*elsewhere, *others]) or "the same everywhere"
