"""What the user wants; a missing answer is the planner's to give."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Goal = Literal["quality", "fastest", "least-memory", "fewest-devices"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What a run does about failures by itself, as the variables at the top of its script."""

    on_oom: Literal["next", "stop"] = "next"
    """Out of device memory: the ladder's next rung, or the end."""
    on_hang: Literal["restart", "stop"] = "restart"
    hang_seconds: int = 600
    """Silence of a rank, or time without a step, that counts as hung; 0 never does."""
    max_restarts: int = 1
    """Times to go on from the last checkpoint after lost ranks, a hang, or full host memory."""
    exact: bool = False
    """Never a rung that must start the optimizer's state anew."""


DEFAULT_POLICY = Policy()


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """The user's choices, replaced as a whole when one changes."""

    model: str | None = None
    """Folder or hub id."""
    data: str | None = None
    """Data file."""
    output: str | None = None
    """Folder the run folder is made in; None means the user's runs folder."""
    run_name: str | None = None
    goal: Goal = "quality"
    devices: tuple[int, ...] | None = None
    """Indices of the devices to use; None means all of one kind."""
    num_devices: int | None = None
    """Ranks on a machine without accelerators; None lets the planner choose."""
    price_per_hour: float | None = None
    """What a device costs in an hour, in a currency of the user's; None leaves costs out."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Setting (a Spec name) → value the user fixed, already checked by `engine.spec`."""
    preset: str | None = None
    """Name of the preset in use."""
    named_by_preset: frozenset[str] = frozenset()
    """`model` and `data`, where the preset names them and the user does not."""
    policy: Policy = DEFAULT_POLICY
    history: bool = True
    """Whether finished runs on this machine correct the predictions."""
    preset_settings: Mapping[str, Any] = field(default_factory=dict)
    """What the preset fixes; the user's own settings win over it."""
    accepted: tuple[str, ...] = ()
    """Warnings, as they are told, that the user goes on in spite of."""
    typed: Mapping[str, str] = field(default_factory=dict)
    """Name of a page → what stands in its field and was not read."""

    @property
    def fixed(self) -> dict[str, Any]:
        """Every setting that is not the planner's to choose."""
        return {**self.preset_settings, **self.settings}


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    """Named answers: what it fixes; the rest is planned."""

    name: str
    title: str
    description: str = ""
    goal: Goal | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    origin: Literal["shipped", "saved", "file"] = "shipped"
