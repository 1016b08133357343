"""One file per command: HELP, DESCRIPTION, add_arguments, run."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from wizard.commands import (
    chat,
    data,
    demo,
    doctor,
    metrics,
    plan,
    presets,
    probe,
    report,
    run,
    runs,
    stop,
    watch,
)

COMMANDS: Mapping[str, ModuleType] = {
    "demo": demo,
    "probe": probe,
    "doctor": doctor,
    "data": data,
    "plan": plan,
    "run": run,
    "runs": runs,
    "watch": watch,
    "report": report,
    "metrics": metrics,
    "stop": stop,
    "chat": chat,
    "presets": presets,
}
