"""One file per command: HELP, DESCRIPTION, add_arguments, run."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from wizard.commands import (
    chat,
    data,
    demo,
    doctor,
    model,
    plan,
    presets,
    probe,
    run,
    runs,
    settings,
    stop,
    watch,
)

COMMANDS: Mapping[str, ModuleType] = {
    "demo": demo,
    "probe": probe,
    "doctor": doctor,
    "model": model,
    "data": data,
    "plan": plan,
    "run": run,
    "runs": runs,
    "watch": watch,
    "stop": stop,
    "chat": chat,
    "presets": presets,
    "settings": settings,
}
