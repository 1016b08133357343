"""What is wrong with a plan that can be made, or worth knowing before it runs."""

from __future__ import annotations

from collections.abc import Sequence

from engine import rules
from engine.spec import ZERO_STAGES, Spec
from wizard.answers import Answers
from wizard.facts import Facts, Model
from wizard.planner import defaults, recipe
from wizard.planner.batch import FEWEST_STEPS
from wizard.planner.candidates import ADAPTER_SETTINGS
from wizard.planner.recipe import ATTENTION, EVERYTHING
from wizard.planner.simulated import ADAPTED_EXPERTS
from wizard.problem import Problem
from wizard.wording import counted, gib

RATE_TIMES = 50
"""Times the usual learning rate from which one is told; a search tries less."""


def problems(
    spec: Spec, facts: Facts, steps: int, answers: Answers, host_bytes: int
) -> list[Problem]:
    """Errors that keep it from being launched, and warnings."""
    found = _absent_packages(spec, facts)
    if spec.method.method == "qlora" and facts.torch and facts.torch.bnb_4bit is False:
        found.append(_no_4bit(facts.torch.bnb_error))
    lacks = facts.software.cpu_adam_lacks or ()
    if lacks and steps_on_host(spec):
        found.append(_no_cpu_adam(lacks))
    assert facts.model is not None
    found += _own_code(spec, facts.model)
    unused = ADAPTER_SETTINGS & set(answers.preset_settings)
    if unused and spec.method.method == "full":
        found.append(_not_carried(sorted(unused), answers))
    if architecture(facts) in ADAPTED_EXPERTS:
        found += _no_dropout(spec)
    most_tokens = defaults.most_tokens(spec, facts)
    if spec.parallel.offload != "none" and facts.host.memory_available_bytes is None:
        found.append(_unknown_host(host_bytes))
    if facts.dataset is not None:
        found += facts.dataset.warnings
    if spec.training.learning_rate > RATE_TIMES * _usual_rate(spec, facts):
        found.append(_high_rate(spec.training.learning_rate, _usual_rate(spec, facts)))
    if steps < FEWEST_STEPS:
        found.append(_few(steps, by_data=spec.training.max_steps < 0))
    if most_tokens > spec.data.max_length and spec.method.stage != "pretrain":
        found.append(_may_be_cut(spec.data.max_length, most_tokens))
    positions = facts.model.max_positions if facts.model else None
    if positions is not None and spec.data.max_length > positions:
        found.append(_beyond_positions(spec.data.max_length, positions))
    # A broken driver must not turn into a CPU run that nobody asked for.
    if spec.parallel.device_kind == "cpu" and answers.fixed.get("device_kind") != "cpu":
        found += [p for p in facts.problems if p.severity == "error" and p.exit_code == 6]
    return found


def _usual_rate(spec: Spec, facts: Facts) -> float:
    """The rate that the planner would take."""
    method, parameters = spec.method.method, facts.model.parameters if facts.model else None
    rate = recipe.stage_rate(spec.method.stage, method) or recipe.learning_rate(method, parameters)
    return rate.value


def _high_rate(value: float, usual: float) -> Problem:
    return Problem(
        what=f"{value:g} is {value / usual:,.3g} times the usual {usual:g}: the loss will hardly "
        "stay finite",
        where="learning_rate",
        fix=f"learning_rate={usual:g}, unless you mean it",
        severity="warning",
    )


def architecture(facts: Facts) -> str | None:
    """`model_type` of the model that is planned for."""
    return facts.model.architecture if facts.model else None


def _no_dropout(spec: Spec) -> list[Problem]:
    """What PEFT refuses of an adapter on routed experts."""
    method = spec.method
    if method.method == "full" or method.target_modules != EVERYTHING:
        return []
    asked = [
        name
        for name, wanted in (
            ("lora_dropout", method.lora_dropout > 0),
            ("use_dora", method.use_dora),
        )
        if wanted
    ]
    return [
        Problem(
            what=f"PEFT has no {name} for adapters on routed experts",
            where=name,
            fix=f"leave it out, or target_modules={ATTENTION}",
        )
        for name in asked
    ]


def _beyond_positions(max_length: int, positions: int) -> Problem:
    return Problem(
        what=f"the model was made for {positions:,} positions, and max_length is {max_length:,}: "
        "longer rows reach places it has never learnt",
        where="max_length",
        fix=f"max_length={positions}, unless you mean to extend it",
        severity="warning",
    )


def steps_on_host(spec: Spec) -> bool:
    """Whether DeepSpeed's own optimizer for CPUs, which is compiled, steps what is offloaded."""
    parallel = spec.parallel
    by_deepspeed = parallel.offload != "none" and parallel.strategy in ZERO_STAGES
    return by_deepspeed and parallel.device_kind != "cpu"


def _no_4bit(error: str | None) -> Problem:
    return Problem(
        what=f"a 4-bit layer does not run on this device{f': {error}' if error else ''}",
        where="bitsandbytes",
        fix="`tunewright doctor` says more; method=lora needs no 4-bit weights",
    )


def _no_cpu_adam(lacks: Sequence[str]) -> Problem:
    return Problem(
        what=f"DeepSpeed's optimizer on the host cannot be built here: {lacks[0]} missing",
        where="offload",
        fix="`tunewright doctor` says how to put it right; FSDP's offload needs no compiler",
    )


def _absent_packages(spec: Spec, facts: Facts) -> list[Problem]:
    return [
        Problem(
            what=f"{package} is not installed, and {why}",
            where=package,
            fix=f"pip install {package}",
        )
        for package, why in rules.packages(spec).items()
        if facts.software.versions.get(package, "") is None
    ]


def _own_code(spec: Spec, model: Model) -> list[Problem]:
    return _model_code(spec, model) + [
        Problem(
            what=f"code of yours runs: {kind} from {', '.join(named)}",
            where=f"plugins.{kind}",
            fix="a copy of the file is kept with the run",
            severity="info",
        )
        for kind, named in spec.plugins.named.items()
    ]


def _model_code(spec: Spec, model: Model) -> list[Problem]:
    """That code of the model's runs, or that there is none to run."""
    if not spec.model.trust_remote_code:
        return []
    where = "trust_remote_code"
    if not model.own_code:
        what = "unused: no code comes with the model"
        return [Problem(what=what, where=where, fix="leave it out", severity="warning")]
    at = f" at {spec.model.revision}" if spec.model.revision else ""
    return [
        Problem(
            what=f"code that comes with the model runs: {', '.join(model.own_code)}",
            where=where,
            fix=f"read it first: {spec.model.model}{at}",
            severity="info",
        )
    ]


def _not_carried(unused: list[str], answers: Answers) -> Problem:
    return Problem(
        what="unused: method=full has no adapter",
        where=f"{', '.join(unused)} of the preset {answers.preset}",
        severity="warning",
    )


def _unknown_host(host_bytes: int) -> Problem:
    return Problem(
        what=f"this machine's host memory is unknown, and the plan needs {gib(host_bytes)} of it",
        where="offload",
        fix="tunewright probe -o machine.json on the machine itself knows it",
        severity="warning",
    )


def _few(steps: int, *, by_data: bool) -> Problem:
    return Problem(
        what=f"only {counted(steps, 'optimizer step')}: little will be learnt",
        where="effective_batch_size" if by_data else "max_steps",
        fix="more rows, more epochs or a smaller effective_batch_size"
        if by_data
        else "a larger max_steps, or none, so that the epochs decide",
        severity="warning",
    )


def _may_be_cut(max_length: int, most_tokens: int) -> Problem:
    return Problem(
        what=f"the longest row is estimated at up to {most_tokens:,} tokens: what is over "
        f"{max_length:,} is cut, and a cut answer does not teach to stop",
        where="max_length",
        fix="a larger max_length keeps it whole; the run says how many rows were cut",
        severity="warning",
    )
