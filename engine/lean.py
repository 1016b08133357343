"""Lean: large libraries that a process has no use for are not loaded, and the others faster."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.record import read_json

if TYPE_CHECKING:
    from engine.spec import Spec


@contextmanager
def loading() -> Iterator[None]:
    """While libraries are loaded nobody looks for garbage, nor later among what they brought.

    Each look goes through all there is, which takes a quarter of the time to load TRL, and finds
    next to nothing.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def load_transformers() -> None:
    """Load transformers, which looks through all its model files for names once, not twice.

    It does so for itself and for `transformers.models`, under two names of one folder, and keeps
    less in mind than it finds.
    """
    from transformers.utils import import_utils

    look: Any = getattr(import_utils, "create_import_structure_from_path", None)
    if look is None:
        return

    def look_once(path: str | Path) -> Any:
        file = Path(path)
        return look(file.parent if file.suffix == ".py" else file)

    import_utils.create_import_structure_from_path = look_once
    try:
        import transformers.models  # noqa: F401
    finally:
        import_utils.create_import_structure_from_path = look


def leave_out(name: str) -> None:
    """Make a library one that is not installed, for this process and those it forks.

    `None` in `sys.modules` is Python's own word for that; what is loaded already stays.
    """
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]


def only_tokenizers() -> None:
    """Text becomes tokens without torch: transformers loads it for everything else.

    It keeps in mind that there is none; others, such as `datasets`, find it as ever.
    """
    if "torch" in sys.modules:
        return
    os.environ["TRANSFORMERS_NO_ADVISORY_WARNINGS"] = "1"  # that there is no torch
    leave_out("torch")
    try:
        with loading():
            load_transformers()
            from transformers import AutoTokenizer  # noqa: F401
    finally:
        del sys.modules["torch"]


def runs_own_code(spec: Spec) -> bool:
    """Whether code of the user's or the model's runs, which may load what it likes."""
    return bool(spec.plugins.named) or spec.model.trust_remote_code


def only_what_trains(spec: Spec, model: Path) -> None:
    """Leave out bitsandbytes, which loads torch's compiler, and DeepSpeed of a run without them."""
    from engine.rules import BITSANDBYTES
    from engine.spec import ZERO_STAGES

    if runs_own_code(spec):
        return
    if spec.parallel.strategy not in ZERO_STAGES:
        leave_out("deepspeed")
    quantized = spec.method.method == "qlora" or "quantization_config" in read_json(
        model / "config.json"
    )
    # TRL's offloading looks whether it was loaded, not whether it is there.
    asked = spec.training.optim in BITSANDBYTES or spec.training.activation_offloading
    if not (quantized or asked):
        leave_out("bitsandbytes")
