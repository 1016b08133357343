"""Save: checkpoints that are whole or not used, the model folder, and what was measured."""

from __future__ import annotations

import math
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from engine.adapter import save_plain, takes_from_weights
from engine.failure import RunError, Termination
from engine.fetch import Fetched
from engine.measure import StepMeter
from engine.outcome import model_card
from engine.record import read_json, write_json
from engine.report import Report
from engine.resume import damaged
from engine.spec import Spec

COMPLETE = "complete.json"
"""Written into a checkpoint last: its files and their sizes."""
STOP_CHECK_SECONDS = 1.0
NOT_SHOWN = ("samples_per_second", "steps_per_second", "epoch", "num_tokens")
"""What the trainer counts in an evaluation beside its metrics."""
FIRST_NODE = "node-0"
"""Folder of the first of several machines, beside those of the others."""
FURTHER_NODE = re.compile(r"node-[1-9][0-9]*")


class Checkpoints(TrainerCallback):  # type: ignore[misc]
    """Marks checkpoints complete, removes old ones, and ends the run when asked or broken."""

    def __init__(
        self,
        run: Path,
        report: Report,
        meter: StepMeter,
        *,
        keep: int,
        scales_loss: bool,
        optimizer: Mapping[str, Any],
        termination: Termination,
    ) -> None:
        """`keep` complete checkpoints stay; float16's `scales_loss` makes infinite norms normal.

        `optimizer` is the form of the state that is saved, as `engine.ladder` tells it.
        """
        self.run = run
        self.report = report
        self.meter = meter
        self.keep = keep
        self.optimizer = optimizer
        self.termination = termination
        self.scales_loss = scales_loss
        self.stopped = False
        self._next_check = 0
        self._checked = time.monotonic()
        self._checked_step = 0
        self._save_started = 0.0

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Ask all ranks whether to stop; a checkpoint is only made after its loss was looked at."""
        if state.global_step >= self._next_check:
            self.stopped = self._agree_to_stop(args, state.global_step)
        if self.stopped and args.save_strategy != "no":
            control.should_save = control.should_training_stop = True
            control.should_evaluate = False
        if control.should_save:
            self._about_to_save(args, state, control)
        if control.should_evaluate:
            control.should_log = True

    def _about_to_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl
    ) -> None:
        """Remove what a crash left of this checkpoint: its marks would vouch for the new files."""
        require(self.run)
        if state.is_world_process_zero:
            leftover = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.rmtree(leftover, ignore_errors=True)
        barrier()
        control.should_log = True
        self._save_started = time.monotonic()

    def _agree_to_stop(self, args: TrainingArguments, step: int) -> bool:
        """Whether any rank sees `stop`; also agrees on the step of the next look.

        Clocks differ between ranks, so each look says how many steps fill a second.
        """
        now = time.monotonic()
        steps = max(1, step - self._checked_step)
        pause = max(1, math.floor(steps * STOP_CHECK_SECONDS / max(now - self._checked, 1e-6)))
        asked = self.termination.asked or (self.run / "stop").exists()
        if dist.is_initialized() and dist.get_world_size() > 1:
            self.report.doing = "collective"
            shared = torch.tensor([int(asked), pause], device=args.device)
            dist.all_reduce(shared, op=dist.ReduceOp.MAX)
            asked, pause = bool(shared[0].item()), int(shared[1].item())
        self._checked, self._checked_step, self._next_check = now, step, step + pause
        return asked

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """End the run at a loss that is not finite; all ranks see the same one.

        Raises RunError (nan).
        """
        logs = logs or {}
        watched = ("loss", "eval_loss") if self.scales_loss else ("loss", "eval_loss", "grad_norm")
        for name in watched:
            value = logs.get(name)
            if value is not None and not math.isfinite(value):
                raise RunError(
                    "nan",
                    f"{name} is {value} at step {state.global_step}: lower learning_rate "
                    f"(now {args.learning_rate:g}) or look at the data of this step",
                )
        if control.should_evaluate and "loss" in logs:
            self.report.phase("evaluating")
        elif control.should_save:
            self.report.phase("stopping" if self.stopped else "saving")

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """From here on a SIGTERM can be answered with a checkpoint; and find the best one again.

        A run folder may have been moved since that was noted. Raises RunError (bad_spec) when
        others could have written it.
        """
        self.termination.can_save = True
        best = self._note_best(args, state)
        if best is not None and not is_complete(best):
            text = f"the best checkpoint, {best.name}, is gone: the best is looked for anew"
            self.report.warn(text)
            state.best_model_checkpoint = state.best_metric = state.best_global_step = None
        elif best is not None:
            _check_trusted(self.run, best)  # it is loaded in the end as the newest one is now

    @staticmethod
    def _note_best(args: TrainingArguments, state: TrainerState) -> Path | None:
        """Where the best checkpoint is, if there is one; the trainer loads it in the end."""
        if state.best_global_step is None:
            return None
        best = Path(args.output_dir) / f"checkpoint-{state.best_global_step}"
        state.best_model_checkpoint = str(best)
        return best

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Say what was measured, and save the model whenever it is the best so far."""
        measured = metrics or {}
        value = measured[args.metric_for_best_model]
        best = state.best_metric
        is_best = best is None or (value > best if args.greater_is_better else value < best)
        if is_best and not control.should_save:
            control.should_save = True
            self._about_to_save(args, state, control)
        if state.is_world_process_zero:
            self.report.write("eval", **_evaluated(measured), best=is_best)
        phase = "stopping" if self.stopped else "saving" if control.should_save else "training"
        total = {"total_steps": state.max_steps} if phase == "training" else {}
        self.report.phase(phase, **total)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Mark the checkpoint once every rank has written its part, then remove old ones."""
        barrier()
        # The library looks for it while it is being written, so that ranks may disagree on it.
        self._note_best(args, state)
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if state.is_world_process_zero:
            sizes = _sizes(folder)
            said = {
                "step": state.global_step,
                "tokens_seen": self.meter.tokens_seen,
                "optimizer": self.optimizer,
            }
            write_json(folder / COMPLETE, {**said, "files": sizes})
            _remove_old(Path(args.output_dir), self.keep, best=state.best_global_step)
            self.report.write(
                "saved",
                path=str(folder),
                bytes=sum(sizes.values()),
                seconds=round(time.monotonic() - self._save_started, 3),
            )
        barrier()
        if not self.stopped:
            self.report.phase("training", total_steps=state.max_steps)


def require(run: Path) -> None:
    """A run folder that somebody removed is not made again.

    Raises RunError (disk_full).
    """
    if not run.is_dir():
        raise RunError("disk_full", f"{run}: the run folder is gone, so nothing can be saved")


def barrier() -> None:
    """Wait for the other ranks, if there are any."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != COMPLETE)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


def _by_step(folder: Path) -> list[Path]:
    """Checkpoints, oldest first."""
    found = [(re.fullmatch(r"checkpoint-(\d+)", path.name), path) for path in folder.glob("*")]
    return [path for match, path in sorted((int(m[1]), p) for m, p in found if m)]


def _remove_old(folder: Path, keep: int, *, best: int | None) -> None:
    """Remove all complete checkpoints but the newest ones, and the best one wherever it is."""
    for path in [path for path in _by_step(folder) if is_complete(path)][:-keep]:
        if path.name != f"checkpoint-{best}":
            shutil.rmtree(path, ignore_errors=True)


def _evaluated(metrics: dict[str, Any]) -> dict[str, Any]:
    """What an evaluation measured, as an event has it: the loss first, then the stage's own."""
    named = {name.removeprefix("eval_"): value for name, value in metrics.items()}
    seconds = named.pop("runtime", None)
    shown = {name: value for name, value in sorted(named.items()) if name not in NOT_SHOWN}
    return {"metrics": {"loss": shown.pop("loss"), **shown}, "seconds": seconds}


def is_complete(checkpoint: Path) -> bool:
    """Whether every file of a checkpoint has the size it had when the checkpoint was finished."""
    files = read_json(checkpoint / COMPLETE).get("files")
    return bool(files) and files == _sizes(checkpoint)


def tokens_seen(checkpoint: Path | None) -> int:
    """Tokens that all ranks had seen at a complete checkpoint; 0 without one."""
    return _noted(checkpoint, "tokens_seen")


def step_of(checkpoint: Path | None) -> int:
    """The last step that a complete checkpoint holds; 0 without one."""
    return _noted(checkpoint, "step")


def is_in_model(run: Path, checkpoint: Path) -> bool:
    """Whether `model/` was written after the checkpoint."""
    try:
        written = (run / "model" / "README.md").stat().st_mtime
        return written >= (checkpoint / COMPLETE).stat().st_mtime
    except OSError:
        return False


def _noted(checkpoint: Path | None, name: str) -> int:
    value = read_json(checkpoint / COMPLETE).get(name) if checkpoint else 0
    return value if isinstance(value, int) else 0


def newest_complete(run: Path, report: Report) -> Path | None:
    """The checkpoint to resume from; those a crash left unfinished are named and passed over.

    Raises RunError (bad_spec) when other users could have put it there: loading one unpickles it.
    """
    for path in reversed(_by_step(run / "checkpoints")):
        if not is_complete(path):
            report.warn(f"{path.name} is incomplete, so it is not used")
            continue
        _check_trusted(run, path)
        file = damaged(path)
        if file is None:
            return path
        report.warn(f"{path.name} is damaged, so it is not used: {file} is not what was written")
    return None


def _check_trusted(run: Path, checkpoint: Path) -> None:
    """Everything on the way to a pickle belongs to us alone, and nothing leads elsewhere.

    Of a run of several machines, a folder's `checkpoints` leads to that of the first machine.
    """
    way = [run]
    if _leads_to_first(run):
        first = run.parent / FIRST_NODE
        way += [run.parent, first]
        checkpoint = first / "checkpoints" / checkpoint.name
    for path in (checkpoint.parent, checkpoint, *checkpoint.rglob("*")):
        if path.is_symlink():
            raise RunError(
                "bad_spec",
                f"{path}: a symbolic link, so this checkpoint is not loaded; put it here",
            )
    for path in (*way, checkpoint.parent, checkpoint, *checkpoint.rglob("*")):
        state = path.stat()
        if state.st_uid != os.geteuid() or state.st_mode & 0o022:
            raise RunError(
                "bad_spec",
                f"{path}: other users can write here, so no checkpoint is loaded from it; "
                "make it yours alone (chmod go-w)",
            )


def _leads_to_first(run: Path) -> bool:
    """Whether this is the folder of a further machine, with the link that its script made.

    The kernel follows `..` from where the link really lies, so no folder may be a link itself.
    """
    link, run = run / "checkpoints", run.absolute()
    return (
        FURTHER_NODE.fullmatch(run.name) is not None
        and link.is_symlink()
        and link.lstat().st_uid == os.geteuid()
        and os.readlink(link) == f"../{FIRST_NODE}/checkpoints"
        and not any(path.is_symlink() for path in (run, run.parent, run.parent / FIRST_NODE))
    )


def save_model(trainer: Any, spec: Spec, fetched: Fetched, run: Path, report: Report) -> None:
    """Write `model/` whole or not at all; all ranks take part, for shards must be gathered."""
    began = time.monotonic()
    part, folder = run / "model.tmp", run / "model"
    main = trainer.is_world_process_zero()
    require(run)
    if main:
        shutil.rmtree(part, ignore_errors=True)
    barrier()
    # PEFT notes the folder the base was loaded from; elsewhere only its name can be found again.
    for adapter in getattr(trainer.model, "peft_config", {}).values():
        adapter.base_model_name_or_path = spec.model.model
    write_weights(trainer, spec, part)
    barrier()
    if not main:
        return
    for leftover in ("training_args.bin", "optimizer.pt"):
        (part / leftover).unlink(missing_ok=True)
    shutil.rmtree(part / "ref", ignore_errors=True)  # the adapter that training was held to
    if takes_from_weights(spec):
        save_plain(trainer.accelerator.unwrap_model(trainer.model), part, run)
    (part / "README.md").write_text(model_card(spec, fetched), encoding="utf-8")
    if folder.exists():
        os.replace(folder, run / "model.old")
    os.replace(part, folder)
    shutil.rmtree(run / "model.old", ignore_errors=True)
    size = sum(_sizes(folder).values())
    seconds = round(time.monotonic() - began, 3)
    report.write("saved", path=str(folder), bytes=size, seconds=seconds)


def write_weights(trainer: Any, spec: Spec, folder: Path) -> None:
    """Weights, configuration and tokenizer; all ranks take part.

    Of the trainer's own ways only ZeRO-3's is used: with FSDP it would write nothing, or gather an
    adapter's base too, and with ZeRO-1 and -2 it would write tied weights twice.
    """
    if spec.parallel.strategy == "zero3":
        trainer.save_model(str(folder))
        return
    sharded = spec.parallel.strategy == "fsdp"
    weights = whole_weights(trainer.model, spec) if sharded else None
    if trainer.is_world_process_zero():
        trainer.model.save_pretrained(str(folder), state_dict=weights)
        trainer.processing_class.save_pretrained(str(folder))


def whole_weights(model: torch.nn.Module, spec: Spec) -> dict[str, torch.Tensor]:
    """What FSDP shards, gathered into rank 0's host memory; of an adapter nothing else.

    FSDP trains a float32 copy: all weights go back to the number format they came in.
    """
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    adapter = spec.method.method != "full"
    options = StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=adapter)
    weights: dict[str, torch.Tensor] = get_model_state_dict(model, options=options)
    if adapter or not weights:
        return weights
    dtype = getattr(torch, spec.model.dtype)
    whole: dict[int, torch.Tensor] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        # Tied weights stay one tensor, so that they are written once.
        weights[name] = whole.setdefault(id(parameter), weights[name].to(dtype))
    return weights


def gather(value: dict[str, Any]) -> list[dict[str, Any]]:
    """The value of every rank, in rank order, on all ranks."""
    if not (dist.is_initialized() and dist.get_world_size() > 1):
        return [value]
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values
