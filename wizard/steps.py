"""Which pages are still to be asked, as a pure function of what is known and answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wizard.answers import Answers
from wizard.facts import Dataset, Facts, Model

if TYPE_CHECKING:
    from wizard.plan import Plan


class Step(Enum):
    """A page of the wizard, in the order it is asked."""

    HARDWARE = "Hardware"
    MODEL = "Model"
    DATA = "Data"
    PLAN = "Plan"
    TUNE = "Tune"
    REVIEW = "Review"
    RUN = "Run"
    FINISH = "Finish"

    @property
    def number(self) -> int:
        """1 to 8, as the header counts."""
        return ORDER.index(self) + 1


ORDER = tuple(Step)
DONE = "✓"
"""The mark of a page that was answered; the header has one for terminals without it."""
_BASIS = frozenset({Step.HARDWARE, Step.MODEL, Step.DATA})
BEFORE_RUN = frozenset(ORDER[: ORDER.index(Step.RUN)])
"""Pages that lead to a run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A plan and the answers it was made from."""

    answers: Answers
    plan: Plan
    others: tuple[Plan, ...] = ()
    """The plans it was chosen from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """A machine, and which of its devices a run may use."""

    facts: Facts
    devices: tuple[int, ...] | None = None
    """Indices; None leaves it to the planner."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Data:
    """Data that was read, and the settings chosen while looking at it."""

    dataset: Dataset
    settings: Mapping[str, Any] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    """Settings that were chosen for other data and do not go with this."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InForeground:
    """A run that was written and is started in the terminal, once the wizard is gone."""

    run: Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """The result of a run is left because the run goes on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GoTo:
    """A page is left for one that was there before."""

    step: Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    """A page is left because its answers were replaced by those of a preset."""

    answers: Answers
    so_far: object = None
    """What the page would have been left with, as far as it was known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """Where a user is: what is known, what was answered, which pages are behind."""

    facts: Facts | None = None
    answers: Answers = field(default_factory=Answers)
    plan: Plan | None = None
    others: tuple[Plan, ...] = ()
    """The plans it was chosen from."""
    run: Path | None = None
    done: frozenset[Step] = frozenset()
    seen: frozenset[Step] = frozenset()
    """Pages that were answered, also those behind a page gone back to."""
    stale: frozenset[Step] = frozenset()
    """Answers that rest on something that was changed since."""

    @property
    def marks(self) -> dict[Step, str]:
        """Step → DONE for answered, `!` for an answer whose ground has changed."""
        return {**dict.fromkeys(self.seen, DONE), **dict.fromkeys(self.stale, "!")}

    @property
    def pending(self) -> tuple[Step, ...]:
        """Pages still to ask."""
        return steps(self.facts, self.answers, self.done, run=self.run)


def steps(
    facts: Facts | None,
    answers: Answers,
    done: frozenset[Step] = frozenset(),
    *,
    run: Path | None = None,
) -> tuple[Step, ...]:
    """Pages still to ask, in order: those not done, and those whose ground is missing.

    A plan rests on machine, model and data: while one of them is open, so is everything after.
    Once there is a run, only the pages about it are left.
    """
    if run is not None:
        return tuple(s for s in ORDER if s not in BEFORE_RUN and s not in done)
    missing = _missing(facts, answers)
    unsettled = {s for s in ORDER if s not in done or s in missing}
    if unsettled & _BASIS:
        unsettled |= set(ORDER) - _BASIS
    return tuple(s for s in ORDER if s in unsettled)


def _missing(facts: Facts | None, answers: Answers) -> frozenset[Step]:
    if facts is None:
        return _BASIS
    missing = set()
    if facts.model is None or facts.model.name != answers.model:
        missing.add(Step.MODEL)
    if facts.dataset is None or facts.dataset.path != answers.data:
        missing.add(Step.DATA)
    return frozenset(missing)


def begin(facts: Facts | None, answers: Answers, run: Path | None = None) -> Walk:
    """A walk in which what was already given is not asked again."""
    given = frozenset({Step.MODEL, Step.DATA}) - _missing(facts, answers)
    return Walk(facts=facts, answers=answers, run=run, done=given)


def answered(walk: Walk, step: Step, answer: object) -> Walk:
    """The walk after a page was left with its answer."""
    after = _with(walk, answer)
    stale = (after.stale | _shaken(walk, after)) - {step}
    if isinstance(answer, Chosen) and walk.plan and _way(walk.plan) == _way(answer.plan):
        stale = frozenset()
    return replace(after, done=after.done | {step}, seen=walk.seen | {step}, stale=stale)


def _with(walk: Walk, answer: object) -> Walk:
    match answer:
        case Machine(facts=facts, devices=devices):
            known = walk.facts
            facts = replace(
                facts,
                model=known.model if known else facts.model,
                dataset=known.dataset if known else facts.dataset,
            )
            return replace(walk, facts=facts, answers=replace(walk.answers, devices=devices))
        case Model() if walk.facts:
            answers = replace(walk.answers, model=answer.name)
            return replace(walk, facts=replace(walk.facts, model=answer), answers=answers)
        case Data(dataset=dataset, settings=chosen, forgotten=forgotten) if walk.facts:
            kept = {k: v for k, v in walk.answers.settings.items() if k not in forgotten}
            answers = replace(walk.answers, data=dataset.path, settings={**kept, **chosen})
            return replace(walk, facts=replace(walk.facts, dataset=dataset), answers=answers)
        case Answers():
            return replace(walk, answers=answer)
        case Chosen():
            return replace(walk, answers=answer.answers, plan=answer.plan, others=answer.others)
        case Path():
            return replace(walk, run=answer)
        case InForeground(run=run):
            return replace(walk, run=run, done=frozenset(Step))
    return walk


def _shaken(before: Walk, after: Walk) -> frozenset[Step]:
    """Answered pages behind the basis, when what a plan rests on became another."""
    if before.plan is None or _basis(before) == _basis(after):
        return frozenset()
    return before.seen & BEFORE_RUN - _BASIS


def _basis(walk: Walk) -> tuple[object, ...]:
    """Machine, devices, model and data; readings that change by themselves are left out."""
    facts, answers = walk.facts, walk.answers
    kinds = [(d.kind, d.name, d.memory_total_bytes) for d in facts.devices] if facts else []
    return (kinds, answers.devices, answers.model, answers.data, facts and facts.model)


def keeping(walk: Walk, so_far: object) -> Walk:
    """The walk with what a page had found out when it was left without its answer."""
    after = _with(walk, so_far)
    return replace(after, stale=after.stale | _shaken(walk, after))


def with_typed(answers: Answers, step: Step, text: str) -> Answers:
    """The answers with what stands unread in a page's field; an empty text forgets it."""
    others = {name: typed for name, typed in answers.typed.items() if name != step.value}
    return replace(answers, typed={**others, step.value: text} if text else others)


def back(walk: Walk, step: Step) -> Walk:
    """The walk one page earlier; later answers stay and are offered again."""
    return back_to(walk, ORDER[max(ORDER.index(step) - 1, 0)])


def back_to(walk: Walk, earlier: Step) -> Walk:
    """The walk at an earlier page; later answers stay and are offered again."""
    return replace(walk, done=walk.done - set(ORDER[ORDER.index(earlier) :]))


def loaded(walk: Walk, step: Step, given: Loaded) -> Walk:
    """The walk with a preset's answers: at the same page, or at the plans where they rest on it.

    What the page had found out already is kept.
    """
    walk, answers = _with(walk, given.so_far), given.answers
    stale = walk.stale | (walk.seen & BEFORE_RUN - _BASIS)
    at = step if step.number < Step.PLAN.number else Step.PLAN
    return back_to(replace(walk, answers=answers, stale=stale), at)


def skipped(walk: Walk, before: Step | None, step: Step) -> tuple[Step, ...]:
    """Pages between two that are shown which are not asked because they were given."""
    first = 0 if before is None else ORDER.index(before) + 1
    between = ORDER[first : ORDER.index(step)]
    return tuple(one for one in between if one in walk.done and one not in walk.seen)


def again(chosen: Plan, plans: Iterable[Plan]) -> Plan | None:
    """The plan that trains the same way as `chosen` after planning anew; None if it is gone."""
    return next((plan for plan in plans if _way(plan) == _way(chosen)), None)


def _way(plan: Plan) -> tuple[str, str, str, int]:
    parallel = plan.spec.parallel
    return (plan.spec.method.method, parallel.strategy, parallel.offload, parallel.num_devices)
