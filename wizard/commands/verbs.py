"""The app's verbs, made of the real stages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wizard import api, paths
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.problem import ProblemError
from wizard.screens.verbs import Verbs

if TYPE_CHECKING:
    from wizard.plan import Plan

LOG_LINES = 200
DEMO_MODEL = "SmolLM2-135M-Instruct"


def verbs(machine: str | None = None) -> Verbs:
    """Verbs whose runs go to the user's runs folder.

    `machine` plans for a machine that is not this one; its runs are not started.
    """
    from wizard.probe import probe_machine
    from wizard.probe.dataset import read_dataset
    from wizard.probe.machine import find
    from wizard.probe.model import read_model
    from wizard.runner import stop
    from wizard.runner.folder import keep_new, list_runs
    from wizard.runner.follow import Follower, frames
    from wizard.runner.logs import tail

    root = paths.runs()
    planning = _Planning(root, machine)
    return Verbs(
        probe=lambda say: find(machine) if machine else probe_machine(say=say),
        read_model=lambda name: read_model(api.absolute(Answers(model=name)).model or name),
        read_dataset=lambda path: read_dataset(api.absolute(Answers(data=path)).data or path),
        plans=planning.plans,
        name_for=lambda plan, answers: answers.run_name or api.run_name(plan, root),
        preview=planning.preview,
        launch=planning.launch,
        list_runs=lambda: list_runs(root),
        follow=Follower,
        stop=lambda folder, now: stop.now(folder) if now else stop.request(folder),
        run_details=run_details,
        read_log=lambda folder, rank: tail(folder, rank, LOG_LINES),
        replay=frames,
        keep_picture=keep_new,
        suggested_model=_suggested_model(),
    )


class _Planning:
    """Remembers what a plan was made from, so that the files launched are those previewed."""

    def __init__(self, root: Path, machine: str | None) -> None:
        self._root = root
        self._machine = machine
        self._facts: Facts | None = None
        self._plans: tuple[Plan, ...] = ()
        self._previewed: dict[tuple[str, int], dict[str, str]] = {}

    def plans(self, facts: Facts, answers: Answers) -> tuple[Plan, ...]:
        made = api.make_plans(facts, api.absolute(answers))
        self._facts, self._plans = facts, made
        return made

    def preview(self, plan: Plan, name: str) -> Mapping[str, str]:
        assert self._facts is not None, "a plan is previewed after it was made"
        files = api.render(self._plans, plan, self._facts, name)
        self._previewed = {(name, id(plan)): files}
        return files

    def launch(self, plan: Plan, name: str) -> Path:
        from wizard.runner.folder import create

        if self._machine:
            raise ProblemError(api.elsewhere(self._machine))
        files = self._previewed.get((name, id(plan))) or self.preview(plan, name)
        folder = create(files, root=self._root, name=name)
        api.start(folder)
        return folder


def run_details(folder: Path) -> dict[str, Any]:
    """plan.json and result.json of a run; None for one that is not there."""
    return {name: _read(folder / f"{name}.json") for name in ("plan", "result")}


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _suggested_model() -> str | None:
    folder = paths.cache() / "models" / DEMO_MODEL
    return str(folder) if folder.is_dir() else None
