"""Code that comes with a model: who says it may run, and where that is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.automap import files
from tests.planning import facts, fixed
from wizard import script
from wizard.answers import Answers
from wizard.plan import Plan
from wizard.planner import plans
from wizard.probe.model import of_config

COMMIT = "0123456789abcdef0123456789abcdef01234567"
AUTO_MAP = {
    "AutoConfig": "configuration_x.X",
    "AutoModelForCausalLM": "modeling_x.ForCausalLM",
    "AutoTokenizer": [None, "words_x.Fast"],
}


def planned(answers: Answers, *, own_code: tuple[str, ...] = ("modeling_x.py",)) -> Plan:
    known = facts()
    assert known.model is not None
    model = replace(known.model, own_code=own_code, commit=COMMIT)
    return plans(replace(known, model=model), answers)[0]


def written(plan: Plan) -> str:
    files = script.render(plan, name="r", python="/python", facts=facts(), written="today")
    return files["run.sh"]


def test_a_configuration_names_the_files_of_its_code() -> None:
    said = {"model_type": "x", "hidden_size": 8, "auto_map": AUTO_MAP}
    model = of_config("org/m", said)
    assert model.own_code == ("configuration_x.py", "modeling_x.py", "words_x.py")


@pytest.mark.parametrize("odd", [None, [], {"auto_map": 1}, {"auto_map": {"AutoConfig": 1}}])
def test_a_configuration_without_code_or_sense_names_none(odd: object) -> None:
    assert files(odd) == ()


def test_nobody_but_the_user_lets_it_run() -> None:
    plan = planned(Answers())
    assert plan.spec.model.trust_remote_code is False
    (decision,) = (d for d in plan.decisions if d.setting == "trust_remote_code")
    assert decision.reason == "modeling_x.py may run once you have read it"


def test_the_answer_pins_the_commit_and_is_shown_in_plan_and_script() -> None:
    plan = planned(fixed(trust_remote_code=True))
    assert plan.spec.model.revision == COMMIT
    (problem,) = (p for p in plan.problems if p.where == "trust_remote_code")
    assert problem.what == "code that comes with the model runs: modeling_x.py"
    assert problem.fix == f"read it first: {plan.spec.model.model} at {COMMIT}"
    text = written(plan)
    comment = f"# code  Python files that come with {plan.spec.model.model} at commit {COMMIT}"
    assert comment in text
    assert "trust_remote_code = true" in text
    assert comment not in written(planned(Answers()))


def test_an_answer_that_lets_nothing_run_is_said() -> None:
    plan = planned(fixed(trust_remote_code=True), own_code=())
    (problem,) = (p for p in plan.problems if p.where == "trust_remote_code")
    assert problem.what == "unused: no code comes with the model"
