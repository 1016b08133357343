"""Spec without sizes → the micro-batch, checkpointing and optimizer that suit the goal and fit."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from engine import rules
from engine.spec import Spec
from wizard.facts import Model
from wizard.planner.batch import Batch
from wizard.planner.budgets import Budget
from wizard.planner.memory import could_fit, could_rest, fits
from wizard.planner.speed import Rates
from wizard.planner.timing import Clock

SMALLER_STATES = "adamw_bnb_8bit"
LEAST = "keeps every layer's activations: more memory"
"""Why the least memory recomputes."""
SAME_TIME = 0.03
"""Two sizes whose predicted times differ by less are as fast as each other."""

SIZES = (
    *("per_device_train_batch_size", "gradient_accumulation_steps"),
    *("gradient_checkpointing", "optim"),
)
SCHEDULE: Mapping[str, Any] = {
    "num_train_epochs": 1.0,
    "max_steps": -1,
    "learning_rate": 1e-4,
    "lr_scheduler_type": "linear",
    "min_lr_rate": 0.0,
    "warmup_ratio": 0.0,
    "weight_decay": 0.0,
    "seed": 0,
    "logging_steps": 1,
    "save_steps": 1,
    "save_total_limit": 1,
    "eval_steps": 1,
}
"""What neither the memory nor the time of a step depends on, as the search is given it: what is
found for one schedule holds for every other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What was chosen, and why not otherwise."""

    spec: Spec
    larger: int | None
    """Next larger micro-batch there is; None when this is the largest."""
    recompute_why: str
    states_why: str = ""
    """Why the optimizer's states are 8-bit; empty when they are not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizing:
    """The search over sizes of one candidate."""

    model: Model
    budget: Budget
    batch: Batch
    clock: Clock = field(compare=False)
    rates: Rates | None
    """The clock's for these devices: all that it reads beside the model and a spec."""
    least_memory: bool
    """Whether that is the goal; for all others sizes are the same."""
    checkpointing: bool | None
    """As it is fixed; None where it is not."""
    keeps_optimizer: bool
    """Whether the optimizer is fixed."""

    def choose(self, spec: Spec) -> Sizes:
        """The sizes for this spec; the smallest there are when nothing fits."""
        found = _chosen(self, _changed(spec, **SCHEDULE))
        sizes = {name: getattr(found.spec.training, name) for name in SIZES}
        return replace(found, spec=_changed(spec, **sizes))

    def search(self, spec: Spec) -> Sizes:
        """The same, searched for."""
        if self.least_memory:
            return self._least(spec)
        for optimizer in self._optimizers(spec):
            asked = _changed(spec, optim=optimizer)
            found = None
            if could_rest(asked, self.model, self.budget):
                found = self._fitting(asked)
            if found is not None:
                return self._told(found, spec)
        return self._told(self._smallest(spec), spec)

    def _optimizers(self, spec: Spec) -> Iterator[str]:
        yield spec.training.optim
        if not self.keeps_optimizer and smaller_states(spec) is not None:
            yield SMALLER_STATES

    def _least(self, spec: Spec) -> Sizes:
        states = None if self.keeps_optimizer else smaller_states(spec)
        return self._told(self._smallest(states or spec), spec)

    def _smallest(self, spec: Spec) -> Spec:
        return self._sized(spec, self.batch.micros[-1], recompute=True)

    def _fitting(self, spec: Spec) -> Spec | None:
        """The faster of the largest micro-batch that keeps all and the largest that recomputes."""
        keeps = self._largest(spec, recompute=False)
        if keeps is not None and self._is_fastest(keeps, spec):
            return keeps
        recomputes = self._largest(spec, recompute=True)
        if keeps is None or recomputes is None:
            return keeps or recomputes
        return self._faster(keeps, recomputes)

    def _is_fastest(self, keeps: Spec, spec: Spec) -> bool:
        """Whether no size that recomputes would be as fast, should it fit."""
        if keeps.training.per_device_train_batch_size == self.batch.micros[0]:
            return True
        kept = self.clock.step(keeps, relative=True)
        again = self._times(spec, recompute=True)
        return bool(kept and again and kept.seconds < min(again) * (1 - SAME_TIME))

    def _times(self, spec: Spec, *, recompute: bool) -> list[float]:
        """Seconds of a step at every size; none where they are unknown."""
        steps = [
            self.clock.step(self._sized(spec, micro, recompute=recompute), relative=True)
            for micro in self.batch.micros
        ]
        return [step.seconds for step in steps if step is not None]

    def _faster(self, keeps: Spec, recomputes: Spec) -> Spec:
        """The one whose step is shorter; as fast as each other, the one with larger parts."""
        kept = self.clock.step(keeps, relative=True)
        again = self.clock.step(recomputes, relative=True)
        if kept is None or again is None:
            sizes = [s.training.per_device_train_batch_size for s in (keeps, recomputes)]
            return keeps if sizes[0] == sizes[1] else recomputes
        return keeps if kept.seconds < again.seconds * (1 - SAME_TIME) else recomputes

    def _largest(self, spec: Spec, *, recompute: bool) -> Spec | None:
        """The largest micro-batch that fits: a smaller one never needs more.

        One without accumulation stands apart: no gradients wait while it runs.
        """
        if self.checkpointing not in (None, recompute):
            return None
        whole = [n for n in self.batch.micros if self.batch.accumulation(n) == 1]
        for sizes in (whole, self.batch.micros[len(whole) :]):
            found = self._first_fitting(spec, sizes, recompute=recompute)
            if found is not None:
                return found
        return None

    def _first_fitting(self, spec: Spec, sizes: Sequence[int], *, recompute: bool) -> Spec | None:
        """The first of sizes, largest first, that fits; bounds say where to begin."""

        def sized(micro: int) -> Spec:
            return self._sized(spec, micro, recompute=recompute)

        at = bisect_left(sizes, True, key=lambda n: could_fit(sized(n), self.model, self.budget))
        left = sizes[at:]
        found = first_of(left, lambda n: fits(sized(n), self.model, self.budget))
        return sized(left[found]) if found < len(left) else None

    def _sized(self, spec: Spec, micro: int, *, recompute: bool) -> Spec:
        return _changed(
            spec,
            per_device_train_batch_size=micro,
            gradient_accumulation_steps=self.batch.accumulation(micro),
            gradient_checkpointing=recompute if self.checkpointing is None else self.checkpointing,
        )

    def _told(self, found: Spec, asked: Spec) -> Sizes:
        micro = found.training.per_device_train_batch_size
        larger = [size for size in self.batch.micros if size > micro]
        eight_bit = found.training.optim != asked.training.optim
        return Sizes(
            spec=found,
            larger=min(larger, default=None),
            recompute_why=self._recompute_why(found),
            states_why="states of full size do not fit" if eight_bit else "",
        )

    def _recompute_why(self, found: Spec) -> str:
        """Why nothing else than what was chosen; empty when nothing is to be said."""
        if not found.training.gradient_checkpointing:
            return ""
        if self.least_memory:
            return LEAST
        kept = _changed(found, gradient_checkpointing=False)
        if fits(kept, self.model, self.budget):
            return "no faster"
        return "its activations do not fit at this micro-batch"


@lru_cache(maxsize=1024)
def _chosen(sizing: Sizing, spec: Spec) -> Sizes:
    """Another learning rate, or more epochs, need no other search."""
    return sizing.search(spec)


def first_of(sizes: Sequence[int], fitting: Callable[[int], bool]) -> int:
    """Place of the first that fits, where all after it do as well; their number where none does.

    Mostly it is the first of all, which is asked before halves find another one.
    """
    if sizes and fitting(sizes[0]):
        return 0
    return min(len(sizes), 1 + bisect_left(sizes[1:], True, key=fitting))


def smaller_states(spec: Spec) -> Spec | None:
    """The spec with an optimizer of 8-bit states; None where that saves nothing or is refused."""
    alone = spec.parallel.strategy in ("single", "ddp", "layer_split")
    if spec.method.method != "full" or not alone or spec.parallel.device_kind != "cuda":
        return None
    changed = _changed(spec, optim=SMALLER_STATES)
    return None if rules.check(changed) else changed


def _changed(spec: Spec, **values: object) -> Spec:
    return spec.model_copy(update={"training": spec.training.model_copy(update=values)})
