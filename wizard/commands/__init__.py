"""One file per command: HELP, DESCRIPTION, add_arguments, run."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from wizard.commands import (
    chat,
    compare,
    data,
    demo,
    doctor,
    export,
    import_,
    logs,
    metrics,
    model,
    pack,
    plan,
    presets,
    probe,
    report,
    resume,
    retry,
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
    "report": report,
    "metrics": metrics,
    "stop": stop,
    "resume": resume,
    "retry": retry,
    "logs": logs,
    "compare": compare,
    "pack": pack,
    "chat": chat,
    "presets": presets,
    "settings": settings,
    "import": import_,
    "export": export,
}
