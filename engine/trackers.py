"""Trackers: TensorBoard, Weights & Biases, SwanLab or MLflow told too, on rank 0, never needed.

What a tracker cannot do costs a warning and the tracker, not the run. It writes into the run folder
unless the environment names a place or holds a key; keys are read by its own library and are
in none of our files.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from transformers import TrainerCallback

from engine.report import Report
from engine.spec import Spec
from engine.theirs import why

PROJECT = "tunewright"
CLASSES: Mapping[str, str] = {
    "tensorboard": "TensorBoardCallback",
    "wandb": "WandbCallback",
    "swanlab": "SwanLabCallback",
    "mlflow": "MLflowCallback",
}
"""Tracker → transformers' callback for it."""
FINISH_SECONDS = 60.0
"""What a tracker may take to send or write its last; the run has ended by then."""
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
    said: dict[str, dict[str, str]] = {
        "none": {},
        "tensorboard": {"TENSORBOARD_LOGGING_DIR": folder},
        "wandb": {
            "WANDB_DIR": folder,
            "WANDB_PROJECT": PROJECT,
            "WANDB_RUN_ID": name,
            "WANDB_RESUME": "allow",
            "WANDB_SILENT": "true",
            **({"WANDB_MODE": "offline"} if _is_offline("wandb") else {}),
        },
        "swanlab": {},  # is told by arguments: its variables change their names
        "mlflow": {**_mlflow_store(run / "tracker"), "MLFLOW_EXPERIMENT_NAME": PROJECT},
    }
    return said[tracker]


def _is_offline(tracker: str) -> bool:
    """Whether nothing in the environment says that the service may be asked."""
    return not any(os.environ.get(key) for key in KEYS[tracker])


def _mlflow_store(folder: Path) -> dict[str, str]:
    """A data base; files, which mlflow calls outdated, where mlflow-skinny brings no SQL."""
    if find_spec("sqlalchemy") and find_spec("alembic"):
        return {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db"}
    return {"MLFLOW_TRACKING_URI": folder.as_uri(), "MLFLOW_ALLOW_FILE_STORE": "true"}


def _start_swanlab(folder: Path) -> None:
    """transformers' callback asks for a run, and swanlab 0.10 has it fail where there is none."""
    import swanlab

    said = {"project": ("SWANLAB_PROJ_NAME", PROJECT), "logdir": ("SWANLAB_LOGDIR", str(folder))}
    unsaid = {name: value for name, (key, value) in said.items() if not os.environ.get(key)}
    mode = {"mode": "offline"} if _is_offline("swanlab") else {}
    swanlab.init(**unsaid, **mode)


def _finish_wandb(_inner: Any, well: bool) -> None:
    import wandb

    wandb.finish(exit_code=0 if well else 1)


def _finish_swanlab(_inner: Any, well: bool) -> None:
    import swanlab

    swanlab.finish(state="success" if well else "crashed")


def _finish_mlflow(_inner: Any, well: bool) -> None:
    import mlflow

    mlflow.end_run("FINISHED" if well else "FAILED")


def _finish_tensorboard(inner: Any, _well: bool) -> None:
    if inner.tb_writer is not None:
        inner.tb_writer.close()


FINISHES: Mapping[str, Callable[[Any, bool], None]] = {
    "tensorboard": _finish_tensorboard,
    "wandb": _finish_wandb,
    "swanlab": _finish_swanlab,
    "mlflow": _finish_mlflow,
}
"""Tracker → what makes it write its last: ranks end without the hooks that would do it."""
_open: list[Tracker] = []


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
    return f"report_to={name} failed, and the run goes on without it: {why(error)}"


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
        if name == "swanlab":
            _start_swanlab(run / "tracker")
        inner = getattr(integration_utils, CLASSES[name])()
    except Exception as error:
        report.warn(lost(name, error))
        return []
    _open.append(Tracker(name, inner, report.warn))
    return [*_open]


def finish(*, well: bool) -> None:
    """Have the tracker of this process write its last, in bounded time; a failure is printed."""
    for told in _open:
        if told.inner is None:
            continue
        thread = Thread(target=_finish, args=(told, well), daemon=True)
        thread.start()
        thread.join(FINISH_SECONDS)
        if thread.is_alive():
            late = (
                f"not done after {FINISH_SECONDS:.0f} s, what is left may be sent by its own sync"
            )
            print(f"report_to={told.name}: {late}", file=sys.stderr)  # noqa: T201


def _finish(told: Tracker, well: bool) -> None:
    try:
        FINISHES[told.name](told.inner, well)
    except Exception as error:
        print(lost(told.name, error), file=sys.stderr)  # noqa: T201
