"""One file per command: HELP, DESCRIPTION, add_arguments, run."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from wizard.commands import (
    chat,
    data,
    demo,
    doctor,
    export,
    import_,
    plan,
    presets,
    probe,
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
    "stop": stop,
    "chat": chat,
    "presets": presets,
    "import": import_,
    "export": export,
}
