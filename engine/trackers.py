"""Trackers: TensorBoard, Weights & Biases, SwanLab or MLflow told too, on rank 0, never needed.

What a tracker cannot do costs a warning and the tracker, not the run. It writes into the run folder
unless the environment names a place or holds a key; keys are read by its own library and are
in none of our files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from engine.report import Report
from engine.spec import Spec

PROJECT = "tunewright"
CLASSES: Mapping[str, str] = {
    "tensorboard": "TensorBoardCallback",
    "wandb": "WandbCallback",
    "swanlab": "SwanLabCallback",
    "mlflow": "MLflowCallback",
}
"""Tracker → transformers' callback for it."""
KEYS: Mapping[str, tuple[str, ...]] = {
    "wandb": ("WANDB_API_KEY", "WANDB_MODE"),
    "swanlab": ("SWANLAB_API_KEY", "SWANLAB_MODE"),
}
"""Tracker → variables any of which says that its service may be asked."""
EVENTS = ("on_train_begin", "on_log", "on_save", "on_train_end")


def environment(spec: Spec, run: Path) -> dict[str, str]:
    """What a tracker is told by variables, where the user's own environment does not say it."""
    tracker = spec.training.report_to
    folder = str(run / "tracker")
    name = hashlib.sha256(os.fsencode(run)).hexdigest()[:12]
    offline = not any(os.environ.get(key) for key in KEYS.get(tracker, ()))
    said: dict[str, dict[str, str]] = {
        "none": {},
        "tensorboard": {"TENSORBOARD_LOGGING_DIR": folder},
        "wandb": {
            "WANDB_DIR": folder,
            "WANDB_PROJECT": PROJECT,
            "WANDB_RUN_ID": name,
            "WANDB_RESUME": "allow",
            "WANDB_SILENT": "true",
            **({"WANDB_MODE": "offline"} if offline else {}),
        },
        "swanlab": {
            "SWANLAB_LOG_DIR": folder,
            "SWANLAB_PROJECT": PROJECT,
            **({"SWANLAB_MODE": "offline"} if offline else {}),
        },
        "mlflow": {
            # Without sqlalchemy, as in mlflow-skinny, there are no data bases.
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"
            if find_spec("sqlalchemy")
            else (run / "tracker").as_uri(),
            "MLFLOW_EXPERIMENT_NAME": PROJECT,
        },
    }
    return said[tracker]


class Tracker(TrainerCallback):  # type: ignore[misc]
    """Passes on what the trainer says, until that fails once."""

    def __init__(self, name: str, inner: Any, warn: Callable[[str], None]) -> None:
        self.name, self.inner, self.warn = name, inner, warn
        for event in EVENTS:
            setattr(self, event, self._passing(event))

    def _passing(self, event: str) -> Callable[..., None]:
        def passed_on(*args: Any, **kwargs: Any) -> None:
            if self.inner is None:
                return
            try:
                getattr(self.inner, event)(*args, **kwargs)
            except Exception as error:
                self.inner = None
                self.warn(lost(self.name, error))

        return passed_on


def lost(name: str, error: BaseException) -> str:
    """What to say of a tracker that failed."""
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"report_to={name} failed, and the run goes on without it: {first}"


def tracker(spec: Spec, run: Path, report: Report) -> list[Any]:
    """The tracker of a spec as a callback, on the rank that calls this; none if it cannot be."""
    name = spec.training.report_to
    if name == "none":
        return []
    from transformers.integrations import integration_utils

    for key, value in environment(spec, run).items():
        os.environ.setdefault(key, value)
    try:
        (run / "tracker").mkdir(exist_ok=True, mode=0o700)
        inner = getattr(integration_utils, CLASSES[name])()
    except Exception as error:
        report.warn(lost(name, error))
        return []
    return [Tracker(name, inner, report.warn)]
