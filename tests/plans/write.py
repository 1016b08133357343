"""Writes the golden plans anew: `python -m tests.plans.write`."""

from __future__ import annotations

from tests.planning import GOLDEN, facts
from tests.plans import FOLDER, as_text, machines
from wizard.answers import Answers
from wizard.planner import plans

if __name__ == "__main__":
    for machine, name in GOLDEN:
        path = FOLDER / f"{machine}-{name.rsplit('/', 1)[1]}.txt"
        path.write_text(as_text(plans(facts(machine, name), Answers())), encoding="utf-8")
    machines.FILE.write_text(machines.text(facts()), encoding="utf-8")
