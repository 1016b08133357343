"""An app with verbs that answer from values, and a way to wait until it rests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen

from tests.screens import values
from wizard.app import TunewrightApp, Verbs
from wizard.dashboard.source import LogOf, Source
from wizard.dashboard.state import RunState
from wizard.facts import Dataset, Model
from wizard.plan import Plan
from wizard.problem import Problem, ProblemError

RUN = Path("/runs/qwen3-8b-lora-1129-1")


@dataclass
class FollowedRun:
    """A run whose state the test sets."""

    state: RunState

    def poll(self, seconds: float | None = None) -> RunState:
        return self.state


@dataclass
class World:
    """What the verbs answer, and what was done to it."""

    run: FollowedRun = field(default_factory=lambda: FollowedRun(RunState()))
    model: Model = values.MODEL
    dataset: Dataset = values.DATASET
    files: dict[str, str] = field(default_factory=lambda: dict(values.FILES))
    details: dict[str, Any] = field(
        default_factory=lambda: {"plan": values.PLAN_JSON, "result": values.RESULT_JSON}
    )
    log: tuple[str, ...] = values.LOG
    runs: tuple[Any, ...] = ()
    launched: list[tuple[Plan, str]] = field(default_factory=list)
    stopped: list[tuple[Path, bool]] = field(default_factory=list)
    logs_read: list[LogOf] = field(default_factory=list)
    frames: tuple[RunState, ...] = ()
    pictures: dict[str, str] = field(default_factory=dict)

    def verbs(self, **changes: Any) -> Verbs:
        given = Verbs(
            probe=lambda say: values.MACHINE,
            read_model=self.read_model,
            read_dataset=self.read_dataset,
            plans=lambda facts, answers: values.PLANS,
            name_for=lambda plan, answers: answers.run_name or RUN.name,
            preview=lambda plan, name: self.files,
            launch=self.launch,
            list_runs=lambda: self.runs,
            follow=lambda path: self.run,
            stop=lambda path, now: self.stopped.append((path, now)),
            run_details=lambda path: self.details,
            read_log=self.read_log,
            replay=lambda path: self.frames,
            keep_picture=self.keep_picture,
        )
        return replace(given, **changes)

    def source(self) -> Source:
        verbs = self.verbs()
        return Source(
            follow=verbs.follow,
            stop=verbs.stop,
            run_details=verbs.run_details,
            read_log=verbs.read_log,
            clock=lambda: values.NOW,
            replay=verbs.replay,
            keep_picture=verbs.keep_picture,
        )

    def read_model(self, name: str) -> Model:
        if name == "nowhere":
            raise ProblemError(Problem(what="no such model", where=name, fix="name a folder"))
        return replace(self.model, name=name)

    def read_dataset(self, path: str) -> Dataset:
        if path == "nowhere":
            raise ProblemError(Problem(what="no such file", where=path, fix="name a file"))
        return replace(self.dataset, path=path)

    def launch(self, plan: Plan, name: str) -> Path:
        self.launched.append((plan, name))
        return RUN.parent / name

    def keep_picture(self, name: str, text: str) -> Path:
        self.pictures[name] = text
        return Path(name)

    def read_log(self, path: Path, rank: LogOf) -> tuple[str, ...]:
        self.logs_read.append(rank)
        return self.log


class OnePage(TunewrightApp):
    """Shows one page and returns what it was left with."""

    def __init__(self, page: Callable[[], Screen[Any]]) -> None:
        super().__init__(World().verbs())
        self._page = page
        self.left: list[Any] = []

    def walk_pages(self) -> Any:
        """No walk: one page."""
        self.push_screen(self._page(), self.left.append)


async def rest(pilot: Pilot[Any]) -> None:
    """Wait until every slow verb has answered and was shown."""
    lasting = {"walk", "follow"}
    slow = [worker for worker in pilot.app.workers if worker.name not in lasting]
    if slow:
        await pilot.app.workers.wait_for_complete(slow)
    await pilot.pause()


async def until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    """Wait for a condition, at most a few seconds."""
    for _ in range(200):
        await rest(pilot)
        if condition():
            return
        await pilot.pause(0.02)
    raise AssertionError(f"still waiting; on screen: {type(pilot.app.screen).__name__}")


def shown(app: TunewrightApp) -> str:
    """All text on the screen, line by line."""
    width = app.size.width
    return "\n".join(
        "".join(segment.text for segment in strip)[:width]
        for strip in app.screen._compositor.render_strips()
    )
