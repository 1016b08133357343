"""Facts + Answers → ranked Plans. Pure: reads no file, asks no device."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from wizard.answers import Answers
from wizard.facts import Facts
from wizard.plan import Plan
from wizard.planner.candidates import ADAPTER_SETTINGS, Candidate, candidates
from wizard.planner.defaults import WITHOUT_SDPA
from wizard.planner.making import Refusal, make
from wizard.planner.pool import choose
from wizard.planner.ranking import best_variant, ranked, worth_trying
from wizard.planner.refusals import absent_modules, too_many_dropped
from wizard.planner.shortfall import with_ways_out
from wizard.planner.stage import as_trained
from wizard.planner.timing import Clock
from wizard.problem import Problem, ProblemError

DECIDES_WAYS = (
    *("method", "strategy", "offload", "offload_device", "nvme_path", "num_devices"),
    *("devices_per_rank", "device_kind", *sorted(ADAPTER_SETTINGS)),
)


def plans(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
    """Every way to train here that the answers allow, best first; what does not fit comes last.

    Raises ProblemError when there is nothing to plan (exit code 2), too few rows (4), a device
    that is not there (6), or answers that contradict each other (2).
    """
    with _collector_paused():
        return _plans(facts, answers)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without garbage collection: a search makes a million small objects, and a quarter of its
    time went into looking for cycles among them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _plans(facts: Facts, answers: Answers) -> tuple[Plan, ...]:
    _check(facts, answers)
    pool = choose(facts, answers)
    facts = as_trained(facts, answers)
    clock = Clock(facts, pool)
    assert facts.model is not None
    made: list[Plan] = []
    refusals: list[Refusal] = []
    for variants in candidates(pool, answers.fixed, answers.goal):
        if not worth_trying(variants[0], made, answers):
            continue
        found: list[Plan] = []
        for one in variants:
            result = make(one, facts, answers, pool, clock)
            if isinstance(result, Refusal):
                refusals.append(result)
                continue
            found.append(result)
            if result.fits and _enough(one, answers):
                break
        if found:
            made.append(with_ways_out(best_variant(found, answers.goal), facts.model))
    if not made:
        raise ProblemError(_nothing(refusals, answers))
    return ranked(made, facts, answers)


def _enough(found: Candidate, answers: Answers) -> bool:
    """Whether variants on more devices cannot be better than this one, which fits."""
    if answers.goal == "least-memory":
        return False
    return answers.goal == "fewest-devices" or found.devices_per_rank > 1


def _check(facts: Facts, answers: Answers) -> None:
    problem = (
        _missing(facts)
        or _contradicted(facts, answers)
        or _unsupported_attention(facts, answers)
        or _unusable(facts)
        or _refused_later(facts, answers)
    )
    if problem:
        raise ProblemError(problem)


def _missing(facts: Facts) -> Problem | None:
    if facts.model is None:
        return Problem(what="no model is chosen", fix="name a folder or a hub id", exit_code=2)
    if facts.dataset is None:
        fix = "name a JSON or JSON Lines file"
        return Problem(what="no data is chosen", fix=fix, exit_code=2)
    return None


def _contradicted(facts: Facts, answers: Answers) -> Problem | None:
    """A plan is made from what was read; a setting that names something else is no plan of ours."""
    model, data = facts.model, facts.dataset
    assert model is not None
    assert data is not None
    read = (("model", (model.name, model.path)), ("data", (data.path,)))
    for setting, names in read:
        wanted = answers.settings.get(setting, names[0])
        if wanted not in names:
            return Problem(
                what=f"{wanted} is fixed, but the plan is made for {names[0]}",
                where=setting,
                fix=f"name it as the {setting}, or leave the setting out",
                exit_code=2,
            )
    return None


def _unsupported_attention(facts: Facts, answers: Answers) -> Problem | None:
    """The library refuses it only when the model loads, after all has been fetched."""
    assert facts.model is not None
    architecture = facts.model.architecture
    if answers.fixed.get("attn_implementation") != "sdpa" or architecture not in WITHOUT_SDPA:
        return None
    return Problem(
        what=f"transformers has no sdpa attention for {architecture}",
        where="attn_implementation",
        fix="set attn_implementation=eager, or leave it to the planner",
        exit_code=2,
    )


def _unusable(facts: Facts) -> Problem | None:
    model, data = facts.model, facts.dataset
    if data is not None and data.rows < 1:
        fix = "give a file with rows"
        return Problem(what="no row can be used", where=data.path, fix=fix, exit_code=4)
    if model is not None and model.quantized:
        return Problem(
            what=f"already quantised ({model.quantized}), so it cannot be trained here",
            where=model.name,
            fix="give the original model; method=qlora makes it 4-bit while it loads",
            exit_code=2,
        )
    return None


def _refused_later(facts: Facts, answers: Answers) -> Problem | None:
    """The trainer would refuse them as well, but only after the model is there."""
    assert facts.model is not None
    assert facts.dataset is not None
    fixed = answers.fixed
    return too_many_dropped(facts.dataset, fixed) or absent_modules(facts.model, fixed)


def _nothing(refusals: list[Refusal], answers: Answers) -> Problem:
    """The refusal of the candidate that came closest."""
    if not refusals:
        return Problem(
            what="what is fixed allows no way to train on these devices",
            where=_in_words(answers),
            fix="leave one of them to the planner",
            exit_code=2,
        )
    return max(refusals, key=lambda refusal: refusal.weight).problem


def _in_words(answers: Answers) -> str:
    """What is fixed of the settings that say which ways to train there are, and by whom."""
    fixed = [name for name in DECIDES_WAYS if name in answers.fixed]
    said = [f"{name}={answers.fixed[name]}{_whose(name, answers)}" for name in fixed]
    said += ["--devices"] if answers.devices else []
    return ", ".join(said)


def _whose(name: str, answers: Answers) -> str:
    return "" if name in answers.settings else f" (preset {answers.preset})"
