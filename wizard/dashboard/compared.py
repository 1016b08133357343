"""What a run measured beside what was predicted of it: one definition for page, report and log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wizard import wording
from wizard.dashboard.fields import number
from wizard.dashboard.predicted import Predicted
from wizard.dashboard.state import RunState


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One number; None where it was not predicted, or not measured."""

    name: str
    predicted: float | None
    measured: float | None
    word: Callable[[float | None], str]

    @property
    def off(self) -> str:
        """How far the prediction was off; see `wording.off`."""
        return wording.off(self.measured, self.predicted)

    def told(self, value: float | None) -> str:
        """The value in words; blank where it is not known."""
        return wording.BLANK if value is None else self.word(value)


def compared(state: RunState, plan: Predicted, result: object) -> tuple[Measured, ...]:
    """Predicted and measured, for what was measured; a finished run's own figures win.

    Those are of its last attempt: time and losses, which are the whole run's, come from its events
    where there are any.

    Only what means the same is held against each other: predicted speed counts padding, so does
    its counterpart here; the predicted step is one of the longest rows, so a mean step has none.
    """
    own = _mapping(_mapping(result).get("measured"))
    speed = number(own, "tokens_per_second") or state.tokens_per_second
    step = number(own, "step_seconds") or state.step_seconds
    found = (
        _memory(state, plan, own),
        _one("speed with padding", plan.tokens_per_second, _padded(state, speed), wording.speed),
        _one("speed", None, speed, wording.speed),
        _one("step", None, step, wording.duration),
        _one("steps", plan.steps, state.step, wording.count),
        _one("time", None, _whole(state.running_seconds(), own, "seconds"), wording.duration),
        _one("first loss", None, _whole(state.first_loss, own, "train_loss_first"), wording.loss),
        _one("last loss", None, _whole(state.last_loss, own, "train_loss_last"), wording.loss),
    )
    return tuple(one for one in found if one.measured is not None or one.predicted is not None)


def _whole(told: float | None, own: Mapping[str, Any], key: str) -> float | None:
    """What the events of all attempts tell; else what the last attempt measured itself."""
    return number(own, key) if told is None else told


def _one(
    name: str,
    predicted: float | None,
    measured: float | None,
    word: Callable[[float | None], str],
) -> Measured:
    return Measured(name=name, predicted=predicted, measured=measured, word=word)


def _memory(state: RunState, plan: Predicted, own: Mapping[str, Any]) -> Measured:
    """The busiest rank: on its device, or of its process where there is none."""
    name, peak = "peak memory", _largest(own.get("memory_peak_bytes"))
    if peak is None:
        on_device = [r.peak_bytes for r in state.ranks.values() if r.peak_bytes is not None]
        process = _largest(own.get("process_memory_peak_bytes"))
        peak = process if process is not None else max(on_device, default=None)
        name = "peak process memory" if process is not None else name
    return _one(name, plan.memory_bytes, peak, wording.gib)


def _padded(state: RunState, speed: float | None) -> float | None:
    """The whole run's speed with the share of padding of its last steps added."""
    padded, seen = state.padded_per_second, state.tokens_per_second
    if speed is None or not padded or not seen:
        return None
    return speed * padded / seen


def _largest(values: object) -> float | None:
    known = [float(v) for v in values if _is_number(v)] if isinstance(values, list) else []
    return max(known, default=None)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
