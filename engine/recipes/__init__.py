"""One file per stage; each reads top to bottom and stands alone."""

from __future__ import annotations

import importlib
from typing import Any

from engine.spec import Spec


def recipe(spec: Spec) -> Any:
    """The module of a spec's stage, with its `arguments` and `build`."""
    return importlib.import_module(f"engine.recipes.{spec.method.stage}")
