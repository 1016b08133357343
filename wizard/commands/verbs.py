"""The app's verbs, made of the real stages."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.theirs import why
from wizard import api, paths, session
from wizard.answers import Answers, Preset
from wizard.commands.terminal import ask
from wizard.problem import Problem, ProblemError
from wizard.screens.verbs import DataPreview, Machines, Verbs

if TYPE_CHECKING:
    from wizard.facts import Dataset

LOG_LINES = 200
FIRST_BYTES = 200
SAMPLES = 20
SHOWN_TOO = ("template", "preprocessor")
"""Settings that change what is shown of rows, beside those of the table `data`."""
"""Rows the Data page goes through."""
DATA_SUFFIXES = frozenset({".jsonl", ".json", ".csv", ".parquet"})
DEMO_MODEL = "SmolLM2-135M-Instruct"


def verbs(machine: str | None = None) -> Verbs:
    """Verbs whose runs go to the user's runs folder.

    `machine` plans for a machine that is not this one; its runs are not started.
    """
    from wizard.probe import probe_machine
    from wizard.probe.hub import read_hub_model
    from wizard.probe.machine import find
    from wizard.probe.model import read_model
    from wizard.probe.models import known_models, sibling
    from wizard.runner import stop
    from wizard.runner.folder import create, keep_new, list_runs
    from wizard.runner.follow import Follower, frames
    from wizard.runner.logs import tail

    root = paths.runs()
    return Verbs(
        probe=lambda say: find(machine) if machine else probe_machine(say=say),
        read_model=lambda name: read_model(api.absolute(Answers(model=name)).model or name),
        read_hub_model=lambda name: read_hub_model(name, os.environ),
        known_models=lambda: known_models(os.environ, Path.cwd()),
        sibling=sibling,
        read_dataset=_read_dataset,
        first_row=_first_row,
        preview_data=_preview_data,
        edit=edit,
        data_nearby=_data_nearby,
        plans=lambda facts, answers: api.make_plans(facts, api.absolute(answers)),
        smallest_full=lambda plans, facts, answers: api.smallest_for_full(
            plans, facts, api.absolute(answers)
        ),
        name_for=lambda plan, answers: answers.run_name or api.run_name(plan, root),
        preview=lambda chosen, facts, name: api.render(
            chosen.others, chosen.plan, facts, name, chosen.answers.policy
        ),
        write=lambda files, name: create(files, root=root, name=name),
        launch=lambda folder, smoke: _launch(folder, machine, smoke=smoke),
        resume=lambda folder: _resume(folder, machine),
        smoke_result=lambda folder: _read(folder / "smoke.json") or {},
        files_of=files_of,
        last_files=lambda: _last_files(root),
        list_runs=lambda: list_runs(root),
        follow=Follower,
        stop=lambda folder, now: stop.now(folder) if now else stop.request(folder),
        run_details=run_details,
        chat=chat,
        read_log=lambda folder, rank: tail(folder, rank, LOG_LINES),
        replay=frames,
        keep_picture=keep_new,
        kept_answers=session.load,
        last_run=lambda: _last_run(root),
        keep_answers=session.save,
        machines=_machines(),
        make_export=lambda chosen, facts, name, target: api.export_chosen(
            chosen.plan, chosen.others, facts, name, chosen.answers, target
        ),
        write_export=api.write_export,
        presets=_presets,
        save_preset=_save_preset,
        offline=_offline(),
        suggested_model=_suggested_model(),
    )


def _offline() -> str:
    """Which variable forbids asking hubs."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    no = {"", "0", "false", "no", "off"}
    return next((f"{n} is set" for n in names if os.environ.get(n, "").lower() not in no), "")


def _presets() -> tuple[Preset, ...]:
    from wizard.presets import shipped_and_saved  # loads what the first frame does not need

    return shipped_and_saved()


def _save_preset(preset: Preset) -> Path:
    """Write one of the user's own.

    Raises ProblemError when one has its name already: `presets save --replace` is for that.
    """
    from wizard.presets import save, shipped_and_saved

    if preset.name in {one.name for one in shipped_and_saved()}:
        what = f"there is a preset {preset.name!r} already"
        raise ProblemError(Problem(what=what, fix="choose another name"))
    return save(preset)


def _read_dataset(data: str, settings: Mapping[str, Any]) -> Dataset:
    from wizard.probe.dataset import absolute_data, read_dataset

    return read_dataset(absolute_data(data), settings)


def _first_row(data: str) -> Mapping[str, Any]:
    from wizard.probe.dataset import absolute_data, first_row

    return first_row(absolute_data(data))


def _preview_data(data: str, model: str, settings: Mapping[str, Any]) -> DataPreview:
    from engine.spec import SETTINGS
    from wizard.probe.preview import Preview

    about_data = {k: v for k, v in settings.items() if SETTINGS[k] == "data" or k in SHOWN_TOO}
    about_data.pop("data", None)
    return Preview(data, Path(model), about_data, SAMPLES)


def _data_nearby() -> tuple[str, ...]:
    """Data files in the current folder, newest first; none that our own commands wrote."""
    try:
        found = [p for p in Path.cwd().iterdir() if p.suffix in DATA_SUFFIXES and p.is_file()]
        found = [path for path in found if not _is_ours(path)]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return ()
    return tuple(path.name for path in found)


def _is_ours(path: Path) -> bool:
    """Whether it is a table of `tunewright metrics`, or a document of --json."""
    from wizard.dashboard.metrics import MEASURED, WHERE

    if path.suffix == ".parquet":
        return path.stem.endswith("-metrics")
    begin = ""
    with contextlib.suppress(OSError), path.open("rb") as file:
        begin = file.read(FIRST_BYTES).decode("utf-8", "replace")
    table = begin.startswith(",".join((*WHERE, *MEASURED[:2])))
    return table or re.match(r'\{\s*"schema"\s*:', begin) is not None


def edit(path: Path, line: int) -> None:
    """Open a file at a line in the user's editor, and wait for it.

    Raises ProblemError when there is no editor.
    """
    words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        subprocess.run([*words, f"+{line}", str(path)], check=False)
    except OSError as error:
        what = f"no editor: {why(error)}"
        fix = "EDITOR names one"
        raise ProblemError(Problem(what=what, where=shlex.join(words), fix=fix)) from None


def chat(folder: Path) -> None:
    """Talk to the model of a run in this terminal, as the command does."""
    done = subprocess.run([sys.executable, "-P", "-m", "wizard", "chat", str(folder)], check=False)
    if done.returncode:
        with contextlib.suppress(EOFError, KeyboardInterrupt):
            ask("Enter goes back to the page. ")  # what went wrong can be read until then


def _launch(folder: Path, machine: str | None, *, smoke: bool) -> None:
    from wizard.runner import launch

    if machine:
        raise ProblemError(api.elsewhere(machine))
    if smoke:  # of whose end nobody is told elsewhere
        launch.start(folder, "--smoke")
    else:
        api.start(folder)


def _resume(folder: Path, machine: str | None) -> None:
    if machine:
        raise ProblemError(api.elsewhere(machine))
    api.start(folder, "--resume")


def files_of(folder: Path) -> dict[str, str]:
    """The files a run was made of, `run.sh` first; those that cannot be read are left out."""
    found = {}
    for path in (folder / "run.sh", *sorted(folder.glob("*.toml")), folder / "plan.json"):
        with contextlib.suppress(OSError):
            found[path.name] = path.read_text(encoding="utf-8", errors="replace")
    return found


def _last_files(root: Path) -> tuple[str, dict[str, str]] | None:
    """Name and files of the run that was made last."""
    made = [path.parent for path in root.glob("*/run.sh")]
    newest = max(made, key=lambda folder: folder.stat().st_ctime, default=None)
    return None if newest is None else (newest.name, files_of(newest))


def _last_run(root: Path) -> Answers | None:
    """Model, data and columns of the newest run, as far as they are still there."""
    from engine.rows.sources import sources
    from wizard.runner.again import answers_of

    made = [path.parent for path in root.glob("*/spec.toml")]
    newest = max(made, key=lambda folder: folder.stat().st_ctime, default=None)
    if newest is None:
        return None
    try:
        before = answers_of(newest)
        read = [str(source.path) for source in sources(before.data or "")]
        data = before.data if all(map(_there, read)) else None
        columns = before.settings.get("columns")
        return Answers(
            model=before.model if _there(before.model or "") else None,
            data=data,
            settings={"columns": columns} if data and columns else {},
        )
    except (ProblemError, OSError, ValueError):
        return None  # a run that cannot be read is told where it is opened


def _there(name: str) -> bool:
    """Whether a name is that of a hub, or a path that leads somewhere."""
    return not name.startswith("/") or Path(name).exists()


def _machines() -> Machines:
    from wizard.probe import composed
    from wizard.probe.machine import find, shipped

    return Machines(
        snapshots=tuple(shipped()),
        devices=composed.names(),
        sold_with=composed.sold_with,
        find=find,
    )


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
