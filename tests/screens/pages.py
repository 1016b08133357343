"""Every page by its name, filled from values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.screen import Screen

from tests.screens import values
from tests.screens.stage import RUN, FollowedRun, World
from wizard.dashboard.screen import Dashboard
from wizard.screens.data import DataPage
from wizard.screens.finish import FinishPage
from wizard.screens.hardware import HardwarePage
from wizard.screens.model import ModelPage
from wizard.screens.plan import PlanPage
from wizard.screens.review import ReviewPage
from wizard.screens.start import StartPage
from wizard.screens.tune import TunePage
from wizard.steps import Chosen


class Listed:
    """A run in the list."""

    def __init__(self, name: str, state: str) -> None:
        self.folder = RUN.parent / name
        self._line = f"{name}  {state}"

    def line(self) -> str:
        return self._line


RUNS = (Listed("qwen3-8b-lora-1129-1", "training, step 90 of 225"), Listed("old", "finished"))


def running() -> Dashboard:
    return Dashboard(RUN, World(run=FollowedRun(values.state_after(values.events()))).source())


def ended() -> FinishPage:
    state = values.finished(values.state_after(values.events()))
    verbs = World(run=FollowedRun(state)).verbs()
    return FinishPage(RUN, verbs.follow, verbs.run_details, verbs.chat, verbs.resume)


def review(world: World | None = None, **changes: Any) -> ReviewPage:
    given: dict[str, Any] = {
        "chosen": Chosen(answers=values.ANSWERS, plan=values.PLANS[0], others=values.PLANS),
        "name": RUN.name,
        "facts": values.FACTS,
        "verbs": (world or World()).review_verbs(),
    }
    return ReviewPage(**{**given, **changes})


def model(world: World | None = None, **changes: Any) -> ModelPage:
    given: dict[str, Any] = {
        "verbs": (world or World(known=values.KNOWN)).model_verbs(),
        "name": None,
        "model": values.MODEL,
    }
    return ModelPage(**{**given, **changes})


def data(world: World | None = None, **changes: Any) -> DataPage:
    given: dict[str, Any] = {
        "verbs": (world or World()).data_verbs(),
        "path": None,
        "dataset": values.DATASET,
        "model": values.MODEL,
    }
    return DataPage(**{**given, **changes})


def plan_page(**changes: Any) -> PlanPage:
    given: dict[str, Any] = {
        "make_plans": lambda facts, answers: values.PLANS,
        "facts": values.FACTS,
        "answers": values.ANSWERS,
        "machines": values.MACHINES,
        "exports": World().export_verbs(),
        "name_for": lambda plan, answers: RUN.name,
    }
    return PlanPage(**{**given, **changes})


PAGES: dict[str, Callable[[], Screen[Any]]] = {
    "start": lambda: StartPage(RUNS),
    "hardware": lambda: HardwarePage(lambda say: values.MACHINE, values.MACHINE),
    "model": model,
    "data": data,
    "plan": lambda: plan_page(),
    "tune": lambda: TunePage(
        lambda answers: values.PLANS,
        Chosen(answers=values.ANSWERS, plan=values.PLANS[0]),
        RUN.name,
        values.FACTS,
    ),
    "review": review,
    "run": running,
    "finish": ended,
}
