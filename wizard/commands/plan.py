"""`tunewright plan`: every way to train this model on this machine, and why."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from wizard import api, machines
from wizard.answers import Answers, Goal
from wizard.commands import choosing, output
from wizard.commands.planned import fit, in_short, lines, spent, trace_lines, within
from wizard.commands.terminal import print_exactly, print_json, say
from wizard.facts import Facts
from wizard.language import mark, said
from wizard.problem import Problem, ProblemError
from wizard.wording import gib_of, how_to_know_speeds

if TYPE_CHECKING:
    from wizard.plan import Plan
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    choosing.add_arguments(parser)
    choosing.add_nodes(parser)
    output.add_format(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="also memory part by part, each setting with its reason, and the pick of other goals",
    )
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
        for line in _told(plans, facts, answers, whole=args.all):
            say(line)
        for line in trace_lines(plans[0], traced) if traced else ():
            say(line)
    api.best(plans)
    return _fits_traced(plans[0], traced)


def _told(plans: Sequence[Plan], facts: Facts, answers: Answers, *, whole: bool) -> list[str]:
    """The plans in words: in short, or all that is known of them."""
    further = _without_fixed(plans, facts, answers)
    if not whole:
        return in_short(plans, facts, further)
    further += _other_goals(plans, facts, answers)
    further += _elsewhere(plans, facts, answers)
    return lines(plans, facts, further)


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
    takes = spent(best)
    text = f"Without {names} fixed: {best.title}, {fit(best)}{f', {takes}' if takes else ''}"
    return within(said(text), "", "  ")


def _other_goals(plans: Sequence[Plan], facts: Facts, answers: Answers) -> list[str]:
    """What another goal would put first, where that is another plan."""
    from wizard.plan import speeds_unknown  # loaded by then

    found = []
    for goal in get_args(Goal):
        made = api.make_plans(facts, dataclasses.replace(answers, goal=goal))
        best = made[0]
        if goal == "fastest" != answers.goal and speeds_unknown(made):
            how = how_to_know_speeds(facts.machine)
            found += within(
                f"--goal fastest{mark(': ')}{said(f'speeds are unknown; {how}')}", "  ", "    "
            )
        elif goal != answers.goal and best.fits and best.title != plans[0].title:
            found += within(f"--goal {goal}{mark(': ')}{said(best.title)}", "  ", "    ")
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
    return within(said(text), "", "  ")
