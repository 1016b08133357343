"""An adapter that training goes on with: the settings that follow from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from wizard.problem import Problem, ProblemError


def read_adapter(folder: Path) -> dict[str, Any]:
    """Settings (Spec names) that the adapter of a folder fixes.

    Raises ProblemError when there is no LoRA adapter.
    """
    path = folder / "adapter_config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _refused(f"{folder} has no adapter_config.json that can be read") from None
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise _refused(f"{path} is not of a LoRA adapter")
    found = {
        "lora_rank": config.get("r"),
        "lora_alpha": config.get("lora_alpha"),
        "use_rslora": config.get("use_rslora"),
        "use_dora": config.get("use_dora"),
    }
    names = config.get("target_modules")
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        found["target_modules"] = ",".join(sorted(names))
    return {name: value for name, value in found.items() if value is not None}


def _refused(what: str) -> ProblemError:
    fix = "give the folder of a LoRA adapter, such as model/ of a run"
    return ProblemError(Problem(what=what, where="adapter", fix=fix, exit_code=2))
