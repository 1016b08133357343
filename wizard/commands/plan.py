"""`tunewright plan`: every way to train this model on this machine, and why."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wizard import api
from wizard.commands import choosing
from wizard.commands.terminal import print_exactly, print_json, say
from wizard.facts import Facts
from wizard.wording import counted, gib, setting

if TYPE_CHECKING:
    from wizard.plan import Plan

HELP = "compare every way to train, with predicted memory and reasons"
DESCRIPTION = "Nothing is started or written."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the command."""
    choosing.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    answers = choosing.answers_from(args)
    facts = api.facts_for(answers.model, answers.data, machine=args.machine, settings=answers.fixed)
    plans = api.make_plans(facts, answers)
    if args.dry_run:
        print_exactly(script_text(plans, facts, answers.run_name, answers.output))
        return 0
    if args.json:
        print_json({"schema": 1, "plans": [as_json(plan) for plan in plans]})
    else:
        for line in lines(plans, facts):
            say(line)
    api.best(plans)
    return 0


def script_text(plans: Sequence[Plan], facts: Facts, name: str | None, output: str | None) -> str:
    """The `run.sh` that `run` would write and start."""
    plan = api.best(plans)
    name = name or api.run_name(plan, api.runs_root(output))
    return api.render(plans, plan, facts, name)["run.sh"]


def as_json(plan: Plan) -> dict[str, Any]:
    """A plan as plain values."""
    return {
        "title": plan.title,
        "fits": plan.fits,
        "over_bytes": plan.memory.over_bytes,
        "memory": dataclasses.asdict(plan.memory),
        "steps": plan.steps,
        "why": plan.why,
        "problems": [dataclasses.asdict(problem) for problem in plan.problems],
        "decisions": [dataclasses.asdict(decision) for decision in plan.decisions],
        "spec": plan.spec.model_dump(),
    }


def lines(plans: Sequence[Plan], facts: Facts) -> list[str]:
    """The plans as text: a table, then the first one in full."""
    table = [f"{number}. {plan.title}: {_fit(plan)}" for number, plan in enumerate(plans, start=1)]
    return [*_subject(facts), *table, *_detail(plans[0])]


def _subject(facts: Facts) -> list[str]:
    found = [f"Machine {facts.machine}, not this one"] if facts.machine else []
    if facts.model is not None:
        count = facts.model.parameters
        size = f"{count / 1e6:,.1f} M parameters" if count else "size unknown"
        found.append(f"Model {facts.model.name}: {size} (from {facts.model.source})")
    if facts.dataset is not None:
        dropped, rows = facts.dataset.dropped_rows, counted(facts.dataset.rows, "row")
        found.append(
            f"Data {facts.dataset.path}: {rows}, {facts.dataset.format}"
            + (f", {dropped:,} not usable" if dropped else "")
        )
        found.extend(f"  {problem}" for problem in facts.dataset.problems)
    return found


def _fit(plan: Plan) -> str:
    memory = plan.memory
    spec = plan.spec
    need = f"{gib(memory.device_bytes)} of {gib(memory.device_budget_bytes)} per rank"
    batch = (
        f"{spec.training.per_device_train_batch_size} × "
        f"{spec.training.gradient_accumulation_steps} × {spec.parallel.num_devices} "
        f"= {counted(spec.training.effective_batch_size, 'row')} a step"
    )
    errors = [str(p) for p in plan.problems if p.severity == "error"]
    if plan.fits:
        return f"fits, {need} predicted, {batch}"
    if errors:
        return f"no, {errors[0]}"
    return f"no, {gib(memory.over_bytes)} over {memory.over_where}; {need}"


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
    return [f"({problem.severity}) {problem}" for problem in plan.problems]


def _detail(plan: Plan) -> list[str]:
    steps = counted(plan.steps, "step") if plan.steps is not None else "steps unknown"
    return [
        f"Why 1 ({steps})",
        *(f"  {line}" for line in plan.why),
        "Predicted memory of one rank",
        *(f"  {part.name}: {gib(part.bytes)} = {part.formula}" for part in plan.memory.parts),
        *(f"  not in it: {line}" for line in plan.memory.left_out),
        "Settings",
        *(
            f"  {decision.setting} = {setting(decision.value)}: {decision.reason}"
            for decision in plan.decisions
        ),
        *warnings(plan),
    ]
