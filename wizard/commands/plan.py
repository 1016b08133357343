"""`tunewright plan`: every way to train this model on this machine, and why."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from wizard import api, machines
from wizard.answers import Answers, Goal
from wizard.commands import choosing, output
from wizard.commands.terminal import print_exactly, print_json, say
from wizard.facts import Dataset, Facts
from wizard.language import foreign, joined, mark, said, said_problem
from wizard.problem import Problem, ProblemError
from wizard.wording import counted, duration, gib, gib_of, one_line, percent, setting, wrapped

if TYPE_CHECKING:
    from engine.spec import Spec
    from wizard.plan import Decision, Plan
    from wizard.planner.traced import Traced

HELP = "compare every way to train, with predicted memory and reasons"
DESCRIPTION = "Nothing is started or written."
PLANNED = frozenset(
    {
        "dtype",
        "gradient_accumulation_steps",
        "gradient_checkpointing",
        "max_length",
        "method",
        "num_devices",
        "offload",
        "optim",
        "per_device_train_batch_size",
        "strategy",
    }
)
"""Settings that decide how much memory and time a run takes."""
WIDTH = 80
"""Columns the text keeps to."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    choosing.add_arguments(parser)
    choosing.add_nodes(parser)
    output.add_format(parser)
    parser.add_argument(
        "--trace",
        action="store_true",
        help="count the best plan's tensors by running its step on fake ones",
    )


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    answers = choosing.answers_from(args)
    facts = api.facts_for(
        answers.model, answers.data, machine=args.machine, settings=answers.fixed, hub=args.hub
    )
    if args.nodes > 1 or args.network:
        facts, answers = _on_machines(args, facts, answers)
    plans = api.make_plans(facts, answers)
    if args.dry_run:
        print_script(plans, facts, answers, as_json=args.json)
        return 0
    traced = api.trace(plans[0], facts) if args.trace else None
    if args.json:
        document: dict[str, Any] = {"schema": 1, "plans": [as_json(plan) for plan in plans]}
        if traced is not None:
            document["trace"] = dataclasses.asdict(traced)
        print_json(document)
    else:
        further = [
            *_without_fixed(plans, facts, answers),
            *_other_goals(plans, facts, answers),
            *_elsewhere(plans, facts, answers),
        ]
        for line in lines(plans, facts, further):
            say(line)
        for line in trace_lines(plans[0], traced) if traced else ():
            say(line)
    api.best(plans)
    return _fits_traced(plans[0], traced)


def _on_machines(args: argparse.Namespace, facts: Facts, answers: Answers) -> tuple[Facts, Answers]:
    """The machines that are planned for; the devices named are those that each lends."""
    machines.check_count(args.nodes)
    network_gbs = machines.bandwidth_gbs(args.network)
    if args.nodes == 1:
        what = "--network is what is between machines, and there is one"
        raise ProblemError(Problem(what=what, fix="--nodes 2", exit_code=2))
    if args.dry_run:
        what = "--dry-run prints the script of one machine"
        fix = f"tunewright export --format sbatch --nodes {args.nodes} writes one for several"
        raise ProblemError(Problem(what=what, where="--nodes", fix=fix, exit_code=2))
    together = machines.several(facts, args.nodes, answers.devices, network_gbs)
    return together, dataclasses.replace(answers, devices=None)


def _fits_traced(plan: Plan, traced: Traced | None) -> int:
    """0, or 5 where the traced step does not fit though the simulated one did."""
    from wizard.planner.traced import with_trace

    return 5 if traced is not None and not with_trace(plan.memory, traced).fits else 0


def trace_lines(plan: Plan, traced: Traced) -> list[str]:
    """The traced step beside the simulated one."""
    from wizard.planner.traced import tensor_bytes, with_trace

    simulated, memory = tensor_bytes(plan.memory), with_trace(plan.memory, traced)
    off = 100 * (simulated / traced.allocated_peak_bytes - 1)
    moments = ", ".join(f"{name} {gib(size)}" for name, size in traced.moments if name)
    verdict = "fits" if memory.fits else f"does not fit: {gib(memory.over_bytes)} over"
    return [
        f"Traced step of 1 (fake tensors on the installed libraries, {traced.seconds:.0f} s)",
        f"  tensors: {gib(traced.allocated_peak_bytes)} at the peak, in {traced.moment}; "
        f"predicted {gib(simulated)} ({off:+.2f} %)",
        f"  peaks: {moments}",
        f"  with allocator and context: {gib(memory.device_bytes)} of "
        f"{gib(memory.device_budget_bytes)} per rank, {verdict}",
    ]


def print_script(plans: Sequence[Plan], facts: Facts, answers: Answers, *, as_json: bool) -> None:
    """The `run.sh` that `run` would write and start; as JSON every file of the run's folder."""
    plan = api.best(plans)
    name = answers.run_name or api.run_name(plan, api.runs_root(answers.output))
    files = api.render(plans, plan, facts, name, answers.policy)
    if as_json:
        print_json({"schema": 1, "name": name, "files": files})
    else:
        print_exactly(files["run.sh"])


def as_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain values."""
    return {
        "title": plan.title,
        "fits": plan.fits,
        "over_bytes": plan.memory.over_bytes,
        "would_fit": plan.would_fit,
        "memory": dataclasses.asdict(plan.memory),
        "steps": plan.steps,
        "step_seconds": plan.step_seconds,
        "step_terms": dict(plan.step_terms),
        "tokens_per_second": plan.tokens_per_second,
        "limited_by": plan.limited_by,
        "run_seconds": plan.run_seconds,
        "energy_kwh": plan.energy_kwh,
        "cost": plan.cost,
        "why": plan.why,
        "problems": [dataclasses.asdict(problem) for problem in plan.problems],
        "decisions": [dataclasses.asdict(decision) for decision in plan.decisions],
        "exact_rungs": plan.exact_rungs,
        "rungs": [rung.model_dump() for rung in plan.rungs],
        "spec": plan.spec.model_dump(),
    }


def lines(plans: Sequence[Plan], facts: Facts, further: Sequence[str] = ()) -> list[str]:
    """The plans as text of 80 columns: a table, what goes with it, then the first one in full."""
    table = [line for number, plan in enumerate(plans, start=1) for line in _row(number, plan)]
    return [*_subject(facts), *table, *further, *detail(plans[0], "Why 1")]


def _row(number: int, plan: Plan) -> list[str]:
    """A plan in two lines: what it is, and what it needs or lacks; its time where it is known."""
    found = [foreign(f"{number:2}. {said(plan.title)}"), *_wrapped(said(_fit(plan)), "    ")]
    spent = _spent(plan)
    return [*found, *_wrapped(said(spent), "    ")] if plan.fits and spent else found


def _spent(plan: Plan) -> str:
    """Time, energy and cost of a run, as far as they are known."""
    if plan.step_seconds is None:
        return ""
    parts = [
        f"{duration(plan.step_seconds)} a step of the longest rows, most of it {plan.limited_by}"
    ]
    if plan.run_seconds is not None:
        parts.append(f"about {duration(plan.run_seconds)} in all")
    if plan.energy_kwh is not None:
        parts.append(f"{plan.energy_kwh:.3g} kWh")
    if plan.cost is not None:
        parts.append(f"costs about {plan.cost:.2f}")
    return ", ".join(parts)


def _wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    """A text in lines of the width; what in it is ours is said before by who knows which it is."""
    return wrapped(one_line(text), WIDTH, indent, further)


def _subject(facts: Facts) -> list[str]:
    found = [f"Machine {facts.machine}, not this one"] if facts.machine else []
    if facts.model is not None:
        count = facts.model.parameters
        size = f"{count / 1e6:,.1f} M parameters" if count else "size unknown"
        found.append(f"Model {facts.model.name}: {size} (from {facts.model.source})")
    if facts.dataset is not None:
        dropped, rows = facts.dataset.dropped_rows, rows_of(facts.dataset)
        found.append(
            f"Data {facts.dataset.path}: {rows}, {facts.dataset.format or 'several formats'}"
            + (f", {dropped:,} not usable" if dropped else "")
        )
        found.extend(f"  {said_problem(problem)}" for problem in facts.dataset.problems)
    return found


def rows_of(data: Dataset) -> str:
    """Rows of an epoch, and how many there are where those are not the same."""
    there = data.rows_there
    if there == data.rows:
        return counted(data.rows, "row")
    return f"{counted(data.rows, 'row')} in an epoch, of {there:,} there"


def _fit(plan: Plan) -> str:
    memory = plan.memory
    spec = plan.spec
    need = f"{gib(memory.device_bytes)} of {gib(memory.device_budget_bytes)} per rank"
    unit = "block" if spec.method.stage == "pretrain" else "row"
    batch = (
        f"{spec.training.per_device_train_batch_size} × "
        f"{spec.training.gradient_accumulation_steps} × {spec.parallel.ranks} "
        f"= {counted(spec.training.effective_batch_size, unit)} a step"
    )
    errors = [str(p) for p in plan.problems if p.severity == "error"]
    if plan.fits and plan.host_unknown:
        host = f"{gib(memory.host_bytes)} of host memory, which is not known here"
        return f"unknown whether it fits: it needs {host}; {need} predicted, {batch}"
    if plan.fits:
        return f"fits, {need} predicted, {batch}"
    if errors and memory.fits:
        return f"no, {errors[0]}"
    least = "at least " if memory.at_least else ""
    ways = f"; would fit: {'; or '.join(plan.would_fit)}" if plan.would_fit else ""
    return f"no, {least}{gib(memory.over_bytes)} over {memory.over_where} ({need}){ways}"


def summary(plan: Plan, facts: Facts) -> list[str]:
    """The chosen plan in few lines, for someone who is asked whether to start it."""
    steps = counted(plan.steps, "step") if plan.steps is not None else "steps unknown"
    return [
        *_subject(facts),
        f"{plan.title}: {_fit(plan)}, {steps}",
        *(f"  {line}" for line in plan.why),
        *warnings(plan),
    ]


def warnings(plan: Plan) -> list[str]:
    """What is wrong with a plan, a line each."""
    return [f"({said(p.severity)}) {said_problem(p)}" for p in plan.problems]


def detail(plan: Plan, title: str = "Why") -> list[str]:
    """Everything about a plan: reasons, time, memory, rungs, settings, warnings."""
    steps = counted(plan.steps, "step") if plan.steps is not None else "steps unknown"
    return [
        f"{title} ({steps})",
        *(line for why in plan.why for line in _wrapped(said(why), "  ", "    ")),
        *_time(plan),
        "Predicted memory of one rank",
        *_memory(plan),
        *_ladder(plan),
        "Settings",
        *(line for decision in plan.decisions for line in _decision(decision)),
        *(line for text in warnings(plan) for line in _wrapped(text, "", "  ")),
    ]


def _without_fixed(plans: Sequence[Plan], facts: Facts, answers: Answers) -> list[str]:
    """What the settings that were fixed cost: the plan without them, where it is another one."""
    kept = {k: v for k, v in answers.settings.items() if k not in PLANNED}
    if kept == answers.settings:
        return []
    try:
        best = api.make_plans(facts, dataclasses.replace(answers, settings=kept))[0]
    except ProblemError:  # what a preset fixes needs what was fixed over it
        return []
    if not best.fits or best.spec == plans[0].spec:
        return []
    names = ", ".join(name for name in answers.settings if name in PLANNED)
    spent = _spent(best)
    text = f"Without {names} fixed: {best.title}, {_fit(best)}{f', {spent}' if spent else ''}"
    return _wrapped(said(text), "", "  ")


def _other_goals(plans: Sequence[Plan], facts: Facts, answers: Answers) -> list[str]:
    """What another goal would put first, where that is another plan."""
    found = []
    for goal in get_args(Goal):
        best = api.make_plans(facts, dataclasses.replace(answers, goal=goal))[0]
        if goal != answers.goal and best.fits and best.title != plans[0].title:
            found += _wrapped(f"--goal {goal}: {said(best.title)}", "  ", "    ")
    return [f"Another goal than {answers.goal} would pick", *found] if found else []


def _elsewhere(plans: Sequence[Plan], facts: Facts, answers: Answers) -> list[str]:
    """What would tune all weights, where this machine cannot."""
    found = api.smallest_for_full(plans, facts, answers)
    if found is None:
        return []
    name, plan = found
    need = gib_of(plan.memory.device_bytes, plan.memory.device_budget_bytes)
    title = said(plan.title)
    text = f"Smallest shipped machine that tunes all weights: {name}, {title}, {need} per rank"
    return _wrapped(said(text), "", "  ")


def _time(plan: Plan) -> list[str]:
    """What a step is spent on, the largest first."""
    if plan.step_seconds is None:
        return []
    terms = sorted(plan.step_terms, key=lambda term: -term[1])
    shares = [f"{said(name)} {percent(value, plan.step_seconds)}" for name, value in terms]
    return [f"Predicted step, {duration(plan.step_seconds)}", *_wrapped(joined(shares), "  ")]


def _memory(plan: Plan) -> list[str]:
    memory = plan.memory
    host = f"host, all ranks together: {gib_of(memory.host_bytes, memory.host_budget_bytes)}"
    disk = f"disk, with all checkpoints: {gib_of(memory.disk_bytes, memory.disk_budget_bytes)}"
    colon = mark(": ")
    parts = [
        f"{said(part.name)}{colon}{gib(part.bytes)} = {said(part.formula)}" for part in memory.parts
    ]
    left = [f"not in it: {line}" for line in memory.left_out]
    peaks = joined(f"{said(name)} {gib(size)}" for name, size in memory.moments)
    more = [f"tensors at the peak of each moment: {peaks}"] if peaks else []
    lines = [*parts, *map(said, (*more, host, disk, *left))]
    return [wrapped for line in lines for wrapped in _wrapped(line, "  ", "    ")]


def _ladder(plan: Plan) -> list[str]:
    """The rungs in a few words each."""
    if not plan.rungs:
        return []
    found = ["If memory runs out after all, in this order"]
    for number, rung in enumerate(plan.rungs, start=1):
        exact = "" if number <= plan.exact_rungs else "; the optimizer's states start anew"
        found += _wrapped(f"{number}. {said(_rung(rung) + exact)}", "  ", "     ")
    return found


def _rung(rung: Spec) -> str:
    training, parallel = rung.training, rung.parallel
    again = "recomputing" if training.gradient_checkpointing else "keeping activations"
    moved = "" if parallel.offload == "none" else f", {parallel.offload} offloaded"
    return (
        f"{training.per_device_train_batch_size} × {training.gradient_accumulation_steps}, "
        f"{again}, {parallel.strategy}{moved}, {training.optim}"
    )


def _decision(decision: Decision) -> list[str]:
    """A setting with its reason; then what was not chosen, what would change it, who says so."""
    others, colon = decision.alternatives, mark(": ")
    head = f"{decision.setting} = {setting(decision.value)}{colon}{said(decision.reason)}"
    more = [f"{said('not')} {setting(other.value)}{colon}{said(other.why_not)}" for other in others]
    more += [said(f"changes with {decision.changes_with}")] if decision.changes_with else []
    more += [said(f"source: {decision.source}")] if decision.source else []
    return [
        *_wrapped(head, "  ", "    "),
        *(w for m in more for w in _wrapped(m, "    ", "      ")),
    ]
