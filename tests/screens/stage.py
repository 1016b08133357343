"""An app with verbs that answer from values, and a way to wait until it rests."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot
from textual.screen import Screen
from textual.worker import WorkerCancelled

from tests.screens import values
from wizard import api
from wizard.answers import Answers, Preset
from wizard.app import TunewrightApp, Verbs
from wizard.dashboard.source import LogOf, Source
from wizard.dashboard.state import RunState
from wizard.facts import Dataset, Facts, KnownModel, Model
from wizard.formats.exporting import Target
from wizard.formats.values import Exported
from wizard.problem import Problem, ProblemError
from wizard.screens.exporting import ExportVerbs
from wizard.screens.model import ModelVerbs
from wizard.screens.review import ReviewVerbs
from wizard.screens.telling import DataVerbs
from wizard.steps import Chosen
from wizard.widgets.message import MessageLine

RUN = Path("/runs/qwen3-8b-lora-1129-1")


@dataclass
class FollowedRun:
    """A run whose state the test sets."""

    state: RunState

    def poll(self, seconds: float | None = None) -> RunState:
        return self.state


@dataclass
class SaidData:
    """What the child that reads data says, without a child."""

    said: tuple[Mapping[str, Any], ...]
    closed: bool = False

    def lines(self) -> Iterator[Mapping[str, Any]]:
        yield from self.said

    def close(self) -> None:
        self.closed = True


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
    said: tuple[Mapping[str, Any], ...] = values.SAID
    known: tuple[KnownModel, ...] = ()
    nearby: tuple[str, ...] = ()
    last: tuple[str, Mapping[str, str]] | None = None
    written: list[tuple[dict[str, str], str]] = field(default_factory=list)
    launched: list[tuple[Path, bool]] = field(default_factory=list)
    edited: list[tuple[Path, int]] = field(default_factory=list)
    stopped: list[tuple[Path, bool]] = field(default_factory=list)
    chatted: list[Path] = field(default_factory=list)
    resumed: list[Path] = field(default_factory=list)
    logs_read: list[LogOf] = field(default_factory=list)
    frames: tuple[RunState, ...] = ()
    pictures: dict[str, str] = field(default_factory=dict)
    kept: Answers | None = None
    last_run: Answers | None = None
    presets: tuple[Preset, ...] = ()

    def verbs(self, **changes: Any) -> Verbs:
        given = Verbs(
            probe=lambda say: values.MACHINE,
            read_model=self.read_model,
            read_dataset=self.read_dataset,
            first_row=lambda path: {"question": "why?", "answer": "because", "source": "mail"},
            plans=lambda facts, answers: values.PLANS,
            smallest_full=lambda plans, facts, answers: None,
            name_for=lambda plan, answers: answers.run_name or RUN.name,
            read_hub_model=lambda name: replace(self.model, name=name, source="the hub"),
            known_models=lambda: self.known,
            sibling={"Qwen/Qwen3-8B": "Qwen/Qwen3-8B-Base"}.get,
            preview_data=lambda data, model, settings: SaidData(self.said),
            edit=lambda path, line: self.edited.append((path, line)),
            data_nearby=lambda: self.nearby,
            preview=lambda chosen, facts, name: self.files,
            write=self.write,
            launch=self.launch,
            smoke_result=lambda folder: values.SMOKE_JSON,
            files_of=lambda folder: self.files,
            last_files=lambda: self.last,
            list_runs=lambda: self.runs,
            follow=lambda path: self.run,
            stop=lambda path, now: self.stopped.append((path, now)),
            resume=self.resume,
            run_details=lambda path: self.details,
            chat=self.chatted.append,
            read_log=self.read_log,
            replay=lambda path: self.frames,
            keep_picture=self.keep_picture,
            kept_answers=lambda: self.kept,
            last_run=lambda: self.last_run,
            keep_answers=self.keep,
            machines=values.MACHINES,
            make_export=self.make_export,
            write_export=api.write_export,
            presets=lambda: self.presets,
            save_preset=self.save_preset,
        )
        return replace(given, **changes)

    def make_export(self, chosen: Chosen, facts: Facts, name: str, target: Target) -> Exported:
        """The real thing, but for the facts that only a machine has."""
        return api.export_chosen(chosen.plan, chosen.others, facts, name, chosen.answers, target)

    def save_preset(self, preset: Preset) -> Path:
        self.presets = (*self.presets, preset)
        return Path(f"/presets/{preset.name}.toml")

    def source(self) -> Source:
        verbs = self.verbs()
        return Source(
            follow=verbs.follow,
            stop=verbs.stop,
            resume=verbs.resume,
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

    def read_dataset(self, path: str, settings: Mapping[str, Any] | None = None) -> Dataset:
        if path == "nowhere":
            raise ProblemError(Problem(what="no such file", where=path, fix="name a file"))
        return replace(self.dataset, path=path)

    def write(self, files: Mapping[str, str], name: str) -> Path:
        self.written.append((dict(files), name))
        return RUN.parent / name

    def keep_picture(self, name: str, text: str) -> Path:
        self.pictures[name] = text
        return Path(name)

    def launch(self, folder: Path, smoke: bool) -> None:
        self.launched.append((folder, smoke))

    def resume(self, folder: Path) -> None:
        """It runs again from its last checkpoint."""
        self.resumed.append(folder)
        self.run.state = replace(self.run.state, exit_code=None, lost=False, phase="training")

    def data_verbs(self, **changes: Any) -> DataVerbs:
        given = DataVerbs(
            read=self.read_dataset,
            first_row=self.verbs().first_row,
            preview=lambda data, settings: SaidData(self.said),
            memory=lambda dataset, settings, lengths: {1024: "19.4 GiB"},
            edit=lambda path, line: self.edited.append((path, line)),
            nearby=self.nearby,
        )
        return replace(given, **changes)

    def model_verbs(self, **changes: Any) -> ModelVerbs:
        given = ModelVerbs(
            read=self.read_model,
            read_hub=self.verbs().read_hub_model,
            known=lambda: self.known,
            sibling=self.verbs().sibling,
            fit=lambda model: "yes",
        )
        return replace(given, **changes)

    def export_verbs(self) -> ExportVerbs:
        return ExportVerbs(make=self.make_export, write=api.write_export)

    def review_verbs(self, **changes: Any) -> ReviewVerbs:
        verbs = self.verbs()
        given = ReviewVerbs(
            preview=verbs.preview,
            write=verbs.write,
            launch=verbs.launch,
            ended=lambda path: self.run.state if self.run.state.ended else None,
            smoke_result=verbs.smoke_result,
            last_files=verbs.last_files,
            edit=verbs.edit,
            files_of=verbs.files_of,
            exports=self.export_verbs(),
        )
        return replace(given, **changes)

    def keep(self, answers: Answers | None) -> None:
        self.kept = answers

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
    lasting = {"walk", "follow", "presets"}
    slow = [worker for worker in pilot.app.workers if worker.name not in lasting]
    if slow:
        with contextlib.suppress(WorkerCancelled):  # a newer call took its place
            await pilot.app.workers.wait_for_complete(slow)
    await pilot.pause()
    while any(line.lingers for line in pilot.app.screen.query(MessageLine)):
        await pilot.pause(0.05)


async def until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    """Wait for a condition, on a machine that may have much else to do."""
    for _ in range(1000):
        await rest(pilot)
        if condition():
            return
        await pilot.pause(0.02)
    assert isinstance(pilot.app, TunewrightApp)
    on_screen = f"{type(pilot.app.screen).__name__}\n{shown(pilot.app)}"
    raise AssertionError(f"still waiting; on screen: {on_screen}")


def shown(app: TunewrightApp) -> str:
    """All text on the screen, line by line."""
    width = app.size.width
    return "\n".join(
        "".join(segment.text for segment in strip)[:width]
        for strip in app.screen._compositor.render_strips()
    )
