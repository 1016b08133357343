"""One page as an app of its own, for whoever presses its keys from outside."""

from __future__ import annotations

from textual.widgets import Input

from tests.screens.pages import PAGES, plan_page
from tests.screens.stage import OnePage
from tests.screens.test_tune_page import FACTS, tune
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner import plans as real_plans


def app(page: str) -> OnePage:
    """The page as the wizard shows it; plans are made by the planner."""

    def plan(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        return real_plans(facts, answers)

    Input.cursor_blink._default = False  # a cursor that blinks draws without a key
    if page == "plan":
        return OnePage(lambda: plan_page(make_plans=plan, facts=FACTS))
    return OnePage(tune if page == "tune" else PAGES[page])
