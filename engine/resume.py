"""Going on from a checkpoint of another rung: all but the optimizer's state, which starts anew.

Weights, schedule and data position are kept; the learning rate rises to its schedule.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors import safe_open

from engine.failure import RunError
from engine.fetch import verify_weights
from engine.ladder import ON_DISK
from engine.record import read_json
from engine.spec import Spec

WARMUP_STEPS = 20
"""AdamW's second moment, kept with 0.999, is dominated by few steps while it is younger."""
ADAPTER = "adapter_model.safetensors"
WEIGHTS = "model.safetensors"


def damaged(checkpoint: Path) -> str | None:
    """The first file of a checkpoint that is not what it is by its name, if there is one.

    Only beginnings and ends are read: what was changed in the middle of a file is not seen.
    """
    files = (path for path in sorted(checkpoint.rglob("*")) if path.is_file())
    wrong = (path for path in files if not CHECKS.get(path.suffix, Path.exists)(path))
    return next((str(path.relative_to(checkpoint)) for path in wrong), None)


def _is_safetensors(path: Path) -> bool:
    try:
        verify_weights(path)
    except RunError:
        return False
    return True


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return True


CHECKS: Mapping[str, Callable[[Path], bool]] = {
    ".safetensors": _is_safetensors,
    ".json": _is_json,
    # What torch.save writes is a zip archive.
    **dict.fromkeys((".pt", ".pth", ".bin"), zipfile.is_zipfile),
    # FSDP's has several, one after the other, or none where a rank holds nothing.
    ".distcp": lambda path: not path.stat().st_size or zipfile.is_zipfile(path),
}
"""Ending → whether a file is what has such a name."""


def form_of(checkpoint: Path | None) -> Mapping[str, Any] | None:
    """The form of a complete checkpoint's optimizer state; None where nothing noted it."""
    if checkpoint is None:
        return None
    form = read_json(checkpoint / "complete.json").get("optimizer")
    return form if isinstance(form, dict) else None


def refuse_inexact(checkpoint: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> NoReturn:
    """Say what --exact forbids.

    Raises RunError (bad_spec).
    """
    raise RunError(
        "bad_spec",
        f"{checkpoint.name} holds the optimizer of {_words(before)}, and --exact forbids to start "
        f"that of {_words(now)} anew",
    )


def restart_optimizer(trainer: Any, checkpoint: Path, spec: Spec, before: Mapping[str, Any]) -> str:
    """Load the weights now and make the trainer leave the optimizer's state alone; what to say.

    Raises RunError (bad_spec) when the checkpoint holds no whole weights.
    """
    load_weights(trainer.model, checkpoint, sharded=spec.parallel.strategy == "zero3")
    trainer._load_from_checkpoint = lambda *_: None
    trainer._load_scaler = lambda *_: None
    trainer._load_optimizer_and_scheduler = lambda folder: _warm_up(trainer, Path(folder))
    return (
        f"{checkpoint.name} was made with {_words(before)}: weights, schedule and data position go "
        f"on, the optimizer's state starts anew, and the learning rate rises over {WARMUP_STEPS} "
        "steps"
    )


@contextlib.contextmanager
def without_deepspeed_state() -> Iterator[None]:
    """DeepSpeed's own resume would look for a state that this strategy never saved."""
    import transformers.trainer

    original = transformers.trainer.deepspeed_load_checkpoint
    transformers.trainer.deepspeed_load_checkpoint = lambda *_, **__: None
    try:
        yield
    finally:
        transformers.trainer.deepspeed_load_checkpoint = original


def load_weights(model: Any, checkpoint: Path, *, sharded: bool) -> None:
    """Copy the weights of a checkpoint into a model, one at a time.

    `sharded` parameters (ZeRO-3) are gathered for it. Raises RunError (bad_spec) when the
    checkpoint holds none of them, or of another shape.
    """
    targets, seen = _targets(model), 0
    for name, tensor in _tensors(checkpoint):
        target = targets.get(name)
        if target is None:
            continue
        seen += 1
        with _whole(target, sharded=sharded):
            if target.shape == tensor.shape:
                target.data.copy_(tensor)
            elif target.numel():
                raise RunError(
                    "bad_spec",
                    f"{checkpoint.name}: {name} is {list(tensor.shape)}, the model has "
                    f"{list(target.shape)}",
                )
    if not seen:
        raise RunError("bad_spec", f"{checkpoint.name}: no weights in it belong to this model")


def _targets(model: Any) -> dict[str, Any]:
    """Name in a checkpoint's file → parameter; PEFT leaves the adapter's name out of its files."""
    return {
        name.replace(".default.", ".").replace(".default", ""): parameter
        for name, parameter in model.named_parameters()
    }


def _tensors(checkpoint: Path) -> Iterator[tuple[str, torch.Tensor]]:
    adapter = checkpoint / ADAPTER
    index = read_json(checkpoint / f"{WEIGHTS}.index.json").get("weight_map", {})
    files = [adapter] if adapter.exists() else sorted({checkpoint / f for f in index.values()})
    for file in files or [checkpoint / WEIGHTS]:
        if not file.is_file():
            raise RunError(
                "bad_spec",
                f"{checkpoint.name}: it holds shards and no whole weights, so only the settings "
                "that made it can go on from it",
            )
        with safe_open(file, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118  (no mapping)
                yield name, weights.get_tensor(name)


def _whole(parameter: Any, *, sharded: bool) -> contextlib.AbstractContextManager[Any]:
    if not sharded:
        return contextlib.nullcontext()
    import deepspeed

    gathered: contextlib.AbstractContextManager[Any] = deepspeed.zero.GatheredParameters(
        [parameter], modifier_rank=0
    )
    return gathered


def _warm_up(trainer: Any, checkpoint: Path) -> None:
    """The schedule where it was, times a factor that rises from 1/20 to 1."""
    scheduler = getattr(trainer.lr_scheduler, "scheduler", trainer.lr_scheduler)
    state = torch.load(checkpoint / "scheduler.pt", weights_only=True)
    # Rates and their number belong to the optimizer that is here: sharded ones regroup parameters.
    first = scheduler.last_epoch = state["last_epoch"]
    scheduler._step_count = state["_step_count"]
    scheduler.lr_lambdas = [_rising(f, first) for f in scheduler.lr_lambdas]
    for group, base, factor in zip(
        scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
    ):
        group["lr"] = base * factor(first)
    scheduler._last_lr = [group["lr"] for group in scheduler.optimizer.param_groups]


def _rising(schedule: Callable[[int], float], first: int) -> Callable[[int], float]:
    return lambda step: schedule(step) * min(1.0, (step - first + 1) / WARMUP_STEPS)


def _words(form: Mapping[str, Any]) -> str:
    parts = [form.get("optim"), form.get("strategy")]
    if form.get("offload") not in (None, "none"):
        parts.append(f"offload {form['offload']}{' to a disk' if form.get(ON_DISK) else ''}")
    return ", ".join(str(part) for part in parts if part)
