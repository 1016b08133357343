"""The decisions of one plan: the user's values first, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.spec import SETTINGS, TABLES, Spec
from wizard.answers import Answers
from wizard.plan import Alternative, Decision

Origin = Literal["user", "preset", "planner"]


@dataclass(kw_only=True, slots=True)
class Ledger:
    """Collects a Decision for every setting; a fixed value always wins."""

    answers: Answers
    decisions: dict[str, Decision] = field(default_factory=dict)

    def decide(
        self,
        setting: str,
        value: Any,
        reason: str,
        alternatives: Mapping[Any, str] | None = None,
        *,
        note: str = "",
        changes_with: str = "",
        source: str = "",
    ) -> Any:
        """Record the user's value, else this one with its reason; gives what was recorded.

        `note` is true of either and follows the reason; `changes_with` says what would make the
        planner choose otherwise, `source` who recommends the value.
        """
        origin, fixed = self._origin(setting)
        if origin != "planner":
            value, reason, alternatives = fixed[setting], self._fixed_reason(origin), None
            changes_with = source = ""
        self.decisions[setting] = Decision(
            setting=setting,
            value=value,
            reason=f"{reason}; {note}" if note else reason,
            origin=origin,
            alternatives=_alternatives(alternatives) if alternatives else (),
            changes_with=changes_with,
            source=source,
        )
        return value

    def record(self, setting: str, value: Any, reason: str) -> None:
        """Record what the facts say, which nobody can fix to something else."""
        self.decisions[setting] = Decision(setting=setting, value=value, reason=reason)

    def named(self, what: str) -> str:
        """Who named the model, or the data."""
        preset = what in self.answers.named_by_preset
        return f"the preset {self.answers.preset} names it" if preset else "you named it"

    def _origin(self, setting: str) -> tuple[Origin, Mapping[str, Any]]:
        if setting in self.answers.settings:
            return "user", self.answers.settings
        if setting in self.answers.preset_settings:
            return "preset", self.answers.preset_settings
        return "planner", {}

    def _fixed_reason(self, origin: Origin) -> str:
        return "you fixed it" if origin == "user" else f"the preset {self.answers.preset} fixes it"

    def spec(self) -> Spec:
        """The Spec of all decisions so far.

        Raises pydantic's ValidationError when they contradict each other.
        """
        tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
        for setting, decision in self.decisions.items():
            tables[SETTINGS[setting]][setting] = decision.value
        return Spec.model_validate({"version": 1, **tables})

    def in_order(self) -> tuple[Decision, ...]:
        """Every decision, in the order of spec.toml."""
        return tuple(self.decisions[setting] for setting in SETTINGS)


def _alternatives(why_not: Mapping[Any, str]) -> tuple[Alternative, ...]:
    return tuple(Alternative(value=other, why_not=why) for other, why in why_not.items())
