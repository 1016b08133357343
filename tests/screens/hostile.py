"""Pages filled with text that tries to be markup, escape codes and line breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.screen import Screen

from tests.screens import values
from tests.screens.pages import Listed, data, model, plan_page
from tests.screens.stage import FollowedRun, World
from tests.screens.values import HOSTILE
from wizard.dashboard.screen import Dashboard
from wizard.dashboard.state import RunState, fold
from wizard.facts import Facts, KnownModel
from wizard.plan import Decision, Plan
from wizard.problem import Problem
from wizard.screens.finish import FinishPage
from wizard.screens.hardware import HardwarePage
from wizard.screens.review import ReviewPage
from wizard.screens.start import StartPage
from wizard.screens.tune import TunePage
from wizard.steps import Chosen

PROBLEM = Problem(what=HOSTILE, where=HOSTILE, fix=HOSTILE, severity="warning")
RUN = Path("/runs") / HOSTILE.replace("/", "")
MODEL = replace(
    values.MODEL, name=HOSTILE, path=HOSTILE, architecture=HOSTILE, licence=HOSTILE, source=HOSTILE
)
DATASET = replace(
    values.DATASET,
    path=HOSTILE,
    problems=(PROBLEM,) * 3,
    first_rows=({"messages": [{"role": HOSTILE, "content": HOSTILE}, 7]},),
)
FACTS = Facts(
    devices=(values.device(0, HOSTILE),),
    host=replace(values.HOST, hostname=HOSTILE, cpu_name=HOSTILE, system=HOSTILE),
    software=replace(values.SOFTWARE, versions={"torch": HOSTILE}, driver=HOSTILE),
    model=MODEL,
    dataset=DATASET,
    problems=(PROBLEM,),
)


def plan() -> Plan:
    good = values.PLANS[0]
    memory = replace(
        good.memory,
        parts=tuple(replace(part, name=HOSTILE) for part in good.memory.parts),
        left_out=(HOSTILE,),
    )
    decisions = tuple(
        Decision(setting=d.setting, value=d.value, reason=HOSTILE) for d in good.decisions
    )
    return replace(
        good,
        title=HOSTILE,
        memory=memory,
        decisions=decisions,
        problems=(PROBLEM,),
        why=(HOSTILE,),
    )


def state() -> RunState:
    found = values.events()
    for event in found:
        event |= {
            key: HOSTILE for key in ("device", "host", "text", "path", "detail") if key in event
        }
    found += [
        {"t": values.NOW, "kind": "failed", "rank": 1, "failure": HOSTILE, "message": HOSTILE},
        {"t": values.NOW, "kind": "phase", "rank": None, "phase": HOSTILE, "detail": HOSTILE},
        {"t": values.NOW, "kind": "eval", "rank": 0, "step": 90, "metrics": {HOSTILE: 1.0}},
    ]
    known = RunState(name=HOSTILE)
    for event in found:
        known = fold(known, event)
    return known


def failed() -> World:
    return World(run=FollowedRun(replace(state(), exit_code=76)), log=(HOSTILE,) * 3)


def finish() -> FinishPage:
    verbs = failed().verbs()
    return FinishPage(RUN, verbs.follow, verbs.run_details, verbs.chat, verbs.resume)


def review() -> ReviewPage:
    world = World(files={"run.sh": HOSTILE, HOSTILE: HOSTILE})
    chosen = Chosen(answers=values.ANSWERS, plan=plan())
    return ReviewPage(chosen=chosen, name=HOSTILE, facts=FACTS, verbs=world.review_verbs())


def said() -> tuple[dict[str, Any], ...]:
    """What the child says of a file that tries everything."""
    sample, *others = values.SAID
    texts = {
        "file": HOSTILE,
        "row": {HOSTILE: HOSTILE},
        "pieces": [{"text": HOSTILE, "learnt": False}, {"text": HOSTILE, "learnt": True}],
        "ids": [[1, HOSTILE, True]],
    }
    problem = {"kind": "problem", "file": HOSTILE, "unit": "line", "line": 1, "reason": HOSTILE}
    return ({**sample, **texts}, problem, {"kind": "warning", "text": HOSTILE}, others[-1])


PAGES: dict[str, Callable[[], Screen[Any]]] = {
    "start": lambda: StartPage((Listed(HOSTILE, HOSTILE),)),
    "hardware": lambda: HardwarePage(lambda say: FACTS, FACTS),
    "model": lambda: model(
        World(known=(KnownModel(name=HOSTILE, licence=HOSTILE),)), name=HOSTILE, model=MODEL
    ),
    "data": lambda: data(World(said=said()), path=HOSTILE, dataset=DATASET),
    "plan": lambda: plan_page(make_plans=lambda facts, answers: (plan(),)),
    "tune": lambda: TunePage(
        lambda answers: (plan(),), Chosen(answers=values.ANSWERS, plan=plan()), HOSTILE, FACTS
    ),
    "review": review,
    "run": lambda: Dashboard(RUN, World(run=FollowedRun(state()), log=(HOSTILE,)).source()),
    "failed": lambda: Dashboard(RUN, failed().source()),
    "finish": finish,
}
