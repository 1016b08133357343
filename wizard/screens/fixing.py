"""What the Data page fixes: settings of the rows, and which of them go with this data alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wizard.facts import Dataset, Model
from wizard.screens.telling import OF_ROWS
from wizard.steps import Data

LENGTH = "max_length"
LONGEST_DEFAULT = 2048
"""Rows are cut there unless a length is fixed, as the planner does."""


@dataclass(kw_only=True, slots=True)
class RowSettings:
    """Settings that were fixed before the page, and what was changed on it."""

    before: Mapping[str, Any]
    """What was fixed before, by a preset or by hand."""
    of_preset: frozenset[str] = frozenset()
    """What a preset fixes: the page cannot give it back."""
    chosen: dict[str, Any] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    """What was fixed by hand before and is given back."""
    of_others: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Data that were looked at before → what was chosen for their rows."""

    @property
    def all(self) -> dict[str, Any]:
        """Every setting as it is now."""
        kept = {name: v for name, v in self.before.items() if name not in self.forgotten}
        return {**kept, **self.chosen}

    def take(self, name: str, value: Any) -> None:
        """Fix a setting; nothing gives it back."""
        if value is None:
            self.give_back(name)
        else:
            self.chosen[name] = value

    def give_back(self, name: str) -> None:
        """Leave a setting to the planner."""
        self.chosen.pop(name, None)
        if name in self.before and name not in self.of_preset:
            self.forgotten |= {name}

    def turn(self, before: str, now: str) -> None:
        """What was chosen for the rows of one set of data says nothing about another.

        It holds again for the set it was chosen for.
        """
        if before == now:
            return
        self.of_others[before] = {name: self.all[name] for name in OF_ROWS & self.all.keys()}
        for name in self.of_others[before]:
            self.give_back(name)
        self.chosen.update(self.of_others.get(now, {}))

    def next_length(self, lengths: Iterable[int]) -> int | None:
        """Fix the next shorter max_length, first the longest; after the shortest none is fixed."""
        now = self.all.get(LENGTH)
        shorter = sorted(length for length in lengths if now is None or length < now)
        if shorter:
            self.chosen[LENGTH] = shorter[-1]
            return shorter[-1]
        self.give_back(LENGTH)
        return self.all.get(LENGTH)

    def cut_length(self, model: Model | None) -> int:
        """Tokens at which rows are cut: what is fixed, else the most that the planner takes."""
        most = model.max_positions if model else None
        return int(self.all.get(LENGTH) or min(LONGEST_DEFAULT, most or LONGEST_DEFAULT))

    def longest_tokens(self, model: Model | None, dataset: Dataset | None) -> int | None:
        """Tokens of the longest row as the planner estimates them."""
        if model is None or dataset is None:
            return None
        from wizard.planner.defaults import longest_tokens  # what it needs takes long to load

        now = self.all
        return longest_tokens(model, dataset, now.get("template"), now.get("system"))

    def of_answers(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings that were fixed by hand, with what was changed here."""
        return {**{k: v for k, v in settings.items() if k not in self.forgotten}, **self.chosen}

    def leave(self, dataset: Dataset) -> Data:
        """What the page is left with."""
        forgotten = self.forgotten - self.chosen.keys()
        return Data(dataset=dataset, settings=dict(self.chosen), forgotten=forgotten)


def length_told(length: int | None, of_preset: bool, cut: int) -> str:
    """What the key for the length came to."""
    if length is None:
        return "max_length is not fixed any more: the planner takes what covers the longest row"
    if of_preset:
        return f"max_length = {length:,} of the preset again"
    cuts = f"cuts {cut:,} rows" if cut else "cuts none"
    return f"max_length = {length:,} is fixed now, it {cuts}; c takes the next shorter one"
