"""The stages joined: facts, plans, a run folder, a started run; what command and app both call."""

from __future__ import annotations

import datetime
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.theirs import why
from wizard import paths
from wizard.answers import DEFAULT_POLICY, Answers, Policy
from wizard.facts import Dataset, Facts
from wizard.problem import Problem, ProblemError

if TYPE_CHECKING:
    from wizard.answers import Preset
    from wizard.dashboard.state import RunState
    from wizard.formats.exporting import Target
    from wizard.formats.values import Exported
    from wizard.plan import Plan
    from wizard.planner.traced import Traced
    from wizard.runner.launch import LaunchRecord

PART_SECONDS = 0.2
"""How long a part of a long history is read before what is known of it is told."""
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


def facts_for(
    model: str | None,
    data: str | None,
    say: Callable[[str], object] = lambda text: None,
    *,
    machine: str | None = None,
    settings: Mapping[str, Any] | None = None,
    hub: bool = False,
) -> Facts:
    """Facts of this machine, and of a model and a data file when they are named.

    `machine` names another one: a saved file, a shipped snapshot, or a count and a name.
    `settings` are those of the answers, which say how rows are read. `hub` asks the hub about a
    model that is not known here.
    Raises ProblemError for a machine, a model or a data file that cannot be used.
    """
    from wizard.probe import probe_machine
    from wizard.probe.dataset import read_dataset
    from wizard.probe.model import read_model

    found_model = read_model(model, hub=hub) if model is not None else None
    found_data = read_dataset(data, settings) if data is not None else None
    _check_evaluated(found_data, settings or {})
    if machine is None:
        say("probing the machine")
        found = probe_machine()
    else:
        from wizard.probe.machine import find

        found = find(machine)
    return replace(found, model=found_model, dataset=found_data)


def _check_evaluated(data: Dataset | None, settings: Mapping[str, Any]) -> None:
    """Raise ProblemError for a second file, to evaluate on, that a run would refuse."""
    from engine.spec import STAGE_OF
    from wizard.planner.refusals import too_many_dropped
    from wizard.probe.dataset import absolute_data, read_dataset

    if data is None or not settings.get("eval_data"):
        return
    stage = settings.get("stage") or STAGE_OF.get(data.format or "", "sft")
    try:
        found = read_dataset(absolute_data(settings["eval_data"]), {**settings, "stage": stage})
        problem = too_many_dropped(found, settings)
    except ProblemError as error:
        problem = error.problem
    if problem is not None:
        raise ProblemError(replace(problem, where=f"eval_data, {problem.where}"))


def make_plans(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
    """Every plan, best first; those that do not fit come last.

    What finished runs here measured corrects them, unless the answers or the configuration say no.
    Raises ProblemError when the answers contradict each other or the facts.
    """
    from wizard import configuration, history
    from wizard.planner import plans

    found = plans(facts, answers)
    if not (answers.history and configuration.read().keep_history):
        return found
    return history.corrected(found, facts, history.learn(runs_root(answers.output)))


def trace(plan: Plan, facts: Facts) -> Traced:
    """The tensors of the plan's step, counted on the installed libraries without a device.

    Raises ProblemError where that cannot be done.
    """
    from wizard.probe.trace import trace as ask

    assert facts.model is not None
    return ask(plan.spec, facts.model)


def smallest_for_full(
    plans: Sequence[Plan], facts: Facts, answers: Answers
) -> tuple[str, Plan] | None:
    """The smallest shipped machine that tunes all weights, where this one cannot on its devices."""
    here = [p for p in plans if p.spec.method.method == "full" and p.fits]
    if any(plan.spec.parallel.offload == "none" for plan in here):
        return None
    from wizard.planner.smallest import smallest_for_full as search
    from wizard.probe.machine import load, shipped

    return search({name: load(path) for name, path in shipped().items()}, facts, answers)


def best(plans: Sequence[Plan]) -> Plan:
    """The first plan that fits.

    Raises ProblemError saying by how much the nearest one does not.
    """
    for plan in plans:
        if plan.fits:
            return plan
    raise ProblemError(_nothing_fits(plans))


def _nothing_fits(plans: Sequence[Plan]) -> Problem:
    from wizard.planner.shortfall import while_loading
    from wizard.wording import gib

    refused = [p for plan in plans for p in plan.problems if p.severity == "error"]
    if refused and all(plan.memory.fits for plan in plans):
        return replace(refused[0], exit_code=5)
    nearest = min(plans, key=lambda plan: plan.memory.over_bytes)
    memory = nearest.memory
    quantized = any(plan.spec.method.method == "qlora" for plan in plans)
    ways = [*nearest.would_fit, "a smaller model", *(() if quantized else ("method=qlora",))]
    over = f"{gib(memory.over_bytes)} over {memory.over_where}"
    what = f"nothing fits: the nearest plan, {nearest.title}, is {over}"
    if while_loading(memory):
        what = f"nothing can be loaded: the nearest plan, {nearest.title}, is then {over}"
    return Problem(
        what=what, fix=f"what needs less, or has more: {'; or '.join(ways)}", exit_code=5
    )


def with_preset(answers: Answers, preset: Preset) -> Answers:
    """Answers with a preset below the user's own; its model and data stand in for absent ones."""
    settings = {k: v for k, v in preset.settings.items() if k not in ("model", "data")}
    absent = {name for name in ("model", "data") if getattr(answers, name) is None}
    return replace(
        answers,
        model=answers.model if answers.model is not None else preset.settings.get("model"),
        data=answers.data if answers.data is not None else preset.settings.get("data"),
        preset=preset.name,
        named_by_preset=frozenset(absent & set(preset.settings)),
        goal=preset.goal or answers.goal,
        preset_settings=settings,
    )


def absolute(answers: Answers, *, hub: bool = False) -> Answers:
    """Answers whose model and data are absolute paths where they are files.

    A run starts in its own folder, so a relative path would point elsewhere. An adapter to go on
    with brings the settings that it was made with. Data on a hub is fetched; with `hub` a name
    such as `org/name` that is no file is one, too.
    Raises ProblemError, naming the option, for what cannot be a path.
    """
    settings = dict(answers.settings)
    if settings.get("eval_data"):
        settings["eval_data"] = _absolute_data(settings["eval_data"], hub)
    if settings.get("adapter"):
        settings = _with_adapter(settings)
    settings = _with_code(settings)
    return replace(
        answers,
        settings=settings,
        model=_absolute_model(answers.model) if answers.model else answers.model,
        data=_absolute_data(answers.data, hub) if answers.data else answers.data,
    )


def _absolute_model(name: str) -> str:
    from wizard.probe.model import own_folder

    path = paths.expanded(name, "--model")
    if not _exists(path) and (own := own_folder(name)) is not None:
        return str(own)
    return str(path.absolute()) if _exists(path) or not HUB_ID.fullmatch(name) else name


def _absolute_data(name: str, hub: bool) -> str:
    from wizard.probe.dataset import absolute_data

    return absolute_data(name, hub=hub)


def _with_code(settings: dict[str, Any]) -> dict[str, Any]:
    """Plug-ins by absolute path, each looked for in its file; nothing of it runs."""
    from engine.spec import PluginTable
    from wizard.probe.code import located

    return {
        **settings,
        **{
            kind: located(kind, settings[kind])
            for kind in PluginTable.model_fields
            if settings.get(kind) is not None
        },
    }


def _with_adapter(settings: dict[str, Any]) -> dict[str, Any]:
    from engine.settings import parse_setting
    from wizard.probe.adapter import read_adapter

    folder = paths.expanded(settings["adapter"], "adapter").absolute()
    found = dict(parse_setting(name, value) for name, value in read_adapter(folder).items())
    for name, value in found.items():
        if settings.get(name, value) != value:
            raise ProblemError(
                Problem(
                    what=f"{name}={settings[name]} is fixed, but the adapter has {name}={value}",
                    where=str(folder),
                    fix=f"leave {name} out",
                    exit_code=2,
                )
            )
    return {**settings, **found, "adapter": str(folder)}


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder on the way may not be entered
        return True


def run_name(plan: Plan, root: Path, today: datetime.date | None = None) -> str:
    """A free name such as `qwen3-8b-lora-1129-1`."""
    today = today or datetime.date.today()
    last = plan.spec.model.model.rstrip("/").rsplit("/", 1)[-1].lower()
    model = re.sub(r"[^a-z0-9.]+", "-", last).strip("-.")[:40] or "model"
    stem = f"{model}-{plan.spec.method.method}-{today:%m%d}"
    number = 1
    while (root / f"{stem}-{number}").exists():
        number += 1
    return f"{stem}-{number}"


def render(
    plans: Sequence[Plan],
    plan: Plan,
    facts: Facts,
    name: str,
    policy: Policy = DEFAULT_POLICY,
    *,
    nodes: int = 1,
    python: str | None = None,
) -> dict[str, str]:
    """The files of a run, exactly as `write_run` stores them and `run.sh` reads them.

    `nodes` machines like that of `facts` share its ranks; `python` is tunewright's there.
    """
    from wizard.script import render as render_script

    return render_script(
        plan,
        name=name,
        python=python or sys.executable,
        facts=facts,
        written=datetime.date.today().isoformat(),
        alternatives=tuple(p for p in plans if p is not plan),
        nodes=nodes,
        policy=policy,
    )


def export(
    answers: Answers,
    target: Target,
    *,
    machine: str | None = None,
    python: str | None = None,
    policy: Policy = DEFAULT_POLICY,
    hub: bool = False,
) -> Exported:
    """The best plan in another form; on several machines, one that all of them share.

    Raises ProblemError as `facts_for`, `make_plans` and `best` do, and for a target that cannot
    be met.
    """
    from wizard.formats import exporting

    exporting.check(target)
    facts = facts_for(answers.model, answers.data, machine=machine, settings=answers.fixed, hub=hub)
    return export_plan(facts, answers, target, python=python, policy=policy)


def export_plan(
    facts: Facts,
    answers: Answers,
    target: Target,
    *,
    python: str | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Exported:
    """As `export`, for facts that are known."""
    from wizard.formats import exporting
    from wizard.formats.jobs import Job
    from wizard.machines import several

    everything = facts
    if target.nodes > 1:
        everything = several(facts, target.nodes, answers.devices, target.network_gbs)
        answers = replace(answers, devices=None, num_devices=_on_all(everything, answers, target))
    plans = make_plans(everything, answers)
    plan = best(plans)
    exporting.check_nodes(plan, target.nodes)
    name = answers.run_name or run_name(plan, runs_root(answers.output))
    files = render(plans, plan, facts, name, policy, nodes=target.nodes, python=python)
    job = Job(
        plan=plan,
        name=name,
        run_sh=files["run.sh"],
        facts=facts,
        written=datetime.date.today().isoformat(),
        nodes=target.nodes,
    )
    return exporting.export(job, target)


def export_chosen(
    plan: Plan,
    others: Sequence[Plan],
    facts: Facts,
    name: str,
    answers: Answers,
    target: Target,
) -> Exported:
    """A plan that was chosen, in another form; on several machines the same way to train there.

    Raises ProblemError as `export` does.
    """
    from wizard.formats import exporting
    from wizard.formats.jobs import Job

    exporting.check(target)
    if target.nodes > 1:
        way = {"method": plan.spec.method.method, "strategy": plan.spec.parallel.strategy}
        named = replace(answers, run_name=name, settings={**answers.settings, **way})
        return export_plan(facts, absolute(named), target, policy=answers.policy)
    files = render(others, plan, facts, name, answers.policy)
    written = datetime.date.today().isoformat()
    job = Job(plan=plan, name=name, run_sh=files["run.sh"], facts=facts, written=written, nodes=1)
    return exporting.export(job, target)


def _on_all(facts: Facts, answers: Answers, target: Target) -> int | None:
    """Ranks of several machines: every device, or one CPU rank each; a fixed number wins."""
    if answers.num_devices is not None:
        return answers.num_devices
    return len(facts.accelerators) or target.nodes


def checkout() -> str | None:
    """The folder of the source that this runs from; None when it is an installed package."""
    return str(paths.CHECKOUT) if (paths.CHECKOUT / "install.sh").is_file() else None


def write_export(exported: Exported, out: Path, *, force: bool = False) -> list[Path]:
    """Write an export's files: one to `out` itself, several into the folder `out`, which is made.

    Raises ProblemError for a file that is there already, without `force` and before any is
    written, or for one that cannot be written.
    """
    from wizard.presets import refuse_existing, write_new

    where = paths.expanded(str(out), "--output")
    if len(exported.files) == 1 and not where.is_dir():
        return [write_new(where, exported.files[exported.main], force=force)]
    if not force:
        for name in exported.files:
            refuse_existing(where / name)
    try:
        where.mkdir(exist_ok=True)
    except OSError as error:
        what = f"this folder cannot be made: {why(error)}"
        raise ProblemError(Problem(what=what, where=str(where))) from None
    return [write_new(where / name, text, force=force) for name, text in exported.files.items()]


def runs_root(output: str | None) -> Path:
    """The folder that holds run folders.

    Raises ProblemError for what cannot be one.
    """
    if output is None:
        return paths.runs()
    folder = paths.expanded(output, "--runs").absolute()
    if os.path.isfile(folder):
        raise ProblemError(Problem(what="this is no folder", where=f"--runs {folder}", exit_code=2))
    return folder


def write_run(
    plans: Sequence[Plan],
    plan: Plan,
    facts: Facts,
    name: str,
    root: Path,
    policy: Policy = DEFAULT_POLICY,
) -> Path:
    """A new run folder under root.

    Raises ProblemError when it cannot be made; nothing half-written stays.
    """
    from wizard.runner.folder import create

    return create(render(plans, plan, facts, name, policy), root=root.absolute(), name=name)


def start(folder: Path, *options: str) -> LaunchRecord:
    """Start a run folder's `run.sh`, with its own options, in its own session.

    The program that the user's configuration names is told how it ends.
    """
    from wizard import configuration
    from wizard.runner import launch

    command = configuration.read().notify_command
    return launch.start(folder.absolute(), *options, notify=command)


def watch(folder: Path, every: float = 0.5) -> Iterator[RunState]:
    """What is known of a run, every so many seconds; the last one after its end.

    The history of a long run is read in between.
    """
    from wizard.runner.follow import Follower

    follower = Follower(folder)
    while True:
        state = follower.poll(PART_SECONDS)
        yield state
        if state.ended and state.history_share >= 1:
            return
        until = time.monotonic() + every
        while state.history_share < 1 and time.monotonic() < until:
            state = follower.poll(PART_SECONDS)
        time.sleep(max(until - time.monotonic(), 0.0))


def parse_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """`--set` arguments → checked settings.

    Raises ProblemError for a pair without `=`, an unknown name, a bad value, or two values of one.
    """
    from engine.settings import parse_setting
    from engine.spec import SpecError

    settings: dict[str, Any] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator:
            raise ProblemError(Problem(what=f"--set takes key=value, not {pair!r}", exit_code=2))
        try:
            name, checked = parse_setting(key, value)
        except SpecError as error:
            raise ProblemError(Problem(what=str(error), where="--set", exit_code=2)) from None
        if settings.get(name, checked) != checked:
            what = f"{name} is given twice, as {settings[name]} and as {checked}"
            fix = "keep one of them"
            raise ProblemError(Problem(what=what, where="--set", fix=fix, exit_code=2))
        settings[name] = checked
    return settings


def elsewhere(machine: str) -> Problem:
    """Why a run planned for another machine is not started."""
    return Problem(
        what=f"a run planned for {machine} is not started here",
        where="--machine",
        fix="--write-only writes its folder, --dry-run prints its script; without --machine "
        "it runs on this one",
        exit_code=2,
    )
