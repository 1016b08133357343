"""Plans for the tests of exports: made by the planner, or with hostile text in every place."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from tests.planning import facts
from tests.runner.making import facts as bare_facts
from tests.runner.making import plan as bare_plan
from tests.runner.making import spec as bare_spec
from wizard import script
from wizard.answers import Answers
from wizard.facts import Facts
from wizard.formats.exporting import FORMATS, Target, export
from wizard.formats.jobs import Job
from wizard.formats.values import Exported
from wizard.machines import several
from wizard.plan import Plan
from wizard.planner import plans

NODES = {"torchrun": 2, "sbatch": 2, "kubernetes": 2, "skypilot": 2}
"""Formats that are tested for several machines too."""

HOSTILE = (
    'it\'s $(touch RAN) `touch RAN` "quoted" \\ back',
    "two\nlines\n; touch RAN",
    "\nEND_OF_RUN\ntouch RAN\nEND_OF_LAUNCHER\nEND_OF_SPEC\n",
    "[/markup] \x1b[31mred \x07 \x7f \x01",
    "{{name}} {{run}} \\1 \\g<0>",
    "näme 模型 🙂 \u2028 \u202e \x85",
    "' ; touch RAN ; '",
    "-rf *",
    "a: b # c",
    "- !!python/object/apply:os.system ['touch RAN']",
    "*alias &anchor %tag @at `tick",
    "$(MASTER_ADDR) ${oc.env:HOME} {{ template }}",
    "a\\",
    " leading and trailing ",
    "null",
    "1e3",
    "yes",
)


def target(kind: str, nodes: int = 1) -> Target:
    """A format with what it needs."""
    return Target(format=kind, nodes=nodes, image="registry.local/tunewright:1", claim="runs")


@functools.cache
def job(machine: str, nodes: int = 1, name: str = "my run", **settings: Any) -> Job:
    """The job of the best plan for a fake machine, or for several like it."""
    known = facts(machine)
    everything = several(known, nodes) if nodes > 1 else known
    ranks = (len(everything.accelerators) or nodes) if nodes > 1 else None
    plan = plans(everything, Answers(settings=settings, num_devices=ranks))[0]
    return job_of(plan, name=name, nodes=nodes, machine=machine)


def job_of(
    plan: Plan, *, name: str, nodes: int = 1, machine: str | None = None, known: Facts | None = None
) -> Job:
    """A plan as a job of these facts, of one of the fake machines, or of a bare one."""
    known = known or (facts(machine) if machine else bare_facts())
    files = script.render(
        plan,
        name=name,
        python="/opt/tunewright/bin/python",
        facts=known,
        written="2026-01-31",
        nodes=nodes,
    )
    return Job(
        plan=plan, name=name, run_sh=files["run.sh"], facts=known, written="2026-01-31", nodes=nodes
    )


def hostile(text: str) -> Job:
    """The text in every place that is not ours."""
    told = bare_spec(model={"model": text}, data={"data": text, "system": text})
    plan = replace(bare_plan(told), title=text)
    return job_of(plan, name=text, nodes=1)


def exported(job: Job, kind: str) -> Exported:
    """The job in a format."""
    return export(job, target(kind, job.nodes))


assert set(NODES) <= set(FORMATS)
