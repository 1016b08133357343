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
    pack,
    plan,
    presets,
    probe,
    report,
    resume,
    retry,
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
    "resume": resume,
    "retry": retry,
    "logs": logs,
    "compare": compare,
    "pack": pack,
    "chat": chat,
    "presets": presets,
    "import": import_,
    "export": export,
}
