"""Step → its page, filled with what is known; a page's module is loaded when it is reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wizard.screens.verbs import Verbs
from wizard.steps import Chosen, Step, Walk

if TYPE_CHECKING:
    from wizard.answers import Answers
    from wizard.dashboard.screen import Dashboard
    from wizard.plan import Plan
    from wizard.widgets.page import Page


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """How the dashboard behaves in this app."""

    clock: Callable[[], float]
    leave_when_done: bool
    in_wizard: bool


def page_for(step: Step, walk: Walk, verbs: Verbs, look: Look) -> Page[Any]:
    """The page of a step."""
    match step:
        case Step.HARDWARE | Step.MODEL | Step.DATA:
            return _page_about_facts(step, walk, verbs)
        case Step.PLAN | Step.TUNE | Step.REVIEW:
            return _page_about_plans(step, walk, verbs)
        case Step.RUN:
            return _dashboard(walk, verbs, look)
        case Step.FINISH:
            from wizard.screens.finish import FinishPage

            assert walk.run is not None, "a run is finished after it was started"
            return FinishPage(walk.run, verbs.follow, verbs.run_details)


def _page_about_facts(step: Step, walk: Walk, verbs: Verbs) -> Page[Any]:
    facts, answers = walk.facts, walk.answers
    match step:
        case Step.HARDWARE:
            from wizard.screens.hardware import HardwarePage

            return HardwarePage(verbs.probe, facts, first=True)
        case Step.MODEL:
            from wizard.screens.model import ModelPage

            return ModelPage(
                verbs.read_model,
                name=answers.model,
                model=facts.model if facts else None,
                suggested=verbs.suggested_model,
            )
    from wizard.screens.data import DataPage

    return DataPage(verbs.read_dataset, path=answers.data, dataset=facts.dataset if facts else None)


def _page_about_plans(step: Step, walk: Walk, verbs: Verbs) -> Page[Any]:
    facts = walk.facts
    assert facts is not None, "plans are made after the machine was probed"

    def make_plans(answers: Answers) -> tuple[Plan, ...]:
        return verbs.plans(facts, answers)

    if step is Step.PLAN:
        from wizard.screens.plan import PlanPage

        return PlanPage(make_plans, walk.answers, before=walk.plan)
    plan = walk.plan
    assert plan is not None, "a plan is picked before it is tuned"
    name = verbs.name_for(plan, walk.answers)
    if step is Step.TUNE:
        from wizard.screens.tune import TunePage

        return TunePage(make_plans, Chosen(answers=walk.answers, plan=plan), name)
    from wizard.screens.review import ReviewPage

    return ReviewPage(plan=plan, name=name, facts=facts, preview=verbs.preview, launch=verbs.launch)


def _dashboard(walk: Walk, verbs: Verbs, look: Look) -> Dashboard:
    from wizard.dashboard.screen import Dashboard
    from wizard.dashboard.source import Source

    assert walk.run is not None, "a run is watched after it was started"
    source = Source(
        follow=verbs.follow,
        stop=verbs.stop,
        run_details=verbs.run_details,
        read_log=verbs.read_log,
        clock=look.clock,
        replay=verbs.replay,
        keep_picture=verbs.keep_picture,
    )
    return Dashboard(
        walk.run, source, in_wizard=look.in_wizard, leave_when_done=look.leave_when_done
    )
