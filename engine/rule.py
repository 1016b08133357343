"""Rule: a combination that is refused, with its reason and the nearest one that is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.spec import ZERO_STAGES, Spec


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """Two values of a spec that do not go together."""

    setting: str
    """The setting to change."""
    why: str
    nearest: str
    """The change that helps, as `setting=value`."""

    def __str__(self) -> str:
        """The violation as one line."""
        return f"{self.why}: set {self.nearest}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A combination that is refused."""

    setting: str
    broken: Callable[[Spec], bool]
    why: str
    nearest: str | Callable[[Spec], str]
    """The change, or what tells it where it depends on the rest of the spec."""

    def remedy(self, spec: Spec) -> str:
        """The nearest change that helps, as `setting=value`."""
        return self.nearest if isinstance(self.nearest, str) else self.nearest(spec)


def on_cpu(spec: Spec) -> bool:
    """Whether ranks run on CPUs."""
    return spec.parallel.device_kind == "cpu"


def is_zero(spec: Spec) -> bool:
    """Whether DeepSpeed shares the work."""
    return spec.parallel.strategy in ZERO_STAGES
